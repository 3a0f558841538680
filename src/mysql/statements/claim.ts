/**
 * Statements of the claim: look which priority levels have due jobs, lock some, and take them.
 *
 * All use `jobs_claim (queue, priority, due_at)`, which ends in the primary key, at READ COMMITTED. Measured on MySQL 9.7.4,
 * 2026-11-29 (SCHEMA): FORCE INDEX alone is not enough with wrong statistics, so columns outside of the index are read and
 * index condition pushdown is off; it also made a level without jobs four times as dear.
 */
import { Duration } from "effect"
import { ledgerLength } from "../../Attempt.js"
import type { JobId } from "../../JobRecord.js"
import type { ClaimRequest, NewJob } from "../../JobStore.js"
import * as Literal from "../Literal.js"
import type { Value } from "../Session.js"
import type { Tables } from "../Tables.js"

/** A place in the index of one priority level: the row with this due time (as exact text) and id, or what comes after. */
export interface Position {
  readonly dueAt: string
  readonly id: string
}

/** A level to look at, from a position on or from its start. */
export interface Level {
  readonly priority: number
  readonly from: Position | undefined
}

/** Rows of a look that say what time it is, that the queue is paused, and that the server may take no writes. */
export const clockRow = 255
export const pausedRow = 254
export const readOnlyRow = 253

const dueText = (position: Position): string => {
  if (!/^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}$/.test(position.dueAt)) {
    throw new Error("A due time that was not read from the table reached a statement")
  }
  return `TIMESTAMP'${position.dueAt}'`
}

const dueInLevel = ({ from, priority }: Level): string =>
  from === undefined
    ? `(jobs.priority = ${Literal.integer(priority)} AND jobs.due_at <= UTC_TIMESTAMP(6))`
    : `(jobs.priority = ${Literal.integer(priority)} AND (jobs.due_at > ${dueText(from)} AND jobs.due_at <= UTC_TIMESTAMP(6)`
      + ` OR jobs.due_at = ${dueText(from)} AND jobs.id >= ${Literal.digits(from.id)}))`

const ofTypes = (types: ClaimRequest["types"]): string =>
  `(${types
    .map(
      ({ type, version }) => `jobs.type = ${Literal.name(type)} AND jobs.payload_version <= ${Literal.integer(version)}`
    )
    .join(" OR ")})`

/**
 * The first due job of each level, whether the queue is paused or the server read-only, and a time two seconds before now: one
 * plain read that locks nothing. Each level costs one row, and the rows in front that are of other types or are marked as deleted.
 */
export const look = (tables: Tables, request: ClaimRequest, levels: ReadonlyArray<Level>): string =>
  [
    ...levels.map(
      (level) =>
        `(SELECT /*+ NO_ICP(jobs) */ jobs.priority AS priority, CAST(jobs.due_at AS CHAR) AS due_at, CAST(jobs.id AS CHAR) AS id`
        + ` FROM ${tables.jobs} AS jobs FORCE INDEX (jobs_claim)`
        + ` WHERE jobs.queue = ${Literal.name(request.queue)} AND ${dueInLevel(level)} AND ${ofTypes(request.types)}`
        + ` ORDER BY jobs.due_at, jobs.id LIMIT 1)`
    ),
    `SELECT ${pausedRow}, '', '' FROM ${tables.queues} WHERE name = ${Literal.name(request.queue)} AND paused = 1`,
    `SELECT ${readOnlyRow}, '', '' FROM DUAL WHERE @@GLOBAL.read_only = 1 OR @@GLOBAL.innodb_read_only = 1`,
    `SELECT ${clockRow}, CAST(UTC_TIMESTAMP(6) - INTERVAL 2 SECOND AS CHAR), '0'`
  ].join("\nUNION ALL ")

/**
 * A write that changes nothing. A server that is read-only for this user refuses it with errno 1290 or 1836; one on which the
 * user may write all the same does not.
 */
export const tryWrite = (tables: Tables): string => `UPDATE ${tables.jobs} SET token = token WHERE id = 0`

/** One row where the queue is paused. */
export const paused = (tables: Tables, queue: string): string =>
  `SELECT 1 FROM ${tables.queues} WHERE name = ${Literal.name(queue)} AND paused = 1`

/**
 * Locks up to `limit` due jobs of the live levels, in order: new, retried and expired ones alike. Locks those rows in both
 * indexes and no others: rows of other types are let go of at READ COMMITTED, rows that somebody holds are skipped. Zero
 * rows: nothing is due from these positions on.
 */
export const lock = (tables: Tables, request: ClaimRequest, levels: ReadonlyArray<Level>): string =>
  `SELECT /*+ NO_ICP(jobs) */ CAST(jobs.id AS CHAR) AS id, jobs.type, jobs.priority, jobs.state, jobs.token, jobs.attempt,`
  + ` jobs.attempts_left, jobs.max_attempts, jobs.cancel_requested, jobs.payload, jobs.payload_version, jobs.trace_context,`
  + ` CAST(jobs.due_at AS CHAR) AS due_at,`
  + ` GREATEST(0, TIMESTAMPDIFF(MICROSECOND, jobs.due_at, UTC_TIMESTAMP(6))) AS waited`
  + ` FROM ${tables.jobs} AS jobs FORCE INDEX (jobs_claim)`
  + ` WHERE jobs.queue = ${Literal.name(request.queue)} AND (${levels.map(dueInLevel).join(" OR ")})`
  + ` AND ${ofTypes(request.types)}`
  + ` ORDER BY jobs.queue, jobs.priority, jobs.due_at, jobs.id LIMIT ${Literal.integer(request.limit)}`
  + ` FOR UPDATE SKIP LOCKED`

/**
 * Gives locked jobs to a worker: lease, attempt, budget and ledger in one write (law 4). By primary key; the rows are locked
 * already. `expired`: some of them had a holder, whose ledger entry is closed. Assignments are evaluated in order, so the
 * ledger is written before the columns that it reads change.
 */
export const take = (tables: Tables, request: ClaimRequest, ids: ReadonlyArray<JobId>, expired: boolean): string => {
  const closed = expired
    ? "IF(state = 1, JSON_SET(attempts, '$[last].e', CAST(UTC_TIMESTAMP(6) AS CHAR), '$[last].o', 'expired'), attempts)"
    : "attempts"
  return (
    `UPDATE ${tables.jobs} FORCE INDEX (PRIMARY) SET`
    + ` attempts = JSON_ARRAY_APPEND(`
    + `IF(JSON_LENGTH(attempts) >= ${ledgerLength}, JSON_REMOVE(${closed}, '$[0]'), ${closed}), '$',`
    + ` JSON_OBJECT('n', attempt + 1, 't', token + 1, 'w', ${Literal.name(request.worker)},`
    + ` 's', CAST(UTC_TIMESTAMP(6) AS CHAR))),`
    + ` token = token + 1, attempt = attempt + 1, attempts_left = IF(attempts_left > 0, attempts_left - 1, attempts_left),`
    + ` state = 1, lease_owner = ${Literal.name(request.worker)},`
    + ` due_at = UTC_TIMESTAMP(6) + ${Literal.interval(request.lease)}`
    + ` WHERE id IN (${Literal.sortedIds(ids)})`
  )
}

/**
 * Gives one job to a worker, by primary key, where it is as it was added, due, and locked by nobody, and its queue is not paused; its
 * count of rows says whether it did: a row that this worker has taken before looks just the same. All that a claim promises in one
 * statement; one text, to be prepared, which takes a third less time than this text and a read of the row (2026-11-30).
 * Within an UPDATE the row of the queue is locked for sharing: where somebody changes it, the statement fails (3572) and waits for nobody.
 */
export const takeLone = (tables: Tables): string =>
  `UPDATE /*+ NO_MERGE(added) */ (SELECT jobs.id AS added_id FROM ${tables.jobs} AS jobs FORCE INDEX (PRIMARY)`
  + ` WHERE jobs.id = ${Literal.boundNumber} AND jobs.queue = ? AND jobs.type = ? AND jobs.payload_version = ${Literal.boundNumber}`
  + ` AND jobs.state = 0 AND jobs.token = 0 AND jobs.cancel_requested = 0 AND NOT (jobs.attempts_left <=> 0)`
  + ` AND jobs.due_at <= UTC_TIMESTAMP(6)`
  + ` AND NOT EXISTS (SELECT 1 FROM ${tables.queues} WHERE name = ? AND paused = 1 FOR SHARE NOWAIT) FOR UPDATE OF jobs SKIP LOCKED) AS added`
  + ` STRAIGHT_JOIN ${tables.jobs} AS jobs FORCE INDEX (PRIMARY) ON jobs.id = added.added_id`
  + ` SET jobs.token = 1, jobs.attempt = 1, jobs.state = 1, jobs.lease_owner = ?,`
  + ` jobs.attempts_left = jobs.attempts_left - 1, jobs.due_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND,`
  + ` jobs.attempts = JSON_ARRAY(JSON_OBJECT('n', 1, 't', 1, 'w', ?, 's', CAST(UTC_TIMESTAMP(6) AS CHAR)))`

/** The values of {@link takeLone}. */
export const loneValues = (
  { lease, worker }: ClaimRequest,
  { id, job }: { readonly id: JobId; readonly job: NewJob }
): ReadonlyArray<Value> => [
  id,
  job.queue,
  job.type,
  String(job.payloadVersion),
  job.queue,
  worker,
  Literal.microseconds(lease),
  worker
]

/** How long a look that found nothing of ours may count on what it saw: transactions that commit later than this wait for a full look. */
export const commitMargin = Duration.seconds(2)
