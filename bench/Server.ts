/**
 * The MySQL that is measured, and what it says about itself: statements, and the CPU that its process used.
 */
import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { Context, Effect, Layer, Option, type Scope } from "effect"
import * as Mysql from "mysql2/promise"
import { launch } from "../scripts/mysql/MysqlServer.js"
import { BenchError } from "./BenchError.js"

export type Row = Readonly<Record<string, unknown>>

/** A session that the benchmark itself asks and prepares by; never the one that is measured. */
export interface Session {
  readonly query: (text: string, values?: ReadonlyArray<unknown>) => Effect.Effect<ReadonlyArray<Row>, BenchError>
}

export class Server extends Context.Tag("leasehold/bench/Server")<
  Server,
  Session & {
    readonly url: string
    readonly version: string
    /** What decides about durability and speed, as the server has it. */
    readonly settings: Row
    /** Statements that the server has been given so far, one for each of its `Questions`. */
    readonly statements: Effect.Effect<number, BenchError>
    /** CPU time of the server's process in microseconds; none where it runs elsewhere. */
    readonly cpu: Effect.Effect<Option.Option<number>>
  }
>() {}

export const failure = (what: string) => (error: unknown) =>
  new BenchError({ message: `${what}: ${error instanceof Error ? error.message : String(error)}` })

/** Opens a session of its own. */
export const connect = (url: string): Effect.Effect<Session, BenchError, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.tryPromise({
        try: () => Mysql.createConnection({ uri: url, multipleStatements: true, supportBigNumbers: true }),
        catch: failure("The server does not answer")
      }),
      (connection) => Effect.sync(() => connection.destroy())
    ),
    (connection): Session => ({
      query: (text, values = []) =>
        Effect.tryPromise({
          try: async () => {
            const [rows] = await connection.query(text, [...values])
            return Array.isArray(rows) ? (rows as ReadonlyArray<Row>) : []
          },
          catch: failure(`The server refuses ${text.slice(0, 60)}`)
        })
    })
  )

export interface Options {
  /** A running server; without it one is started that keeps every commit, without a binary log. */
  readonly url: Option.Option<string>
  /** Starts the server with a row-based binary log that is flushed at each commit. */
  readonly binlog: boolean
}

// The doublewrite buffer and a flushed log are MySQL's defaults. They are named so that nobody has to know.
const durable = ["--innodb-flush-log-at-trx-commit=1", "--innodb-doublewrite=ON"]
const withBinlog = ["--log-bin=binlog", "--sync-binlog=1", "--binlog-format=ROW", "--server-id=1"]

export const layer = (options: Options): Layer.Layer<Server, BenchError> =>
  Layer.scoped(
    Server,
    Effect.gen(function* () {
      const server = yield* Effect.mapError(
        launch({
          ...(Option.isSome(options.url) ? { url: options.url.value } : {}),
          serverArgs: [...durable, ...(options.binlog ? withBinlog : [])]
        }),
        ({ message }) => new BenchError({ message })
      )
      const session = yield* connect(server.url)
      const [settings = {}] = yield* session.query(
        "SELECT @@innodb_flush_log_at_trx_commit AS flush_log_at_commit, @@innodb_doublewrite AS doublewrite,"
          + " @@log_bin AS binlog, @@sync_binlog AS sync_binlog,"
          + " @@innodb_buffer_pool_size DIV 1048576 AS buffer_pool_mib, @@transaction_isolation AS isolation"
      )
      const pid = yield* processId(session, server.url)
      return {
        ...session,
        url: server.url,
        version: server.version,
        settings,
        // Each look counts itself once.
        statements: Effect.map(session.query("SHOW GLOBAL STATUS LIKE 'Questions'"), ([row]) => Number(row?.["Value"])),
        cpu: Effect.sync(() => Option.flatMap(pid, cpuOf))
      }
    })
  )

const processId = (session: Session, url: string): Effect.Effect<Option.Option<number>, BenchError> =>
  Effect.map(session.query("SELECT @@pid_file AS file, @@datadir AS dir"), ([row]) => {
    const given = String(row?.["file"])
    const file = given.startsWith("/") ? given : join(String(row?.["dir"]), given)
    const isLocal = ["127.0.0.1", "localhost", "[::1]"].includes(new URL(url).hostname)
    return isLocal && existsSync(file) ? Option.some(Number(readFileSync(file, "utf8"))) : Option.none()
  })

/** Linux counts CPU time in hundredths of a second. */
const microsPerTick = 10_000

const cpuOf = (pid: number): Option.Option<number> => {
  const file = `/proc/${pid}/stat`
  if (!existsSync(file)) return Option.none()
  // The name in brackets may hold blanks; utime and stime are the 12th and 13th fields after it.
  const fields = readFileSync(file, "utf8").split(") ").at(-1)?.split(" ") ?? []
  return Option.some((Number(fields[11]) + Number(fields[12])) * microsPerTick)
}
