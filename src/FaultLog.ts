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
  /** The row of faults that has not ended; undefined where the last call was answered. */
  readonly current: () => Row | undefined
  /** Forgets the row: nobody waits for what met these faults, so nothing tells whether they go on. */
  readonly forget: () => void
}

/** Faults with no success between them. */
export interface Row {
  /** When the first of them was reported, by the wall clock, in milliseconds. */
  readonly since: number
  readonly last: StoreError
}

const silence = Duration.toMillis("30 seconds")

/** A log for one loop; `loop` names it in the messages. An outage must not fill a disk (scenario F2). */
export const make = (loop: string): FaultLog => {
  let faults = 0
  let unsaid = 0
  let saidAt = 0
  let row: Row | undefined
  return {
    current: () => row,
    forget: () => {
      row = undefined
    },
    report: (error) =>
      Effect.gen(function* () {
        const now = yield* Clock.currentTimeMillis
        row = { since: row?.since ?? now, last: error }
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
      row = undefined
      return ended
    })
  }
}
