/**
 * What the server knows about the sessions of one test's database; other suites use the same server.
 */
import { type Duration, Effect } from "effect"
import { Database } from "./Mysql.js"
import { until } from "./Until.js"

const numberFrom = (text: string) =>
  Effect.flatMap(Database, ({ query }) => Effect.map(query(text), ([row]) => Number(row?.["number"])))

/** Deadlocks that sessions on this database have met so far, those that ended not counted. */
export const deadlocks = numberFrom(
  "SELECT COALESCE(SUM(sum_error_raised), 0) AS number FROM performance_schema.events_errors_summary_by_thread_by_error"
    + " JOIN performance_schema.threads USING (thread_id) WHERE error_number = 1213 AND processlist_db = DATABASE()"
)

/** Sessions on this database, the test's own one too. */
export const sessions = numberFrom(
  "SELECT COUNT(*) AS number FROM performance_schema.processlist WHERE db = DATABASE()"
)

/**
 * Transactions that are open on this database, the test's own one not counted. The server answers from what it has looked up before,
 * until nobody has asked for a tenth of a second.
 */
export const openTransactions = Effect.delay(
  numberFrom(
    "SELECT COUNT(*) AS number FROM information_schema.innodb_trx JOIN performance_schema.processlist AS p"
      + " ON p.id = trx_mysql_thread_id WHERE db = DATABASE() AND p.id <> CONNECTION_ID()"
  ),
  "150 millis"
)

/** A verb that took longer has waited for a lock, since a statement of the library does so for three seconds; milliseconds. */
export const lockWait = 2_500

/** Waits until so many requests for row locks of this database wait for somebody else's. */
export const lockWaits = (count: number, within?: Duration.DurationInput) =>
  until(
    numberFrom(
      "SELECT COUNT(*) AS number FROM performance_schema.data_lock_waits JOIN performance_schema.data_locks"
        + " ON engine_lock_id = requesting_engine_lock_id WHERE object_schema = DATABASE()"
    ),
    (waiting) => waiting >= count,
    within
  )
