/**
 * A connection of the library as @effect/sql sees one, so that the caller's own statements run in a transaction which the
 * library opened, bounds and can cut off.
 */
import type { Connection } from "@effect/sql/SqlConnection"
import { SqlError } from "@effect/sql/SqlError"
import { asyncPauseResume } from "@effect/sql/SqlStream"
import { Chunk, Effect, Stream } from "effect"
import type * as Mysql from "mysql2"
import { fromDriver, type MysqlFault } from "./MysqlFault.js"

type Transform = (<A extends object>(rows: ReadonlyArray<A>) => ReadonlyArray<A>) | undefined

/** `note` hears of each failed statement: a deadlock that the caller caught has undone his writes all the same (T5). */
export const make = (connection: Mysql.PoolConnection, note: (fault: MysqlFault) => void): Connection => {
  const send = (
    method: "execute" | "query",
    sql: string,
    params: ReadonlyArray<unknown>,
    rowsAsArray: boolean
  ): Effect.Effect<unknown, SqlError> =>
    Effect.async((resume) => {
      const callback = (cause: Error | null, result: unknown) => {
        if (cause === null) return resume(Effect.succeed(result))
        note(fromDriver(cause, true))
        resume(Effect.fail(new SqlError({ cause, message: "Failed to execute statement" })))
      }
      // The parameters are the caller's own; the driver refuses what it can not bind.
      const values = params as Array<string>
      if (method === "execute") connection.execute({ sql, values, rowsAsArray }, callback)
      else connection.query({ sql, values, rowsAsArray }, callback)
      // A statement has no canceller (T9): the connection is cut off, and the server rolls the transaction back.
      return Effect.sync(() => {
        note(fromDriver({ code: "interrupted" }, true))
        connection.destroy()
      })
    })
  const rows = (effect: Effect.Effect<unknown, SqlError>, transform: Transform) =>
    Effect.map(effect, (result) => {
      const list: ReadonlyArray<object> = Array.isArray(result) ? result : []
      return transform === undefined ? list : transform(list)
    })
  return {
    execute: (sql, params, transform) => rows(send("execute", sql, params, false), transform),
    executeRaw: (sql, params) => send("execute", sql, params, false),
    executeValues: (sql, params) =>
      Effect.map(send("execute", sql, params, true), (result) => (Array.isArray(result) ? result : [])),
    executeUnprepared: (sql, params, transform) => rows(send("query", sql, params, false), transform),
    executeStream: (sql, params, transform) => {
      const stream = queryStream(connection, sql, params)
      return transform === undefined
        ? stream
        : Stream.mapChunks(stream, (chunk) => Chunk.unsafeFromArray(transform(Chunk.toReadonlyArray(chunk))))
    }
  }
}

const queryStream = (
  connection: Mysql.PoolConnection,
  sql: string,
  params: ReadonlyArray<unknown>
): Stream.Stream<object, SqlError> =>
  asyncPauseResume<object, SqlError>((emit) => {
    const readable = connection.query(sql, [...params]).stream()
    readable.on("error", (cause: unknown) => emit.fail(new SqlError({ cause, message: "Failed to stream statement" })))
    readable.on("data", (row: object) => emit.single(row))
    readable.on("end", () => emit.end())
    return {
      onInterrupt: Effect.sync(() => readable.destroy()),
      onPause: Effect.sync(() => readable.pause()),
      onResume: Effect.sync(() => readable.resume())
    }
  })
