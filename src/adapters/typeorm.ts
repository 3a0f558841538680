/**
 * Enqueue in a transaction of TypeORM on its `mysql` driver: `dataSource.transaction(async (manager) => …)`.
 *
 * @module
 */
import * as Executor from "./Executor.js"

/** The `manager` of a transaction, a `queryRunner` that has begun one, or a `dataSource`. */
export interface Handle {
  /** Sends one statement; answers what the library answers. */
  query(text: string, parameters: Array<string | null>): Promise<unknown>
}

/** The `manager` of `dataSource.transaction`, or a `queryRunner` after `startTransaction`. */
export const transaction = (manager: Handle): Executor.Executor =>
  Executor.make({
    execute: (text, values) => manager.query(text, values),
    causeOf: (error) => Executor.memberOr(error, "driverError")
  })

/** A `dataSource`: for `Enqueuer.promise({ outside })`. */
export const outside: (dataSource: Handle) => Executor.Executor = transaction
