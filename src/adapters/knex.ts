/**
 * Enqueue in a transaction of Knex on mysql2: `knex.transaction(async (trx) => …)`.
 *
 * @module
 */
import * as Executor from "./Executor.js"

/** The `trx` of a transaction, or the `knex` of a configuration. */
export interface Handle {
  /** Sends one statement; answers what the library answers. */
  raw(text: string, bindings: Array<string | null>): PromiseLike<unknown>
}

/** The `trx` of `knex.transaction`. */
export const transaction = (trx: Handle): Executor.Executor =>
  Executor.make({
    // mysql2 answers [rows or header, fields].
    execute: async (text, values) => {
      const result = await trx.raw(text, values)
      return Array.isArray(result) ? result[0] : result
    }
  })

/** A `knex` that is no transaction: for `Enqueuer.promise({ outside })`. */
export const outside: (knex: Handle) => Executor.Executor = transaction
