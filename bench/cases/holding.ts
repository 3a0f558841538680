/**
 * What workers cost that hold leases, wait, or live long: renew, idle, memory.
 */
import { Effect, Option, Schedule } from "effect"
import { BenchError } from "../BenchError.js"
import type { Case, Settings, Variant } from "../Case.js"
import * as Child from "../Child.js"
import * as Database from "../Database.js"
import { insert } from "../Seed.js"
import * as Verify from "../Verify.js"
import { watch } from "../Window.js"

/** Waits until a worker has run, or begun, so many jobs. A worker that has ended will not: that is the failure at once. */
const until = (child: Child.Child, handled: number): Effect.Effect<void, BenchError> =>
  child.usage.pipe(
    Effect.repeat({
      until: (usage) => usage.handled >= handled,
      schedule: Schedule.spaced("200 millis")
    }),
    Effect.timeoutFail({
      duration: "10 minutes",
      onTimeout: () => new BenchError({ message: `Not all of ${handled} jobs were begun within 10 minutes` })
    }),
    Effect.asVoid
  )

export const renew: Case = {
  name: "renew",
  about: "a worker holds 10,000 leases of 30 seconds for 35 seconds: what the renewals cost, and whether one lapses",
  variants: ({ jobs: asked, payload }: Settings) => {
    const jobs = Option.getOrElse(asked, () => 10_000)
    return [
      {
        name: "held leases",
        peer: "leasehold",
        jobs,
        concurrency: jobs,
        sample: Effect.gen(function* () {
          const { url, ...session } = yield* Database.migrated
          yield* insert(session, { count: jobs, payload })
          const setup = { jobs, concurrency: jobs, payload, url }
          const worker = yield* Child.start({ ...setup, act: "serve", handler: "hang", sayStarts: false })
          yield* worker.go
          yield* until(worker, jobs)
          const { figures } = yield* watch([worker], "35 seconds")
          const [row] = yield* session.query(
            "SELECT SUM(state = 1 AND token = 1 AND due_at > UTC_TIMESTAMP(6)) AS held FROM leasehold_jobs"
          )
          const lost = jobs - Number(row?.["held"])
          return { figures: { ...figures, lost }, verified: lost === 0 }
        })
      }
    ]
  }
}

export const idle: Case = {
  name: "idle",
  about: "what a worker with nothing to do asks of the server, and of its processor",
  variants: ({ concurrency: asked, payload }: Settings) =>
    [1, 8].map((queues): Variant => {
      const concurrency = Option.getOrElse(asked, () => 16)
      return {
        name: queues === 1 ? "one queue" : `${queues} queues`,
        peer: "leasehold",
        jobs: 0,
        concurrency,
        sample: Effect.gen(function* () {
          const { url, ...session } = yield* Database.migrated
          const worker = yield* Child.start({ jobs: 0, concurrency, payload, url, queues, act: "serve" })
          yield* worker.go
          // A process that has just started compiles and collects for a while: three times as much CPU as later.
          yield* Effect.sleep("20 seconds")
          const { figures } = yield* watch([worker], "20 seconds")
          return { figures, verified: yield* Verify.rows(session, { succeeded: 0 }) }
        })
      }
    })
}

export const memory: Case = {
  name: "memory",
  about: "the heap of a worker after each tenth of a million jobs",
  variants: ({ concurrency: asked, jobs: wanted, payload }: Settings) => {
    const jobs = Option.getOrElse(wanted, () => 1_000_000)
    const concurrency = Option.getOrElse(asked, () => 32)
    const part = Math.floor(jobs / 10)
    return [
      {
        name: "heap",
        peer: "leasehold",
        jobs: 10 * part,
        concurrency,
        sample: Effect.gen(function* () {
          const { url, ...session } = yield* Database.migrated
          const worker = yield* Child.start({ jobs, concurrency, payload, url, act: "serve", sayStarts: false })
          yield* worker.go
          const heaps: Array<number> = []
          for (let turn = 0; turn < 10; turn++) {
            yield* insert(session, { from: turn * part, count: part, payload })
            yield* until(worker, (turn + 1) * part)
            yield* worker.collect
            heaps.push((yield* worker.usage).heap)
          }
          const { repeated } = yield* worker.usage
          yield* worker.stop
          yield* worker.done
          const last = heaps.at(-1) ?? Number.NaN
          const rows = yield* Verify.rows(session, { succeeded: 10 * part })
          // What grows with the number of jobs shows between the second tenth, when all code is warm, and the last.
          return {
            figures: { heap_mb: last, heap_growth_mb: last - (heaps[1] ?? Number.NaN) },
            verified: rows && repeated === 0
          }
        })
      }
    ]
  }
}
