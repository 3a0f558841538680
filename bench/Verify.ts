/**
 * What a sample leaves in the table: every job that was run has succeeded once, under its first token.
 */
import { Effect } from "effect"
import type { BenchError } from "./BenchError.js"
import type { Session } from "./Server.js"

export interface Expected {
  /** Jobs whose handlers ran to their end. */
  readonly succeeded: number
  /** Jobs that must still be pending. Default 0. */
  readonly pending?: number
}

/** Whether the table holds exactly what is expected. Finished history from before the sample has worker NULL in no ledger. */
export const rows = (session: Session, { pending = 0, succeeded }: Expected): Effect.Effect<boolean, BenchError> =>
  Effect.map(
    session.query(
      "SELECT COUNT(*) AS total, COALESCE(SUM(state = 0), 0) AS pending,"
        + " COALESCE(SUM(state = 2 AND token = 1 AND attempt = 1 AND JSON_LENGTH(attempts) = 1"
        + " AND attempts->>'$[0].o' = 'completed'), 0) AS succeeded_once FROM leasehold_jobs"
        // Rows that were seeded as history have no ledger.
        + " WHERE NOT (state = 2 AND JSON_LENGTH(attempts) = 0)"
    ),
    ([row]) =>
      Number(row?.["total"]) === succeeded + pending
      && Number(row?.["pending"]) === pending
      && Number(row?.["succeeded_once"]) === succeeded
  )
