/**
 * Enqueue in a transaction of Kysely on its MySQL dialect: `db.transaction().execute(async (trx) => …)`.
 *
 * @module
 */
import { CompiledQuery, type QueryResult } from "kysely"
import * as Executor from "./Executor.js"

/** The `trx` of a transaction, or a `db`. */
export interface Handle {
  readonly isTransaction: boolean
  /** Sends one statement; answers what the library answers. */
  executeQuery(query: CompiledQuery<unknown>): Promise<QueryResult<unknown>>
}

/** The `trx` of `db.transaction().execute`, or that of `db.startTransaction()`. */
export const transaction = (trx: Handle): Executor.Executor =>
  Executor.make({
    execute: async (text, values) => {
      const { insertId, numAffectedRows, rows } = await trx.executeQuery(CompiledQuery.raw(text, values))
      return numAffectedRows === undefined ? rows : { affectedRows: numAffectedRows, insertId: insertId ?? 0 }
    },
    // A `db` is none, and might send each statement on another connection; a `trx` is asked for by the server too.
    isTransaction: trx.isTransaction ? undefined : false
  })

/** A `db`: for `Enqueuer.promise({ outside })`. */
export const outside: (db: Handle) => Executor.Executor = transaction
