/**
 * Measures what a process did between "go" and its end: its own time and CPU, and what the server was given to do meanwhile.
 */
import { Effect, Option } from "effect"
import type { BenchError } from "./BenchError.js"
import type { Child } from "./Child.js"
import type { Figures } from "./Figure.js"
import type { Done } from "./process/Lines.js"
import { Server } from "./Server.js"

/**
 * Tells the processes to go and waits for all of them. They take their own time from when they are warm; what the server is given
 * to do is counted from the start, and shared among all jobs.
 */
export const race = (
  children: ReadonlyArray<Child>,
  jobsOf: (done: ReadonlyArray<Done>) => number,
  warmup = 0
): Effect.Effect<{ readonly done: ReadonlyArray<Done>; readonly figures: Figures }, BenchError, Server> =>
  Effect.gen(function* () {
    const server = yield* Server
    const before = { statements: yield* server.statements, cpu: yield* server.cpu }
    yield* Effect.forEach(children, ({ go }) => go, { discard: true })
    const done = yield* Effect.forEach(children, (child) => child.done, { concurrency: "unbounded" })
    const after = { statements: yield* server.statements, cpu: yield* server.cpu }
    const jobs = jobsOf(done)
    const elapsed = Math.max(...done.map(({ elapsed }) => elapsed))
    // The second look at the counter is the one statement that was not theirs.
    const statements = after.statements - before.statements - 1
    const mysqldCpu = Option.zipWith(after.cpu, before.cpu, (a, b) => a - b)
    return {
      done,
      figures: {
        jobs_per_second: (jobs * 1_000) / elapsed,
        statements_per_job: statements / (jobs + warmup),
        node_cpu_us_per_job: done.reduce((sum, { cpu }) => sum + cpu, 0) / jobs,
        ...(Option.isSome(mysqldCpu) ? { mysqld_cpu_us_per_job: mysqldCpu.value / (jobs + warmup) } : {})
      }
    }
  })

export const handled = (done: ReadonlyArray<Done>): number => done.reduce((sum, one) => sum + one.handled, 0)
export const repeated = (done: ReadonlyArray<Done>): number => done.reduce((sum, one) => sum + one.repeated, 0)
