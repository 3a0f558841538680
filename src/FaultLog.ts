/**
 * The faults of one loop that talks to the database: each is counted, few are logged.
 */
import { Clock, Duration, Effect, Metric } from "effect"
import * as Metrics from "./Metrics.js"
import type { StoreError } from "./QueueError.js"

export interface FaultLog {
  /** Counts a fault. The first of a row is logged as an error, then at most one in 30 seconds, with how many were not. */
  readonly report: (error: StoreError) => Effect.Effect<void>
  /** Ends a row of faults: says so once, at level info. */
  readonly recovered: Effect.Effect<void>
}

const silence = Duration.toMillis("30 seconds")

/** A log for one loop; `loop` names it in the messages. An outage must not fill a disk (scenario F2). */
export const make = (loop: string): FaultLog => {
  let faults = 0
  let unsaid = 0
  let saidAt = 0
  return {
    report: (error) =>
      Effect.gen(function* () {
        const now = yield* Clock.currentTimeMillis
        const reason = error._tag === "StoreUnavailable" ? error.reason : error._tag
        yield* Metric.update(Metrics.bind(Metrics.faults, { outcome: reason }), 1)
        faults++
        unsaid++
        if (faults > 1 && now - saidAt < silence) return
        const code = error._tag === "OutcomeUnknown" ? error._tag : error.code
        yield* Effect.logError(`${loop}: ${error.message}`).pipe(
          Effect.annotateLogs({ error_code: code, faults: unsaid })
        )
        saidAt = now
        unsaid = 0
      }),
    recovered: Effect.suspend(() => {
      if (faults === 0) return Effect.void
      const ended = Effect.annotateLogs(Effect.logInfo(`${loop}: works again`), { faults })
      faults = 0
      unsaid = 0
      return ended
    })
  }
}
