/**
 * A server with a binary log, which is only this suite's, and databases on it.
 */
import { randomUUID } from "node:crypto"
import { Context, Effect, Layer, type Scope } from "effect"
import { processId } from "../../scripts/mysql/Ephemeral.js"
import { launch } from "../../scripts/mysql/MysqlServer.js"
import { type Outside, outside } from "./Mysql.js"
import { until } from "./Until.js"

export class BinlogServer extends Context.Tag("leasehold/test/BinlogServer")<BinlogServer, { readonly url: string }>() {
  /** Started anew on its port whenever it ends. */
  static readonly layer = Layer.scoped(
    BinlogServer,
    Effect.map(
      launch({ restarts: true, serverArgs: ["--innodb-buffer-pool-size=64M", "--log-bin=binlog", "--server-id=1"] }),
      ({ url }) => ({ url })
    )
  )
}

/** A database of its own; it goes with the server. */
export const database: Effect.Effect<Outside, never, BinlogServer | Scope.Scope> = Effect.gen(function* () {
  const url = new URL((yield* BinlogServer).url)
  const admin = yield* outside(url.href)
  url.pathname = `/binlog_${randomUUID().slice(0, 8)}`
  yield* admin.query(`CREATE DATABASE ${url.pathname.slice(1)}`)
  return yield* outside(url.href)
})

/** The sessions that read the binary log with this database as theirs. */
export const dumps = ({ query }: Outside): Effect.Effect<ReadonlyArray<number>> =>
  Effect.map(
    query("SELECT id FROM performance_schema.processlist WHERE command LIKE 'Binlog Dump%' AND db = DATABASE()"),
    (rows) => rows.map(({ id }) => Number(id))
  )

/** `kill -9`; returns when it takes connections again. */
export const crash: Effect.Effect<void, unknown, BinlogServer> = Effect.gen(function* () {
  const { url } = yield* BinlogServer
  const before = yield* processId(url)
  yield* Effect.sync(() => process.kill(before, "SIGKILL"))
  yield* until(Effect.option(processId(url)), (now) => now._tag === "Some" && now.value !== before)
})
