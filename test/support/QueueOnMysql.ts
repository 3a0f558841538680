/**
 * The queue as an application has it, on a database of its own.
 */
import { MysqlClient } from "@effect/sql-mysql2"
import { Effect, Layer, Redacted } from "effect"
import * as MysqlQueue from "../../src/MysqlQueue.js"
import { Database, database } from "./Mysql.js"

/** The application's client and the queue on a database of its own, as an application has them. */
export const queue = (options: MysqlQueue.Options = {}) =>
  MysqlQueue.layer(options).pipe(
    Layer.provideMerge(
      Layer.unwrapEffect(
        Effect.map(Database, ({ url }) => MysqlClient.layer({ url: Redacted.make(url), maxConnections: 10 }))
      )
    ),
    Layer.provideMerge(database)
  )
