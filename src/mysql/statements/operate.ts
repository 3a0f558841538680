/**
 * Statements of operators and callers on one job: cancel, retry; and pause. Cancel and retry join the caller's transaction.
 */
import type { JobId } from "../../JobRecord.js"
import * as Literal from "../Literal.js"
import type { Tables } from "../Tables.js"

/** Locks one job by primary key and reads its state and queue. Waits for whoever holds the row, for `innodb_lock_wait_timeout`. */
export const lockOne = (tables: Tables): string =>
  `SELECT state, token, cancel_requested, queue FROM ${tables.jobs} WHERE id = CAST(? AS DECIMAL(20)) FOR UPDATE`

/** Cancels a locked pending job. The token rises, since it is nobody's transition. Zero rows: it is not pending. */
export const cancelPending = (tables: Tables): string =>
  `UPDATE ${tables.jobs} SET state = 4, token = token + 1, cancel_requested = 1, due_at = NULL,`
  + ` finished_at = UTC_TIMESTAMP(6) WHERE id = CAST(? AS DECIMAL(20)) AND state = 0`

/** Leaves a request for the holder of a locked running job. The token stays, so that he can settle. */
export const requestCancel = (tables: Tables): string =>
  `UPDATE ${tables.jobs} SET cancel_requested = 1 WHERE id = CAST(? AS DECIMAL(20)) AND state = 1`

const renewed =
  "state = 0, token = token + 1, attempts_left = max_attempts, cancel_requested = 0, lease_owner = NULL,"
  + " due_at = UTC_TIMESTAMP(6), finished_at = NULL, output = NULL, error_code = NULL, error_message = NULL"

/** Brings a locked ended job back with its full budget, due now. Zero rows: it is neither dead nor canceled. */
export const retryOne = (tables: Tables): string =>
  `UPDATE ${tables.jobs} SET ${renewed} WHERE id = CAST(? AS DECIMAL(20)) AND state IN (3, 4)`

/** The same for many, by primary key. */
export const retryMany = (tables: Tables, ids: ReadonlyArray<JobId>): string =>
  `UPDATE ${tables.jobs} FORCE INDEX (PRIMARY) SET ${renewed}`
  + ` WHERE id IN (${Literal.sortedIds(ids)}) AND state IN (3, 4)`

/** Pauses or opens a queue. The row is the queue's own, and duplicates are the point: the last word counts. */
export const setPaused = (tables: Tables, queue: string, paused: boolean): string =>
  `INSERT INTO ${tables.queues} (name, paused, changed_at)`
  + ` VALUES (${Literal.name(queue)}, ${paused ? 1 : 0}, UTC_TIMESTAMP(6))`
  + ` ON DUPLICATE KEY UPDATE paused = ${paused ? 1 : 0}, changed_at = UTC_TIMESTAMP(6)`
