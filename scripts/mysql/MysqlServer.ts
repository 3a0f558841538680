/**
 * A MySQL for the demo, the tests and the benchmarks, with no manual step.
 *
 * Three ways, in this order: the server of `LEASEHOLD_MYSQL_URL`; an ephemeral one from a `mysqld` on PATH, or from one that
 * `mysql-memory-server` downloads; an ephemeral one from Debian's packages, unpacked without touching the system.
 */
import { Data, Duration, Effect, type Scope } from "effect"
import { createDB } from "mysql-memory-server"
import * as Mysql from "mysql2/promise"
import { run } from "./Command.js"
import * as DebianServer from "./DebianServer.js"
import * as Ephemeral from "./Ephemeral.js"

export interface Options {
  /** A running server. Default: `LEASEHOLD_MYSQL_URL`, else an ephemeral one. */
  readonly url?: string
  /** More arguments for an ephemeral `mysqld`; they win over the defaults. */
  readonly serverArgs?: ReadonlyArray<string>
  /**
   * Start an ephemeral server, whatever `LEASEHOLD_MYSQL_URL` says, that may be killed: it is started anew on its port and
   * data whenever it ends.
   */
  readonly restarts?: boolean
}

export interface MysqlServer {
  /** With the name of a database that exists. */
  readonly url: string
  readonly version: string
  readonly source: "url" | "path" | "download" | "debian"
}

/** None of the ways led to a server. `ways` says for each what was tried and why it failed. */
export class MysqlServerUnavailable extends Data.TaggedError("MysqlServerUnavailable")<{
  readonly ways: ReadonlyArray<{ readonly way: string; readonly reason: string }>
}> {
  override get message() {
    return [
      "No MySQL could be had:",
      ...this.ways.map(({ reason, way }) => `  - ${way}: ${reason}`),
      "Install MySQL 8.0.13 or later (its `mysqld` on PATH is enough), or set LEASEHOLD_MYSQL_URL to a running one, such as",
      "mysql://user:password@127.0.0.1:3306/database."
    ].join("\n")
  }
}

/** Starts or finds a server; an ephemeral one is gone when the scope closes, and when this process ends in whatever way. */
export const launch = (options: Options = {}): Effect.Effect<MysqlServer, MysqlServerUnavailable, Scope.Scope> => {
  const url = options.url ?? (options.restarts === true ? undefined : process.env["LEASEHOLD_MYSQL_URL"])
  if (url !== undefined && url !== "") {
    return Effect.mapError(
      Effect.map(versionOf(url), (version): MysqlServer => ({ url, version, source: "url" })),
      (reason) => new MysqlServerUnavailable({ ways: [{ way: "the server of the given URL", reason }] })
    )
  }
  const fromPath = way(
    "a mysqld on PATH",
    Effect.flatMap(Ephemeral.findOnPath, (binary) => ephemeral(binary, "path", options))
  )
  const fromDownload = way(
    "a download by mysql-memory-server",
    options.restarts === true ? Effect.fail("it can not be started anew once it has ended") : download
  )
  const fromDebian = way(
    "Debian's mysql-server-core",
    Effect.flatMap(DebianServer.install, (binary) => ephemeral(binary, "debian", options))
  )
  return fromPath.pipe(
    Effect.catchAll((path) =>
      Effect.catchAll(fromDownload, (downloaded) =>
        Effect.mapError(fromDebian, (debian) => new MysqlServerUnavailable({ ways: [path, downloaded, debian] }))
      )
    )
  )
}

/** A `mysqld` to start several servers from: the one on PATH, else Debian's. */
export const findBinary: Effect.Effect<string, MysqlServerUnavailable> = Effect.catchAll(
  way("a mysqld on PATH", Ephemeral.findOnPath),
  (path) =>
    Effect.mapError(
      way("Debian's mysql-server-core", DebianServer.install),
      (debian) => new MysqlServerUnavailable({ ways: [path, debian] })
    )
)

function way<A, R>(name: string, effect: Effect.Effect<A, string, R>) {
  return Effect.mapError(effect, (reason) => ({ way: name, reason }))
}

const ephemeral = (binary: string, source: MysqlServer["source"], options: Options) =>
  Effect.flatMap(Ephemeral.start(binary, options.serverArgs ?? [], options.restarts), (url) =>
    Effect.map(versionOf(url), (version): MysqlServer => ({ url, version, source }))
  )

const versionOf = (url: string): Effect.Effect<string, string> =>
  Effect.tryPromise({
    try: async () => {
      const connection = await Mysql.createConnection({ uri: url, connectTimeout: 5_000 })
      try {
        const [rows] = await connection.query("SELECT VERSION() AS version")
        const row: unknown = Array.isArray(rows) ? rows[0] : undefined
        return String(typeof row === "object" && row !== null && "version" in row ? row.version : "unknown")
      } finally {
        connection.destroy()
      }
    },
    catch: (error) => `it does not answer (${error instanceof Error ? error.message : String(error)})`
  })

/**
 * Why the download's server is not used for the other ways too: it always runs with the general log and without the doublewrite
 * buffer, takes no arguments of ours, and outlives a parent that was killed. Here its log is switched off, and the watchdog
 * that guards our own servers guards it too.
 */
const download: Effect.Effect<MysqlServer, string, Scope.Scope> = Effect.gen(function* () {
  yield* reachable("https://cdn.mysql.com/")
  yield* Effect.sync(() => process.stderr.write("Downloading MySQL (about 100 MB, kept for the next time) …\n"))
  const server = yield* Effect.acquireRelease(
    Effect.tryPromise({
      try: () =>
        createDB({
          dbName: "leasehold",
          xEnabled: "OFF",
          downloadRetries: 1,
          initSQLString: "SET GLOBAL general_log = OFF; SET GLOBAL max_connections = 300;"
        }),
      catch: (error) => `it failed (${String(error)})`
    }),
    (database) => Effect.ignoreLogged(Effect.tryPromise(() => database.stop()))
  )
  const url = `mysql://${server.username}@127.0.0.1:${server.port}/${server.dbName}`
  yield* Ephemeral.guard(url)
  return { url, version: server.mysql.version, source: "download" }
})

// The downloader tries ten times without saying why it can not: one short question first spares a newcomer the wait.
const reachable = (address: string): Effect.Effect<void, string> =>
  run("node", [
    "-e",
    `fetch(${JSON.stringify(address)}, { method: "HEAD" }).then(() => process.exit(0), () => process.exit(1))`
  ]).pipe(
    Effect.timeoutFail({ duration: Duration.seconds(4), onTimeout: () => "no answer" }),
    Effect.mapError(() => "MySQL's download site cannot be reached from here"),
    Effect.asVoid
  )
