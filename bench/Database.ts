/**
 * A database of its own for each sample, so that none meets what another left behind.
 */
import { randomUUID } from "node:crypto"
import { MysqlClient } from "@effect/sql-mysql2"
import { Effect, Redacted, type Scope } from "effect"
import { Migrations } from "../src/index.js"
import type { BenchError } from "./BenchError.js"
import { connect, failure, Server, type Session } from "./Server.js"

export interface Database extends Session {
  readonly url: string
}

/** An empty database, dropped when the scope closes. */
export const empty: Effect.Effect<Database, BenchError, Server | Scope.Scope> = Effect.gen(function* () {
  const server = yield* Server
  const name = `leasehold_bench_${randomUUID().slice(0, 8)}`
  yield* Effect.acquireRelease(server.query(`CREATE DATABASE ${name}`), () =>
    Effect.ignoreLogged(server.query(`DROP DATABASE ${name}`))
  )
  const url = new URL(server.url)
  url.pathname = `/${name}`
  return { ...(yield* connect(url.href)), url: url.href }
})

/** A database with the queue's tables. */
export const migrated: Effect.Effect<Database, BenchError, Server | Scope.Scope> = Effect.tap(empty, ({ url }) =>
  Migrations.run().pipe(
    Effect.provide(MysqlClient.layer({ url: Redacted.make(url), maxConnections: 2 })),
    Effect.mapError(failure("The tables can not be made"))
  )
)
