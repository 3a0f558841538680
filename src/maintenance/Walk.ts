/**
 * Walks over all jobs of the store, batch by batch, again and again.
 */
import { Duration, Effect, Option } from "effect"
import * as FaultLog from "../FaultLog.js"
import type { Cursor, Walked } from "../JobStore.js"
import type { StoreError } from "../QueueError.js"
import * as Timer from "../Timer.js"

/** Jobs that one batch looks at. */
export const batchSize = 200

/** Where a batch came to, and whether it found nothing to do there. */
export interface Step extends Walked {
  readonly idle: boolean
}

/**
 * How long a walk sleeps after a batch that took so long. While it has something to do it takes a quarter of one connection at most:
 * deleting is dear for the server. Of two cleaners at half of a connection each, and with batches of 500, live jobs on two cores took
 * 13 ms instead of 8, and one in a hundred 50 ms instead of 23 (scenario M2, measured 2026-11-30). While it only looks, a twentieth: each
 * process walks for itself, and beside walks at a quarter each of eight took 120 instead of 98 µs for a job that it ran.
 */
export const restAfter = (took: Duration.Duration, idle: boolean): Duration.Duration =>
  Duration.times(took, idle ? 19 : 3)

/**
 * Walks from the first job to the last, rests, and begins anew, for as long as it is not interrupted. `batch` can not be
 * interrupted half-way, so a stop waits for one batch at most (scenario M5).
 *
 * After each batch it sleeps for {@link restAfter}. It rests for `interval`, spread by half of it up and down, the first time
 * before the first walk: fifty workers do not walk together.
 */
export const forever = (
  name: string,
  interval: Duration.Duration,
  batch: (after: Cursor) => Effect.Effect<Step, StoreError>
): Effect.Effect<never> => {
  const faults = FaultLog.make(name)
  const rest = Timer.sleepSome(Duration.times(interval, 1.5), 1 / 3)
  const step = (after: Cursor) =>
    Effect.gen(function* () {
      // Timed by the monotonic clock: a wall clock that is set ahead within a batch would stop the walk for as long.
      const [took, { idle, next }] = yield* Effect.uninterruptible(batch(after)).pipe(
        Effect.tap(() => faults.recovered),
        // The walk ends here and begins anew after the rest: every batch is safe to repeat. A fault may have taken long to show.
        Effect.catchAll((error) => Effect.as(faults.report(error), { next: Option.none<Cursor>(), idle: false })),
        Effect.timed
      )
      yield* Timer.sleep(restAfter(took, idle))
      return next
    })
  const walk = Effect.gen(function* () {
    let at: Option.Option<Cursor> = Option.some("")
    while (Option.isSome(at)) at = yield* step(at.value)
  })
  return Effect.forever(Effect.zipRight(rest, walk))
}
