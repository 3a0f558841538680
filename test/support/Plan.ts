/**
 * Measures what a statement does to the server: its plan, the rows that it reads, and the record locks that it leaves.
 */
import { Effect } from "effect"
import type { Tables } from "../../src/mysql/Tables.js"
import type { Outside } from "./Mysql.js"

/** The tables of the store that the suites share. */
export const tables: Tables = {
  prefix: "leasehold_",
  jobs: "leasehold_jobs",
  queues: "leasehold_queues",
  refusals: "leasehold_refusals",
  migrations: "leasehold_migrations"
}

/** How many rows lie around what a test looks at: `usual`, and as many as LEASEHOLD_PLAN_ROWS says where it is set. */
export const rowsAround = (usual: number): number => Number(process.env["LEASEHOLD_PLAN_ROWS"] ?? usual)

/** Whether the tables are as large as LEASEHOLD_PLAN_ROWS says. */
export const isFullSize = process.env["LEASEHOLD_PLAN_ROWS"] !== undefined

/** Milliseconds that a test may take which fills its tables first. */
export const patience = isFullSize ? 840_000 : 180_000

/** Starts an `INSERT … SELECT` of `count` rows, whose number `n` the expressions behind it may use. */
export const numbers = (count: number): string =>
  `WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < ${count})`
  + " SELECT /*+ SET_VAR(cte_max_recursion_depth = 25000) */"

/** As many rows as are written in one statement. */
const chunk = 20_000

/** Adds `count` ended jobs, 20,000 in a statement: `values` follow `columns`, and may use `n`. */
export const seedMany = ({ query }: Outside, count: number, columns: string, values: string): Effect.Effect<void> =>
  Effect.forEach(
    Array.from({ length: Math.ceil(count / chunk) }, (_, index) => Math.min(chunk, count - index * chunk)),
    (rows) => query(`INSERT INTO ${tables.jobs} (${columns}) ${numbers(rows)} ${values} FROM numbers`),
    { discard: true }
  )

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
const names = new Set<unknown>(["jobs", "refusals", tables.jobs, tables.queues, tables.refusals, tables.migrations])

/**
 * Runs the statement in a transaction of its own, and rolls back. What it reads is told by the session's counters before and
 * after it: FLUSH STATUS would set back those of all sessions, of the suite beside this one, too.
 */
export const measure = ({ query }: Outside, { isolation, statement, values = [] }: Asked): Effect.Effect<Measured> =>
  Effect.gen(function* () {
    const counters = Effect.map(query("SHOW SESSION STATUS LIKE 'Handler_read%'"), (all) =>
      all.reduce((sum, row) => sum + Number(row["Value"]), 0)
    )
    yield* query(`SET SESSION transaction_isolation = '${isolation}', time_zone = '+00:00'`)
    const plan = yield* query(`EXPLAIN FORMAT=TRADITIONAL ${statement}`, values)
    const variables = values.map((_, index) => `@value_${index}`)
    if (values.length > 0) {
      yield* query("PREPARE measured FROM ?", [statement])
      yield* query(`SET ${variables.map((name) => `${name} = ?`).join(", ")}`, values)
    }
    yield* query("START TRANSACTION")
    const zero = yield* counters
    const before = yield* counters
    // Bound as the library binds them: the server plans a prepared statement before it knows its values.
    const rows = yield* query(values.length > 0 ? `EXECUTE measured USING ${variables.join(", ")}` : statement)
    const after = yield* counters
    const locks = yield* query(
      "SELECT index_name AS name, COUNT(*) AS locks FROM performance_schema.data_locks"
        + " WHERE object_schema = DATABASE() AND lock_type = 'RECORD' AND thread_id = PS_CURRENT_THREAD_ID() GROUP BY 1"
    )
    yield* query("ROLLBACK")
    // A step that inserts reaches no rows, and is explained as if it read all of them.
    const steps = plan.filter((step) => names.has(step["table"]) && step["select_type"] !== "INSERT")
    return {
      rows: rows.length,
      plans: [
        ...new Set(steps.map((step) => `${step["type"]} ${step["key"]} ${String(step["Extra"]).includes("filesort")}`))
      ],
      // To ask for the counters counts as reading, too.
      read: after - before - (before - zero),
      locks: Object.fromEntries(locks.map((row) => [String(row["name"]), Number(row["locks"])]))
    }
  })

/** What the incident of wrong statistics looks like: the optimizer believes that the table has so many rows. */
export const freezeStatistics = ({ query }: Outside, rows: number) =>
  query(
    `UPDATE mysql.innodb_table_stats SET n_rows = ${rows} WHERE database_name = DATABASE()`
      + " AND table_name = 'leasehold_jobs'; FLUSH TABLES leasehold_jobs"
  )
