/**
 * Sleeps of any finite length.
 */
import { Duration, Effect } from "effect"

// A longer timer of JavaScript fires at once, and Effect's clock takes a longer sleep for an infinite one.
const longest = Duration.millis(2 ** 31 - 1)

/** Sleeps for the whole of `duration`, also where that is more than the 24.8 days that one timer can hold. */
export const sleep = (duration: Duration.Duration): Effect.Effect<void> =>
  Duration.lessThanOrEqualTo(duration, longest)
    ? Effect.sleep(duration)
    : Effect.flatMap(Effect.sleep(longest), () => sleep(Duration.subtract(duration, longest)))
