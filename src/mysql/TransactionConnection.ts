/**
 * A connection of the library as @effect/sql sees one, so that the caller's own statements run in a transaction which the
 * library opened, bounds and can cut off.
 */
import type { Connection } from "@effect/sql/SqlConnection"
import { SqlError } from "@effect/sql/SqlError"
import { Cause, Chunk, Effect, Exit, Option, Stream } from "effect"
import type * as Mysql from "mysql2"
import { fromDriver, type MysqlFault } from "./MysqlFault.js"

type Transform = (<A extends object>(rows: ReadonlyArray<A>) => ReadonlyArray<A>) | undefined

export interface TransactionConnection {
  readonly connection: Connection
  /** The transaction is over. A fiber of its effect that goes on would write into that of whoever is next on this connection (T1). */
  readonly end: () => void
}

/** `note` hears of each failed statement: a deadlock that the caller caught has undone his writes all the same (T5). */
export const make = (connection: Mysql.PoolConnection, note: (fault: MysqlFault) => void): TransactionConnection => {
  let ended = false
  const late = Effect.suspend(() =>
    Effect.fail(new SqlError({ cause: new Error("Its transaction has ended"), message: "Statement came too late" }))
  )
  // A statement has no canceller (T9): the connection is cut off, and the server rolls the transaction back.
  const cutOff = Effect.sync(() => {
    if (ended) return
    note(fromDriver({ code: "interrupted" }, true))
    connection.destroy()
  })
  const send = (
    method: "execute" | "query",
    sql: string,
    params: ReadonlyArray<unknown>,
    rowsAsArray: boolean
  ): Effect.Effect<unknown, SqlError> =>
    Effect.async((resume) => {
      if (ended) return resume(late)
      const callback = (cause: Error | null, result: unknown) => {
        if (cause === null) return resume(Effect.succeed(result))
        note(fromDriver(cause, true))
        resume(Effect.fail(new SqlError({ cause, message: "Failed to execute statement" })))
      }
      // The parameters are the caller's own; the driver refuses what it can not bind.
      const values = params as Array<string>
      if (method === "execute") connection.execute({ sql, values, rowsAsArray }, callback)
      else connection.query({ sql, values, rowsAsArray }, callback)
      return cutOff
    })
  const stream = (sql: string, params: ReadonlyArray<unknown>): Stream.Stream<object, SqlError> =>
    Stream.unwrapScoped(
      Effect.map(
        Effect.acquireRelease(
          Effect.suspend(() => (ended ? late : Effect.sync(() => open(connection, sql, params, note)))),
          // The driver reads what is left and drops it; the caller's next statement waits for that.
          (rows, exit) =>
            Exit.isFailure(exit) && Cause.isInterrupted(exit.cause) && !rows.readableEnded
              ? cutOff
              : Effect.sync(() => rows.destroy())
        ),
        (rows) => Stream.repeatEffectChunkOption(take(rows))
      )
    )
  const rows = (effect: Effect.Effect<unknown, SqlError>, transform: Transform) =>
    Effect.map(effect, (result) => {
      const list: ReadonlyArray<object> = Array.isArray(result) ? result : []
      return transform === undefined ? list : transform(list)
    })
  return {
    end: () => {
      ended = true
    },
    connection: {
      execute: (sql, params, transform) => rows(send("execute", sql, params, false), transform),
      executeRaw: (sql, params) => send("execute", sql, params, false),
      executeValues: (sql, params) =>
        Effect.map(send("execute", sql, params, true), (result) => (Array.isArray(result) ? result : [])),
      executeUnprepared: (sql, params, transform) => rows(send("query", sql, params, false), transform),
      executeStream: (sql, params, transform) =>
        transform === undefined
          ? stream(sql, params)
          : Stream.mapChunks(stream(sql, params), (chunk) =>
              Chunk.unsafeFromArray(transform(Chunk.toReadonlyArray(chunk)))
            )
    }
  }
}

type Rows = ReturnType<ReturnType<Mysql.PoolConnection["query"]>["stream"]>

/** How many rows are read ahead of the caller. */
const highWaterMark = 100

const open = (
  connection: Mysql.PoolConnection,
  sql: string,
  params: ReadonlyArray<unknown>,
  note: (fault: MysqlFault) => void
): Rows =>
  connection
    .query(sql, [...params])
    .stream({ highWaterMark })
    .on("error", (cause: unknown) => note(fromDriver(cause, true)))

/** The rows that are there, as soon as there are some; none at the end. */
const take = (rows: Rows): Effect.Effect<Chunk.Chunk<object>, Option.Option<SqlError>> =>
  Effect.async((resume) => {
    const events = ["readable", "end", "error"] as const
    const stop = () => {
      for (const event of events) rows.off(event, look)
    }
    const look = () => {
      const found: Array<object> = []
      for (let row: object | null = rows.read(); row !== null; row = rows.read()) found.push(row)
      if (found.length > 0) {
        stop()
        resume(Effect.succeed(Chunk.unsafeFromArray(found)))
      } else if (rows.errored !== null) {
        stop()
        const cause = rows.errored
        resume(Effect.fail(Option.some(new SqlError({ cause, message: "Failed to stream statement" }))))
      } else if (rows.readableEnded) {
        stop()
        resume(Effect.fail(Option.none()))
      }
    }
    for (const event of events) rows.on(event, look)
    look()
    return Effect.sync(stop)
  })
