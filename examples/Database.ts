/**
 * The MySQL of the examples: the one of `LEASEHOLD_MYSQL_URL`, else one that is started for this run alone.
 *
 * In a program of your own this is `MysqlClient.layer({ url: Redacted.make("mysql://…") })`.
 */
import { MysqlClient } from "@effect/sql-mysql2"
import { Effect, Layer, Logger, LogLevel, Redacted } from "effect"
import { launch } from "../scripts/mysql/MysqlServer.js"

/** Only errors are logged, so that an example prints what it tells and nothing else. */
export const Database = Layer.unwrapScoped(
  Effect.map(launch(), ({ url }) => MysqlClient.layer({ url: Redacted.make(url) }))
).pipe(Layer.provideMerge(Logger.minimumLogLevel(LogLevel.Error)))
