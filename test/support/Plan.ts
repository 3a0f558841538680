/**
 * Measures what a statement does to the server: its plan, the rows that it reads, and the record locks that it leaves.
 */
import { Effect } from "effect"
import type { Outside } from "./Mysql.js"

export const isolations = ["READ-COMMITTED", "REPEATABLE-READ"] as const
export type Isolation = (typeof isolations)[number]

export interface Measured {
  /** Rows that it answered; 0 for one that writes. */
  readonly rows: number
  /** For each step on the library's tables: how it reaches the rows, the index, and whether it sorts them. */
  readonly plans: ReadonlyArray<string>
  /** Rows and index entries that the engine was asked for. */
  readonly read: number
  /** Record locks by index. */
  readonly locks: { readonly [index: string]: number }
}

export interface Asked {
  readonly statement: string
  readonly values?: ReadonlyArray<unknown>
  readonly isolation: Isolation
}

/** The library's tables under the names by which its statements call them. */
const tables = new Set(["jobs", "leasehold_jobs", "leasehold_refusals"])

/** Runs the statement in a transaction of its own, and rolls back. */
export const measure = ({ query }: Outside, { isolation, statement, values = [] }: Asked): Effect.Effect<Measured> =>
  Effect.gen(function* () {
    yield* query(`SET SESSION transaction_isolation = '${isolation}', time_zone = '+00:00'`)
    const plan = yield* query(`EXPLAIN FORMAT=TRADITIONAL ${statement}`, values)
    yield* query("FLUSH STATUS")
    yield* query("START TRANSACTION")
    const rows = yield* query(statement, values)
    const reads = yield* query("SHOW SESSION STATUS LIKE 'Handler_read%'")
    const locks = yield* query(
      "SELECT index_name AS name, COUNT(*) AS locks FROM performance_schema.data_locks"
        + " WHERE object_schema = DATABASE() AND lock_type = 'RECORD' AND thread_id = PS_CURRENT_THREAD_ID() GROUP BY 1"
    )
    yield* query("ROLLBACK")
    const steps = plan.filter(({ table }) => tables.has(String(table)))
    return {
      rows: rows.length,
      plans: [
        ...new Set(steps.map((step) => `${step["type"]} ${step["key"]} ${String(step["Extra"]).includes("filesort")}`))
      ],
      read: reads.reduce((sum, row) => sum + Number(row["Value"]), 0),
      locks: Object.fromEntries(locks.map((row) => [String(row["name"]), Number(row["locks"])]))
    }
  })

/** What the incident of wrong statistics looks like: the optimizer believes that the table has so many rows. */
export const freezeStatistics = ({ query }: Outside, rows: number) =>
  query(
    `UPDATE mysql.innodb_table_stats SET n_rows = ${rows} WHERE database_name = DATABASE()`
      + " AND table_name = 'leasehold_jobs'; FLUSH TABLES leasehold_jobs"
  )
