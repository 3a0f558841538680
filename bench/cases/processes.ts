/**
 * How the rate changes with the number of worker processes and of their queues.
 */
import { Effect, Option } from "effect"
import type { BenchError } from "../BenchError.js"
import type { Case, Settings, Variant } from "../Case.js"
import * as Child from "../Child.js"
import * as Database from "../Database.js"
import { insert } from "../Seed.js"
import * as Verify from "../Verify.js"
import { watch } from "../Window.js"
import * as Work from "../Work.js"

const variant = (settings: Settings, workers: number, queues: number): Variant => {
  const jobs = Option.getOrElse(settings.jobs, () => 300_000)
  const concurrency = Option.getOrElse(settings.concurrency, () => 32)
  const each = Math.ceil(jobs / queues)
  return {
    name: `${workers} ${workers === 1 ? "process" : "processes"}, ${queues} ${queues === 1 ? "queue" : "queues"}`,
    peer: "leasehold",
    jobs: each * queues,
    concurrency,
    settings: { workers, queues },
    sample: Effect.gen(function* () {
      const { url, ...session } = yield* Database.migrated
      for (let index = 0; index < queues; index++) {
        const { queue, type } = Work.onQueue(index + 1)
        yield* insert(session, { from: index * each, count: each, payload: settings.payload, queue, type })
      }
      yield* session.query("ANALYZE TABLE leasehold_jobs")
      const setup = { jobs, concurrency, payload: settings.payload, url, queues }
      const children = yield* Effect.replicateEffect(Child.start({ ...setup, act: "serve", sayStarts: false }), workers)
      yield* Effect.forEach(children, ({ go }) => go, { discard: true })
      yield* untilWarm(children, Math.min(warmAfter * workers, jobs / 2))
      const { figures } = yield* watch(children, "5 seconds")
      yield* Effect.forEach(children, ({ stop }) => stop, { discard: true })
      const done = yield* Effect.forEach(children, (child) => child.done)
      const succeeded = done.reduce((sum, { handled }) => sum + handled, 0)
      const rows = yield* Verify.rows(session, { succeeded, pending: each * queues - succeeded })
      return { figures, verified: rows && done.every(({ repeated }) => repeated === 0) && succeeded < each * queues }
    })
  }
}

/** Jobs after which a process no longer compiles its code while it runs: as many as all that a drain runs. */
const warmAfter = 20_000

/** Waits until all together have run so many jobs: one that gets few of them must not use up those of the others. */
const untilWarm = (children: ReadonlyArray<Child.Child>, jobs: number): Effect.Effect<void, BenchError> =>
  Effect.forEach(children, ({ usage }) => usage).pipe(
    Effect.delay("200 millis"),
    Effect.repeat({ until: (usages) => usages.reduce((sum, { handled }) => sum + handled, 0) >= jobs }),
    Effect.asVoid
  )

export const processes: Case = {
  name: "processes",
  about: "jobs per second over 5 seconds with 1, 4 and 8 worker processes that are warm, and with 8 queues",
  variants: (settings) => [
    variant(settings, 1, 1),
    variant(settings, 4, 1),
    variant(settings, 8, 1),
    variant(settings, 1, 8),
    variant(settings, 8, 8)
  ]
}
