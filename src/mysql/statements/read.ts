/**
 * Statements that read jobs. Those by id or key join the caller's transaction, so their texts are fixed and values bound.
 */
import type { JobFilter } from "../../JobStore.js"
import { stateNumbers } from "../JobRow.js"
import * as Literal from "../Literal.js"
import type { Tables } from "../Tables.js"

// Microseconds as text: past the year 2255 they exceed 2^53. `NOW()` and UNIX_TIMESTAMP would depend on the time zone (V1).
const time = (column: string) => `CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ${column}) AS CHAR) AS ${column}`

// As bytes, since the caller's connection may have a character set that lacks most characters: the server would answer `?`.
const bytes = (column: string) => `CAST(${column} AS BINARY) AS ${column}`

const columns =
  "CAST(id AS CHAR) AS id, queue, type, priority, state, token, attempt, attempts_left, max_attempts,"
  + ` cancel_requested, lease_owner, payload_version,`
  + ` ${["payload", "output", "error_code", "error_message"].map(bytes).join(", ")},`
  + ` ${["enqueued_at", "first_due_at", "due_at", "finished_at"].map(time).join(", ")},`
  + " CAST(CAST(attempts AS CHAR CHARACTER SET utf8mb4) AS BINARY) AS attempts"

// A cast, since comparing a number column with text would compare both as floating point (J10); to DECIMAL, since a cast of
// text to UNSIGNED is wrong above 2^63 (9.7.4: no row when run again, and errno 1292 in an UPDATE). By primary key all the same.
const byId = "WHERE id = CAST(? AS DECIMAL(20))"

/** One job by primary key; locks nothing. */
export const get = (tables: Tables): string => `SELECT ${columns} FROM ${tables.jobs} ${byId}`

/** One job by `jobs_idempotency`; locks nothing. Values: scope and key as hexadecimal digits. */
export const find = (tables: Tables): string =>
  `SELECT ${columns} FROM ${tables.jobs} FORCE INDEX (jobs_idempotency)`
  + ` WHERE scope = UNHEX(?) AND idempotency_key = UNHEX(?)`

const matches = (filter: JobFilter): string =>
  [
    ...(filter.queue === undefined ? [] : [` AND queue = ${Literal.name(filter.queue)}`]),
    ...(filter.type === undefined ? [] : [` AND type = ${Literal.name(filter.type)}`]),
    ...(filter.state === undefined ? [] : [` AND state = ${stateNumbers[filter.state]}`])
  ].join("")

/**
 * A page of jobs in the order of their ids. Walks the primary key from the cursor until enough match; locks nothing. The order
 * names the column by its table: `id` alone would be the text above, where 10 comes before 9.
 */
export const list = (tables: Tables, filter: JobFilter, after: string, limit: number): string =>
  `SELECT ${columns} FROM ${tables.jobs} FORCE INDEX (PRIMARY)`
  + ` WHERE id > ${Literal.digits(after)}${matches(filter)} ORDER BY ${tables.jobs}.id LIMIT ${Literal.integer(limit)}`

/** Reads the whole table once; locks nothing. */
export const counts = (tables: Tables): string =>
  `SELECT queue, state, CAST(COUNT(*) AS CHAR) AS count FROM ${tables.jobs} GROUP BY queue, state ORDER BY queue, state`

/** The names of paused queues. */
export const paused = (tables: Tables): string => `SELECT name FROM ${tables.queues} WHERE paused = 1 ORDER BY name`

/** The jobs that `retryAll` looks at next, with their queues, and which of them match. A plain read by primary key. */
export const walkRetryable = (tables: Tables, filter: JobFilter, after: string, limit: number): string =>
  `SELECT CAST(id AS CHAR) AS id, queue, (state IN (3, 4)${matches(filter)}) AS wanted`
  + ` FROM ${tables.jobs} FORCE INDEX (PRIMARY) WHERE id > ${Literal.digits(after)}`
  + ` ORDER BY ${tables.jobs}.id LIMIT ${Literal.integer(limit)}`
