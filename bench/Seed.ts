/**
 * Rows as an enqueue leaves them, in numbers for which an enqueue would take too long, and rows of jobs that ended long ago.
 */
import { Effect } from "effect"
import type { BenchError } from "./BenchError.js"
import type { Session } from "./Server.js"
import { queue, type } from "./Work.js"

export interface Rows {
  /** The number in the payload of the first row. */
  readonly from?: number
  readonly count: number
  readonly payload: number
  readonly priority?: number
  readonly queue?: string
  readonly type?: string
  /** SQL for when row `n` (1 to the size of its batch) is due. Default: now. */
  readonly due?: string
  readonly state?: "pending" | "succeeded"
}

const batch = 20_000

/** Inserts the rows in batches, each durable by itself. */
export const insert = (session: Session, rows: Rows): Effect.Effect<void, BenchError> => {
  const { count, due = "UTC_TIMESTAMP(6)", from = 0, payload, priority = 5, state = "pending" } = rows
  const starts = Array.from({ length: Math.ceil(count / batch) }, (_, index) => index * batch)
  const text = (n: string) =>
    `CONCAT('{"n":', ${n}, ',"filler":"', REPEAT('x', GREATEST(0, ${payload - '{"n":,"filler":""}'.length} - LENGTH(${n}))), '"}')`
  const ended = state === "succeeded"
  return Effect.forEach(
    starts,
    (start) =>
      session.query(
        "INSERT INTO leasehold_jobs (queue, type, priority, state, due_at, first_due_at, enqueued_at, finished_at,"
          + " token, attempt, attempts_left, max_attempts, payload)"
          + ` WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < ${Math.min(batch, count - start)})`
          + ` SELECT /*+ SET_VAR(cte_max_recursion_depth = ${batch + 1}) */ '${rows.queue ?? queue}', '${rows.type ?? type}', ${priority},`
          + ` ${ended ? 2 : 0}, ${ended ? "NULL" : due}, ${due}, UTC_TIMESTAMP(6), ${ended ? "UTC_TIMESTAMP(6)" : "NULL"},`
          + ` ${ended ? 1 : 0}, ${ended ? 1 : 0}, ${ended ? 9 : 10}, 10, ${text(`n + ${from + start - 1}`)} FROM numbers`
      ),
    { discard: true }
  )
}
