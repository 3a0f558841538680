/**
 * Enqueue in a transaction of Drizzle on mysql2: `db.transaction(async (tx) => …)`.
 *
 * @module
 */
import { type SQL, sql } from "drizzle-orm"
import * as Executor from "./Executor.js"

/** The `tx` of `db.transaction`, or a `db`. */
export interface Handle {
  /** Sends one statement; answers what the library answers. */
  execute(query: SQL): Promise<unknown>
}

/** The `tx` of `db.transaction`. */
export const transaction = (tx: Handle): Executor.Executor =>
  Executor.make({
    // mysql2 answers [rows or header, fields].
    execute: async (text, values) => firstOf(await tx.execute(queryOf(text, values))),
    causeOf: (error) => Executor.memberOr(error, "cause")
  })

/** A `db`: for `Enqueuer.promise({ outside })`. */
export const outside: (db: Handle) => Executor.Executor = transaction

/** The statement's own text, with a parameter for each placeholder. No text of the library has a question mark otherwise. */
const queryOf = (text: string, values: ReadonlyArray<string | null>): SQL =>
  sql.join(
    text.split("?").flatMap((part, index) => {
      const value = values[index - 1]
      return index === 0 ? [sql.raw(part)] : [sql`${sql.param(value ?? null)}`, sql.raw(part)]
    })
  )

const firstOf = (result: unknown): unknown => (Array.isArray(result) ? result[0] : result)
