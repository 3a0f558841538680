/**
 * Counts handlers by the number in their payload, at no cost that would show.
 */
import { Effect } from "effect"

export interface Tally {
  /** The handler of job `n` ran. */
  readonly count: (n: number) => void
  readonly handled: () => number
  readonly repeated: () => number
  /** Returns when so many handlers have run. One waits at a time. */
  readonly reached: (handled: number) => Effect.Effect<void>
}

/** `warm` is called when `warmup` handlers have run. */
export const make = (warmup: number, warm: () => void): Tally => {
  let seen = new Uint8Array(1_024)
  let handled = 0
  let repeated = 0
  let awaited = Number.POSITIVE_INFINITY
  let resume = () => {}
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
      if (handled === warmup) warm()
      if (handled === awaited) resume()
    },
    handled: () => handled,
    repeated: () => repeated,
    reached: (wanted) =>
      Effect.async((done) => {
        if (handled >= wanted) return done(Effect.void)
        awaited = wanted
        resume = () => done(Effect.void)
      })
  }
}
