/**
 * Counts handlers by the number in their payload, at no cost that would show.
 */
import { Deferred, Effect } from "effect"

export interface Tally {
  /** The handler of job `n` ran. */
  readonly count: (n: number) => void
  readonly handled: () => number
  readonly repeated: () => number
  /** As many handlers have run as were waited for. */
  readonly full: Effect.Effect<void>
}

export const make = (wanted: number): Effect.Effect<Tally> =>
  Effect.map(Deferred.make<void>(), (full) => {
    let seen = new Uint8Array(1_024)
    let handled = 0
    let repeated = 0
    return {
      count: (n) => {
        if (n >= seen.length) {
          const larger = new Uint8Array(Math.max(n + 1, 2 * seen.length))
          larger.set(seen)
          seen = larger
        }
        if (seen[n] === 1) repeated++
        seen[n] = 1
        handled++
        if (handled === wanted) Deferred.unsafeDone(full, Effect.void)
      },
      handled: () => handled,
      repeated: () => repeated,
      full: Deferred.await(full)
    }
  })
