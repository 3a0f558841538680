/**
 * Statements of the reaper, the cleaner and the record of refusals. Both walk the primary key from a cursor, a few hundred
 * rows at a time, so their locks and their undo never grow with the table. Orders name the column by its table: `id` alone
 * would be the text that is selected under that name, where 10 comes before 9.
 */
import type { Duration } from "effect"
import type { JobId } from "../../JobRecord.js"
import type { Refusal } from "../../JobStore.js"
import * as Literal from "../Literal.js"
import type { Tables } from "../Tables.js"

const vanished = "state = 1 AND due_at <= UTC_TIMESTAMP(6) AND (attempts_left = 0 OR cancel_requested = 1)"

/** The next ids of the walk, and which of them look as if they had to be ended. A plain read. */
export const walkVanished = (tables: Tables, after: string, limit: number): string =>
  `SELECT CAST(id AS CHAR) AS id, (${vanished}) AS wanted FROM ${tables.jobs} FORCE INDEX (PRIMARY)`
  + ` WHERE id > ${Literal.digits(after)} ORDER BY ${tables.jobs}.id LIMIT ${Literal.integer(limit)}`

/** Locks those of the ids that still have to be ended; rows that somebody holds are left to him or to the next round. */
export const lockVanished = (tables: Tables, ids: ReadonlyArray<JobId>): string =>
  `SELECT CAST(id AS CHAR) AS id, queue, type, cancel_requested FROM ${tables.jobs} FORCE INDEX (PRIMARY)`
  + ` WHERE id IN (${Literal.sortedIds(ids)}) AND ${vanished} ORDER BY ${tables.jobs}.id FOR UPDATE SKIP LOCKED`

export const leaseExpiredMessage = "The worker vanished: its lease ended without an outcome, and no attempts are left"

/**
 * Ends locked jobs of vanished holders: canceled where that was asked for, else dead with code `lease_expired`. By primary
 * key. The token rises, so a holder that comes back is refused (law 1). The state is assigned last, since nothing reads it.
 */
export const endVanished = (tables: Tables, ids: ReadonlyArray<JobId>): string =>
  `UPDATE ${tables.jobs} FORCE INDEX (PRIMARY) SET`
  + ` attempts = JSON_SET(attempts, '$[last].e', CAST(UTC_TIMESTAMP(6) AS CHAR), '$[last].o', 'reaped'),`
  + ` error_code = IF(cancel_requested = 1, error_code, 'lease_expired'),`
  + ` error_message = IF(cancel_requested = 1, error_message, '${leaseExpiredMessage}'),`
  + ` token = token + 1, due_at = NULL, lease_owner = NULL, finished_at = UTC_TIMESTAMP(6),`
  + ` state = IF(cancel_requested = 1, 4, 3) WHERE id IN (${Literal.sortedIds(ids)})`

type Retention = { readonly [State in "succeeded" | "dead" | "canceled"]?: Duration.Duration }

const stateNumber = { succeeded: 2, dead: 3, canceled: 4 } as const

// `finished_at + retention < now`, written so that the subtraction can not leave the range of dates.
const outlived = (retention: Retention): string => {
  const rules = (["succeeded", "dead", "canceled"] as const).flatMap((state) => {
    const kept = retention[state]
    return kept === undefined
      ? []
      : [
          `state = ${stateNumber[state]} AND TIMESTAMPDIFF(MICROSECOND, finished_at, UTC_TIMESTAMP(6)) > ${Literal.microseconds(kept)}`
        ]
  })
  return rules.length === 0 ? "FALSE" : `(${rules.join(" OR ")})`
}

/** The next ids of the walk, and which of them have outlived their retention. A plain read. */
export const walkOutlived = (tables: Tables, retention: Retention, after: string, limit: number): string =>
  `SELECT CAST(id AS CHAR) AS id, ${outlived(retention)} AS wanted FROM ${tables.jobs} FORCE INDEX (PRIMARY)`
  + ` WHERE id > ${Literal.digits(after)} ORDER BY ${tables.jobs}.id LIMIT ${Literal.integer(limit)}`

/** Locks those of the ids that are still outlived; a row that somebody holds waits for the next walk. */
export const lockOutlived = (tables: Tables, retention: Retention, ids: ReadonlyArray<JobId>): string =>
  `SELECT CAST(id AS CHAR) AS id FROM ${tables.jobs} FORCE INDEX (PRIMARY)`
  + ` WHERE id IN (${Literal.sortedIds(ids)}) AND ${outlived(retention)} ORDER BY ${tables.jobs}.id FOR UPDATE SKIP LOCKED`

// As joins, which look up each id whatever the statistics say. A DELETE with a list takes no index hint, and one for several
// tables does not heed it: small tables, and large ones that the statistics call small, were read as a whole, and the cleaner
// waited for every row in them that somebody held (9.7.4).
const named = (ids: ReadonlyArray<JobId>): string =>
  `JSON_TABLE('[${Literal.sortedIds(ids)}]', '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$' ERROR ON ERROR)) AS item`

/** Deletes locked jobs by primary key. */
export const deleteJobs = (tables: Tables, ids: ReadonlyArray<JobId>): string =>
  `DELETE jobs FROM ${named(ids)} STRAIGHT_JOIN ${tables.jobs} AS jobs FORCE INDEX (PRIMARY) ON jobs.id = item.id`

/** Deletes what is known of refused writes of deleted jobs, by index `refusals_job`. */
export const deleteRefusals = (tables: Tables, ids: ReadonlyArray<JobId>): string =>
  `DELETE refusals FROM ${named(ids)}`
  + ` STRAIGHT_JOIN ${tables.refusals} AS refusals FORCE INDEX (refusals_job) ON refusals.job_id = item.id`

/** Adds one refusal unless the job has 20 already, by index `refusals_job`, or has been deleted, since nothing would delete that. */
export const recordRefusal = (tables: Tables, { lease, verb }: Refusal): string =>
  `INSERT INTO ${tables.refusals} (job_id, token, verb, worker, refused_at)`
  + ` SELECT ${Literal.digits(lease.jobId)}, ${Literal.integer(lease.token)}, ${Literal.name(verb)},`
  + ` ${Literal.name(lease.worker)}, UTC_TIMESTAMP(6) FROM DUAL`
  + ` WHERE (SELECT COUNT(*) FROM ${tables.refusals} WHERE job_id = ${Literal.digits(lease.jobId)}) < 20`
  + ` AND EXISTS (SELECT 1 FROM ${tables.jobs} WHERE id = ${Literal.digits(lease.jobId)})`

/** The refusals of a job, oldest first, by index `refusals_job`. */
export const refusals = (tables: Tables, id: JobId): string =>
  `SELECT token, verb, worker, CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', refused_at) AS CHAR) AS refused_at`
  + ` FROM ${tables.refusals} WHERE job_id = ${Literal.digits(id)} ORDER BY id`
