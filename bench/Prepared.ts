/**
 * Drains that differ in what lies around the jobs: how many more are due, what is due later, what has ended, who holds a snapshot.
 */
import { Effect, type Scope } from "effect"
import type { BenchError } from "./BenchError.js"
import type { Variant } from "./Case.js"
import * as Child from "./Child.js"
import * as Database from "./Database.js"
import { handled, race, repeated } from "./Meter.js"
import { insert } from "./Seed.js"
import * as Verify from "./Verify.js"

export interface Scenery {
  readonly name: string
  /** Jobs that are run until the worker is stopped. */
  readonly jobs: number
  readonly concurrency: number
  readonly payload: number
  readonly settings?: { readonly [name: string]: string | number }
  /** Fills the tables; answers how many rows are pending. Sessions that it opens stay until the sample is over. */
  readonly prepare: (database: Database.Database) => Effect.Effect<number, BenchError, Scope.Scope>
  /** Keeps so many jobs due while they are run, instead of leaving a backlog that shrinks. */
  readonly refill?: number
}

/** One worker process runs so many of the jobs, and stops. */
export const drain = (scenery: Scenery): Variant => ({
  ...scenery,
  peer: "leasehold",
  sample: Effect.gen(function* () {
    const database = yield* Database.migrated
    const { concurrency, jobs, payload } = scenery
    const prepared = yield* scenery.prepare(database)
    // A table that has just been filled has no statistics yet, which no table in use would be without.
    yield* database.query("ANALYZE TABLE leasehold_jobs")
    const child = yield* Child.start({ jobs, concurrency, payload, act: "drain", url: database.url })
    const [{ done, figures }, pending] = yield* Effect.zip(
      race([child], handled),
      scenery.refill === undefined
        ? Effect.succeed(prepared)
        : feed(child, database, { jobs, payload, due: scenery.refill, inserted: prepared }),
      { concurrent: true }
    )
    const rows = yield* Verify.rows(database, { succeeded: handled(done), pending: pending - handled(done) })
    return { figures, verified: rows && repeated(done) === 0 && handled(done) >= jobs }
  })
})

interface Feeding {
  readonly jobs: number
  readonly payload: number
  readonly due: number
  readonly inserted: number
}

/** Replaces jobs that were run, until the rest of them will do; answers how many there were in all. */
const feed = (child: Child.Child, database: Database.Database, feeding: Feeding): Effect.Effect<number, BenchError> =>
  Effect.iterate(feeding.inserted, {
    // The worker stops after `jobs`. Before it can, enough of them are there, and nothing is asked of it any more.
    while: (inserted) => inserted < feeding.jobs + feeding.due / 2,
    body: (inserted) =>
      Effect.gen(function* () {
        yield* Effect.sleep("10 millis")
        // A process that has ended needs no more; if it ended too early, that is the failure that `race` tells of.
        const handled = yield* child.usage.pipe(
          Effect.map((usage) => usage.handled),
          Effect.catchTag("BenchError", () => Effect.succeed(feeding.jobs))
        )
        const count = handled + feeding.due - inserted
        if (count > 0) yield* insert(database, { from: inserted, count, payload: feeding.payload })
        return inserted + Math.max(0, count)
      })
  })
