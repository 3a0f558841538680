/**
 * The application's own table. Nothing in here knows of jobs, but that an order remembers which one exports it.
 */
import { SqlClient, type SqlError } from "@effect/sql"
import { Data, Effect } from "effect"

export interface Order {
  readonly id: number
  readonly item: string
  readonly status: "placed" | "exported"
  /** The id of the job that exports it, as decimal text. */
  readonly job: string
  /** The database's time when the order was read, in microseconds since 1970. */
  readonly readAt: number
}

/** There is a table `orders` that is not this demo's. */
export class ForeignTable extends Data.TaggedError("ForeignTable")<{}> {
  override get message() {
    return 'The database has a table "orders" that this demo did not make. Give it a database of its own with --url.'
  }
}

const comment = "Orders of the Leasehold demo"

export class Orders extends Effect.Service<Orders>()("demo/Orders", {
  effect: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    const insert = (item: string): Effect.Effect<number, SqlError.SqlError> =>
      Effect.map(
        // `insertId` is what the driver answers beside the rows, which an INSERT has none of.
        sql`INSERT INTO orders (item, placed_at) VALUES (${item}, UTC_TIMESTAMP(6))`.raw,
        (answer) => (answer as { readonly insertId: number }).insertId
      )

    const rememberJob = (order: number, job: string) => sql`UPDATE orders SET export_job = ${job} WHERE id = ${order}`

    /**
     * The whole effect of an export, as one conditional update. However often it is repeated, by however many workers, the
     * order is exported once: only the first finds the status `placed`.
     */
    const markExported = (order: number): Effect.Effect<"exported" | "was exported" | "missing", SqlError.SqlError> =>
      Effect.gen(function* () {
        const answer = yield* sql`
          UPDATE orders SET status = 'exported', exports = exports + 1, exported_at = UTC_TIMESTAMP(6)
          WHERE id = ${order} AND status = 'placed'`.raw
        if ((answer as { readonly affectedRows: number }).affectedRows === 1) return "exported"
        const found = yield* sql`SELECT id FROM orders WHERE id = ${order}`
        return found.length === 1 ? "was exported" : "missing"
      })

    /** All orders with an id of `from` or more. */
    const list = (from: number): Effect.Effect<ReadonlyArray<Order>, SqlError.SqlError> =>
      sql<Order>`
        SELECT id, item, status, CAST(export_job AS CHAR) AS job,
          TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS readAt
        FROM orders WHERE id >= ${from} AND export_job IS NOT NULL ORDER BY id`

    /** Makes the table, where it is not there yet. */
    const prepare: Effect.Effect<void, SqlError.SqlError | ForeignTable> = Effect.gen(function* () {
      yield* sql`
        CREATE TABLE IF NOT EXISTS orders (
          id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
          item VARCHAR(64) NOT NULL,
          status ENUM('placed', 'exported') NOT NULL DEFAULT 'placed',
          export_job BIGINT UNSIGNED NULL,
          exports INT UNSIGNED NOT NULL DEFAULT 0,
          placed_at DATETIME(6) NOT NULL,
          exported_at DATETIME(6) NULL
        ) ENGINE = InnoDB COMMENT = ${sql.literal(`'${comment}'`)}`
      const [table] = yield* sql<{ readonly comment: string }>`
        SELECT table_comment AS comment FROM information_schema.tables
        WHERE table_schema = DATABASE() AND table_name = 'orders'`
      if (table?.comment !== comment) return yield* new ForeignTable()
    })

    return { insert, rememberJob, markExported, list, prepare } as const
  })
}) {}
