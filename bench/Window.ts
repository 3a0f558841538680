/**
 * What worker processes and the server did during a stretch of time.
 */
import { Duration, Effect, Option } from "effect"
import type { BenchError } from "./BenchError.js"
import type { Child } from "./Child.js"
import type { Figures } from "./Figure.js"
import { monotonic } from "./process/Monotonic.js"
import { Server } from "./Server.js"

export interface Seen {
  readonly seconds: number
  readonly handled: number
  readonly figures: Figures
}

/** Watches for so long. `cpu_percent` is of one core, and of the processes alone. */
export const watch = (
  children: ReadonlyArray<Child>,
  length: Duration.DurationInput
): Effect.Effect<Seen, BenchError, Server> =>
  Effect.gen(function* () {
    const server = yield* Server
    const look = Effect.all({
      usages: Effect.forEach(children, ({ usage }) => usage),
      statements: server.statements,
      mysqldCpu: server.cpu,
      at: Effect.sync(monotonic)
    })
    const before = yield* look
    yield* Effect.sleep(Duration.decode(length))
    const after = yield* look
    const seconds = (after.at - before.at) / 1_000
    const grown = (of: "cpu" | "handled") =>
      after.usages.reduce((sum, usage) => sum + usage[of], 0) - before.usages.reduce((sum, usage) => sum + usage[of], 0)
    const handled = grown("handled")
    const cpu = grown("cpu")
    const statements = after.statements - before.statements - 1
    const mysqldCpu = Option.zipWith(after.mysqldCpu, before.mysqldCpu, (a, b) => a - b)
    return {
      seconds,
      handled,
      figures: {
        statements_per_second: statements / seconds,
        cpu_percent: cpu / 10_000 / seconds,
        ...(handled === 0
          ? {}
          : {
              jobs_per_second: handled / seconds,
              statements_per_job: statements / handled,
              node_cpu_us_per_job: cpu / handled,
              ...(Option.isSome(mysqldCpu) ? { mysqld_cpu_us_per_job: mysqldCpu.value / handled } : {})
            })
      }
    }
  })
