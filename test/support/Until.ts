import { inspect } from "node:util"
import { Duration, Effect } from "effect"

/**
 * Looks every 20 ms until it is so, and answers what was seen then. Fails after `within`, with what was seen last.
 *
 * For what somebody else does, a worker or another process: what the test does itself has a latch.
 */
export const until = <A, E, R>(
  look: Effect.Effect<A, E, R>,
  isSo: (seen: A) => boolean,
  within: Duration.DurationInput = "1 minute"
): Effect.Effect<A, E | Error, R> =>
  Effect.suspend(() => {
    let last: unknown = "nothing"
    return look.pipe(
      // A look that asks nobody would keep the event loop for itself without the pause.
      Effect.tap((seen) => {
        last = seen
        return Effect.sleep("20 millis")
      }),
      Effect.repeat({ until: isSo }),
      Effect.timeoutFail({
        duration: within,
        onTimeout: () => new Error(`not so after ${Duration.format(Duration.decode(within))}, but: ${inspect(last)}`)
      })
    )
  })
