/**
 * Throws of the dice that a seed decides: each part of a torture has its own, so that none disturbs another's.
 */
import { Effect, Random } from "effect"

export const oneIn = (count: number): Effect.Effect<boolean> =>
  Effect.map(Random.nextIntBetween(0, count), (thrown) => thrown === 0)

export const pick = <A>(choices: readonly [A, ...ReadonlyArray<A>]): Effect.Effect<A> =>
  Effect.map(Random.nextIntBetween(0, choices.length), (index) => choices[index] ?? choices[0])

/** Runs an effect with the dice of one part of a torture. */
export const seeded =
  (seed: number, part: string) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.withRandom(effect, Random.make(`${seed}/${part}`))
