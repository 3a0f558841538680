/**
 * What runs in a layer, where nobody waits for its end.
 */
import { Duration, Effect, Schedule } from "effect"

/**
 * Runs `effect`, which never ends by itself. Where it dies of a mistake in the library, that is logged as fatal and it starts
 * again after a second, doubled up to a minute: a program whose queue stands still must not look well (scenario O5).
 */
export const forever = <E, R>(name: string, effect: Effect.Effect<never, E, R>): Effect.Effect<never, E, R> =>
  effect.pipe(
    Effect.tapDefect((cause) => Effect.logFatal(`${name} died and starts again`, cause)),
    Effect.catchAllDefect((defect) => Effect.fail(new Died(defect))),
    Effect.retry({ while: (error) => error instanceof Died, schedule: restarts }),
    Effect.catchIf(
      (error): error is Died => error instanceof Died,
      (died) => Effect.die(died.defect)
    )
  )

class Died {
  constructor(readonly defect: unknown) {}
}

const restarts = Schedule.exponential("1 second").pipe(
  Schedule.union(Schedule.spaced("1 minute")),
  Schedule.jittered,
  // Whole milliseconds, as `Timer.sleep` says why.
  Schedule.modifyDelay((_, delay) => Duration.millis(Math.ceil(Duration.toMillis(delay))))
)
