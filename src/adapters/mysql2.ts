/**
 * Enqueue in a transaction of mysql2: `await connection.beginTransaction()` and what follows on that connection.
 *
 * @module
 */
import * as Executor from "./Executor.js"

/** A connection of `mysql2/promise`; one of `mysql2` has it as `connection.promise()`. */
export interface Connection {
  /** Sends a prepared statement; answers rows or a result, and fields. */
  execute(options: Statement): Promise<readonly [unknown, unknown]>
  /** Sends a statement as it is; answers the same. */
  query(options: Statement): Promise<readonly [unknown, unknown]>
}

/** A statement of the library. The caller's settings for rows stay out of it. */
export interface Statement {
  sql: string
  values: Array<string | null>
  rowsAsArray: boolean
  typeCast: boolean
}

const statement = (sql: string, values: Array<string | null>): Statement => ({
  sql,
  values,
  rowsAsArray: false,
  typeCast: true
})

/** A connection that has a transaction open. */
export const transaction = (connection: Connection): Executor.Executor =>
  Executor.make({
    execute: async (text, values) => (await connection.execute(statement(text, values)))[0],
    command: async (text) => (await connection.query(statement(text, [])))[0]
  })

/** A pool, or any connection outside of the transaction: for `Enqueuer.promise({ outside })`. */
export const outside: (pool: Connection) => Executor.Executor = transaction
