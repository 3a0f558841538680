/**
 * The server of a torture, and what is done to it.
 */
import { readFileSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { type Duration, Effect, Schedule, type Scope } from "effect"
import * as Mysql from "mysql2/promise"
import { launch, type MysqlServerUnavailable } from "../../scripts/mysql/MysqlServer.js"
import type { Query } from "./Records.js"

export interface Server {
  readonly url: string
  readonly version: string
  /** One statement on a connection of its own; a server that is down or away is waited for. */
  readonly query: Query
  /** Holds the rows that a statement locks for a while, if there are any and the server lets it; told when it has them. */
  readonly lock: (text: string, duration: Duration.Duration, onLock: Effect.Effect<void>) => Effect.Effect<void>
  /**
   * Ends the server, gently or by SIGKILL, keeps it down for a while, and waits until it answers again; told when it is
   * another process that answers.
   */
  readonly bounce: (
    signal: "SIGTERM" | "SIGKILL",
    down: Duration.Duration,
    onReturn: Effect.Effect<void>
  ) => Effect.Effect<void>
}

/** Down, starting, ending a session or a statement, refusing writes for a while: it passes. */
const passing: ReadonlyArray<number> = [1053, 1290, 1317, 1836, 1927, 3168, 4031]

const passes = (error: unknown): boolean =>
  !(error instanceof Error && "errno" in error && "sqlState" in error && error.sqlState !== undefined)
  || passing.includes(Number(error.errno))

/** Starts one that comes back when it was killed; gone with the scope. */
export const start: Effect.Effect<Server, MysqlServerUnavailable, Scope.Scope> = Effect.gen(function* () {
  const { url, version } = yield* launch({ restarts: true })
  const query: Query = (text) =>
    Effect.tryPromise(async () => {
      const connection = await Mysql.createConnection({
        uri: url,
        connectTimeout: 2_000,
        supportBigNumbers: true,
        dateStrings: true
      })
      try {
        const [rows] = await connection.query({ sql: text, timeout: 120_000 })
        return Array.isArray(rows) ? (rows as ReadonlyArray<Record<string, unknown>>) : []
      } finally {
        connection.destroy()
      }
    }).pipe(
      // What the server refuses for good is a mistake of the torture.
      Effect.retry({ schedule: Schedule.spaced("100 millis"), while: ({ error }) => passes(error) }),
      Effect.timeout("150 seconds"),
      Effect.orDie
    )
  const [place] = yield* query("SELECT @@datadir AS data, @@pid_file AS pid")
  const down = join(dirname(String(place?.["data"]).replace(/\/$/, "")), "down")
  const pid = Effect.sync(() => Number(readFileSync(String(place?.["pid"]), "utf8")))
  return {
    url,
    version,
    query,
    lock: (text, duration, onLock) =>
      Effect.acquireUseRelease(
        Effect.promise(() => Mysql.createConnection({ uri: url, connectTimeout: 2_000 })),
        (connection) =>
          Effect.promise(async () => {
            await connection.query("START TRANSACTION")
            const [rows] = await connection.query({ sql: text, timeout: 5_000 })
            return Array.isArray(rows) && rows.length > 0
          }).pipe(
            Effect.flatMap((any) => (any ? onLock : Effect.void)),
            Effect.zipRight(Effect.sleep(duration))
          ),
        (connection) => Effect.sync(() => connection.destroy())
      ).pipe(Effect.sandbox, Effect.ignore),
    bounce: (signal, duration, onReturn) =>
      Effect.gen(function* () {
        const running = yield* pid
        yield* Effect.sync(() => {
          writeFileSync(down, "")
          process.kill(running, signal)
        })
        yield* Effect.sleep(duration).pipe(Effect.ensuring(Effect.sync(() => rmSync(down, { force: true }))))
        yield* query("SELECT 1").pipe(
          Effect.zipRight(pid),
          Effect.orDie,
          Effect.repeat({ until: (now) => now !== running, schedule: Schedule.spaced("100 millis") }),
          Effect.timeout("60 seconds"),
          Effect.orDie
        )
        yield* query("SELECT 1")
        yield* onReturn
      })
  }
})
