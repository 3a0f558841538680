/**
 * The database's clock against this machine's.
 *
 * Leases are judged by the database alone. What depends on this machine: times that it hands over (`runAt`), and how long it
 * trusts a lease, for which both clocks have to run at the same speed.
 */
import { Duration, Effect } from "effect"
import type { MysqlFault } from "../MysqlFault.js"
import type { OwnSession } from "../Session.js"
import * as Statements from "../statements/diagnose.js"
import { type Finding, ok, problem, warning } from "./Finding.js"

/** Milliseconds on both sides at one instant; `unsure`: by how much the database's may be off, half a round trip. */
interface Reading {
  readonly database: number
  readonly wall: number
  readonly monotonic: number
  readonly unsure: number
}

/** How long the clocks are watched. */
const watched = Duration.seconds(1)
const tries = 5
const tolerable = { skew: 1_000, drift: 0.01, brokenDrift: 0.03 }

export const examine = (session: OwnSession): Effect.Effect<ReadonlyArray<Finding>, MysqlFault> =>
  Effect.gen(function* () {
    const first = yield* best(session)
    yield* Effect.sleep(watched)
    return judge(first, yield* best(session))
  })

/** The reading with the shortest round trip of a few. */
const best = (session: OwnSession): Effect.Effect<Reading, MysqlFault> =>
  Effect.map(Effect.replicateEffect(read(session), tries), (readings) =>
    readings.reduce((a, b) => (b.unsure < a.unsure ? b : a))
  )

const read = (session: OwnSession): Effect.Effect<Reading, MysqlFault> =>
  Effect.suspend(() => {
    const wall = Date.now()
    const sentAt = performance.now()
    return Effect.map(session.script([Statements.now]), ([answer]) => {
      const half = (performance.now() - sentAt) / 2
      return {
        database: Number(answer?.rows[0]?.["now"]) / 1_000,
        wall: wall + half,
        monotonic: sentAt + half,
        unsure: half
      }
    })
  })

/** What two readings, a while apart, say about the clocks. */
export const judge = (first: Reading, second: Reading): ReadonlyArray<Finding> => {
  const skew = Math.round(second.database - second.wall)
  const elapsed = second.monotonic - first.monotonic
  const apart = Math.abs(second.database - first.database - elapsed)
  const drift = Math.max(0, apart - first.unsure - second.unsure) / elapsed
  const percent = `${(drift * 100).toFixed(1)} %`
  return [
    Math.abs(skew) <= tolerable.skew
      ? ok("clock", `the database's clock is ${skew} ms from this machine's (± ${Math.ceil(second.unsure)} ms)`)
      : warning(
          "clock",
          `the database's clock is ${skew} ms from this machine's`,
          "Leases are not affected, but a runAt that this machine computes is early or late by as much: synchronize the clocks."
        ),
    drift <= tolerable.drift
      ? ok("drift", `the clocks run at the same speed, to within ${percent}`)
      : (drift > tolerable.brokenDrift ? problem : warning)(
          "drift",
          `the clocks run apart by ${percent}, measured over ${Math.round(elapsed)} ms`,
          "A worker here may trust a lease for too long. One of the clocks is being corrected, or a machine was suspended: "
            + "run doctor again, and look at NTP if it stays."
        )
  ]
}
