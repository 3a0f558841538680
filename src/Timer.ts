/**
 * Sleeps of any finite length.
 */
import { Duration, Effect, Random } from "effect"

// A longer timer of JavaScript fires at once, and Effect's clock takes a longer sleep for an infinite one.
const longest = Duration.millis(2 ** 31 - 1)

/**
 * Sleeps for the whole of `duration`, also where that is more than the 24.8 days that one timer can hold. Rounded up to whole
 * milliseconds: no timer is finer, and `TestClock` breaks at fractions.
 */
export const sleep = (duration: Duration.Duration): Effect.Effect<void> =>
  Duration.lessThanOrEqualTo(duration, longest)
    ? Effect.sleep(Math.ceil(Duration.toMillis(duration)))
    : Effect.flatMap(Effect.sleep(longest), () => sleep(Duration.subtract(duration, longest)))

/** Sleeps for a random part of `duration`, from `least` of it to the whole. */
export const sleepSome = (duration: Duration.Duration, least: number): Effect.Effect<void> =>
  Effect.flatMap(Random.nextRange(least, 1), (share) => sleep(Duration.times(duration, share)))

/**
 * Waits for an effect, but no longer than `time`, also in a finalizer. An effect that can not be interrupted goes on without
 * anybody waiting for it.
 */
export const within = (effect: Effect.Effect<unknown>, time: Duration.Duration): Effect.Effect<void> =>
  Effect.raceFirst(
    Effect.interruptible(Effect.disconnect(Effect.interruptible(Effect.asVoid(effect)))),
    Effect.interruptible(sleep(time))
  )
