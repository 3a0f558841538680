/**
 * Statements of the doctor. None of them changes anything: writes match no row, locks are rolled back by whoever takes them.
 */
import * as Literal from "../Literal.js"
import type { Tables } from "../Tables.js"

/** Settings of the server by name. One that this release of MySQL does not have is left out of the answer. */
export const variables = (names: ReadonlyArray<string>): string =>
  `SHOW GLOBAL VARIABLES WHERE Variable_name IN (${names.map(Literal.text).join(", ")})`

export const status = (names: ReadonlyArray<string>): string =>
  `SHOW GLOBAL STATUS WHERE Variable_name IN (${names.map(Literal.text).join(", ")})`

/** Rows that this session has read so far, by kind of read. */
export const reads = "SHOW SESSION STATUS LIKE 'Handler_read%'"

/** The database's time, as microseconds. */
export const now = "SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS CHAR) AS now"

/**
 * The next queue by name that has jobs, or NULL: one look into `jobs_claim`. MIN is worked out from the index itself. DISTINCT and
 * ORDER BY … LIMIT 1 are as good only while the statistics are right: with frozen ones both read the whole index (9.7.4).
 */
export const nextQueue = (tables: Tables, after: string | undefined): string =>
  `SELECT MIN(queue) AS queue FROM ${tables.jobs} FORCE INDEX (jobs_claim)`
  + (after === undefined ? "" : ` WHERE queue > ${Literal.name(after)}`)

/** The types among the first due jobs of each priority level, by `jobs_claim`; locks nothing. */
export const dueTypes = (tables: Tables, queue: string): string =>
  Array.from(
    { length: 10 },
    (_, priority) =>
      `(SELECT type FROM ${tables.jobs} FORCE INDEX (jobs_claim) WHERE queue = ${Literal.name(queue)}`
      + ` AND priority = ${priority} AND due_at <= UTC_TIMESTAMP(6) LIMIT 100)`
  ).join(" UNION ")

export const explain = (statement: string): string => `EXPLAIN FORMAT=TRADITIONAL ${statement}`

/** The row locks of this session on jobs, by index. Needs SELECT on performance_schema. */
export const locks = (tables: Tables): string =>
  "SELECT index_name AS lock_index, COUNT(*) AS locks FROM performance_schema.data_locks"
  + ` WHERE object_schema = DATABASE() AND object_name = '${tables.jobs}' AND lock_type = 'RECORD'`
  + " AND thread_id = (SELECT thread_id FROM performance_schema.threads WHERE processlist_id = CONNECTION_ID())"
  + " GROUP BY index_name"

/** Transactions that have been open for a minute. Needs PROCESS. */
export const oldTransactions =
  "SELECT COUNT(*) AS transactions, CAST(MAX(TIMESTAMPDIFF(SECOND, trx_started, NOW())) AS CHAR) AS seconds"
  + " FROM information_schema.innodb_trx WHERE trx_started < NOW() - INTERVAL 1 MINUTE"

/** A definition that no table can have. The server checks rights before it looks at definitions, and names before these. */
const impossible = "(twice INT, twice INT)"

/**
 * Statements that change nothing and need a right each: the server checks rights before it looks for tables, rows and
 * definitions. Those that would create a table end in error 1050 or 1060 for who may do it.
 */
export const tries = (tables: Tables) => ({
  "SELECT on jobs": `SELECT id FROM ${tables.jobs} WHERE FALSE`,
  "INSERT on jobs":
    `INSERT INTO ${tables.jobs} (queue, type, enqueued_at, first_due_at)`
    + " SELECT '', '', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) FROM DUAL WHERE FALSE",
  "UPDATE on jobs": `UPDATE ${tables.jobs} SET priority = 5 WHERE FALSE`,
  "DELETE on jobs": `DELETE FROM ${tables.jobs} WHERE FALSE`,
  "SELECT on queues": `SELECT name FROM ${tables.queues} WHERE FALSE`,
  "INSERT on queues": `INSERT INTO ${tables.queues} (name, paused, changed_at) SELECT '', 0, UTC_TIMESTAMP(6) FROM DUAL WHERE FALSE`,
  "UPDATE on queues": `UPDATE ${tables.queues} SET paused = 0 WHERE FALSE`,
  "SELECT on refusals": `SELECT id FROM ${tables.refusals} WHERE FALSE`,
  "INSERT on refusals":
    `INSERT INTO ${tables.refusals} (job_id, token, verb, worker, refused_at)`
    + " SELECT 0, 0, '', '', UTC_TIMESTAMP(6) FROM DUAL WHERE FALSE",
  "DELETE on refusals": `DELETE FROM ${tables.refusals} WHERE FALSE`,
  "SELECT on migrations": `SELECT step FROM ${tables.migrations} WHERE FALSE`,
  "UPDATE on migrations": `UPDATE ${tables.migrations} SET step = 1 WHERE FALSE`,
  "INSERT on migrations":
    `INSERT INTO ${tables.migrations} (step, name, checksum, started_at)`
    + " SELECT 0, '', '', UTC_TIMESTAMP(6) FROM DUAL WHERE FALSE",
  "DELETE on migrations": `DELETE FROM ${tables.migrations} WHERE FALSE`,
  "CREATE on jobs": `CREATE TABLE ${tables.jobs} ${impossible}`,
  "CREATE on queues": `CREATE TABLE ${tables.queues} ${impossible}`,
  "CREATE on refusals": `CREATE TABLE ${tables.refusals} ${impossible}`,
  "CREATE on migrations": `CREATE TABLE ${tables.migrations} ${impossible}`,
  "CREATE TEMPORARY TABLES on the database": `CREATE TEMPORARY TABLE _doctor_ ${impossible}`
})
