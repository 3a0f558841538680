/**
 * What this machine's MySQL can do at this moment: one-row updates by primary key, each durable by itself, at 16 connections.
 *
 * Every figure is printed with its ratio to the baseline of the same run, since shared machines drift by a factor of two.
 */
import { Effect, type Scope } from "effect"
import * as Mysql from "mysql2/promise"
import type { BenchError } from "./BenchError.js"
import * as Database from "./Database.js"
import { failure, type Server } from "./Server.js"

const connections = 16

/** Updates per second, measured for so many milliseconds. */
export const measure = (millis: number): Effect.Effect<number, BenchError, Server> =>
  Effect.scoped(
    Effect.gen(function* () {
      const database = yield* Database.empty
      yield* database.query("CREATE TABLE baseline (id INT PRIMARY KEY, n INT NOT NULL)")
      const ids = Array.from({ length: connections }, (_, id) => id)
      yield* database.query("INSERT INTO baseline (id, n) VALUES ?", [ids.map((id) => [id, 0])])
      const sessions = yield* Effect.forEach(ids, () => open(database.url), { concurrency: connections })
      const began = performance.now()
      yield* Effect.forEach(sessions, (session, id) => update(session, id, began + millis), {
        concurrency: connections,
        discard: true
      })
      const elapsed = performance.now() - began
      const [row] = yield* database.query("SELECT SUM(n) AS total FROM baseline")
      return (Number(row?.["total"]) * 1_000) / elapsed
    })
  )

const open = (url: string): Effect.Effect<Mysql.Connection, BenchError, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.tryPromise({ try: () => Mysql.createConnection(url), catch: failure("The server does not answer") }),
    (connection) => Effect.sync(() => connection.destroy())
  )

const update = (session: Mysql.Connection, id: number, until: number) =>
  Effect.tryPromise({
    try: async () => {
      while (performance.now() < until) await session.execute("UPDATE baseline SET n = n + 1 WHERE id = ?", [id])
    },
    catch: failure("The baseline was cut off")
  })
