/**
 * Looks at the server before anything relies on it: what it is, and whether it really skips locked rows.
 */
import { Effect } from "effect"
import { InvalidOption, type StoreError, UnsupportedServer } from "../QueueError.js"
import type { Connections } from "./Connections.js"
import type { MysqlFault } from "./MysqlFault.js"
import type { Tables } from "./Tables.js"
import * as Transaction from "./Transaction.js"

export interface Server {
  readonly version: string
  /** `max_allowed_packet` in bytes. */
  readonly packet: number
}

const oldest = [8, 0, 13] as const

/** What the server is; fails with `UnsupportedServer` for all but MySQL 8.0.13 and later with InnoDB,
 * and with `InvalidOption` where the connection names no database. */
export const identify = (
  connections: Connections
): Effect.Effect<Server, InvalidOption | UnsupportedServer | StoreError> =>
  Transaction.run(connections, "connect", "again", (session) =>
    Effect.flatMap(
      session.script([
        "SELECT VERSION() AS version, @@version_comment AS comment, @@max_allowed_packet AS packet,"
          + " DATABASE() AS current_database,"
          + " (SELECT support FROM information_schema.engines WHERE engine = 'InnoDB') AS innodb"
      ]),
      ([answer]): Effect.Effect<Server, InvalidOption | UnsupportedServer> => {
        const row = answer?.rows[0] ?? {}
        const version = String(row["version"])
        const refuse = (reason: string) => Effect.fail(new UnsupportedServer({ version, reason }))
        const kind = `${version} ${String(row["comment"])}`.toLowerCase()
        const foreign = ["mariadb", "tidb", "vitess", "singlestore", "dolt", "oceanbase"].find((name) =>
          kind.includes(name)
        )
        if (foreign !== undefined) return refuse(`${foreign} differs from MySQL in how it locks and skips rows`)
        if (isOlder(version)) return refuse("it is too old")
        if (!["YES", "DEFAULT"].includes(String(row["innodb"]))) return refuse("it has no InnoDB")
        if (row["current_database"] === null) return Effect.fail(noDatabase)
        return Effect.succeed({ version, packet: Number(row["packet"]) })
      }
    )
  )

const noDatabase = new InvalidOption({
  option: "database",
  value: undefined,
  accepted: "the name of a database, in the URL or the configuration of the SQL client"
})

const isOlder = (version: string): boolean => {
  const parts = version.split(/[.-]/).slice(0, 3).map(Number)
  for (const [index, least] of oldest.entries()) {
    const part = parts[index] ?? 0
    if (part !== least) return !(part > least)
  }
  return false
}

/**
 * Holds a row in one session and looks whether another one skips it: some servers accept SKIP LOCKED and take no lock at all.
 * Needs the tables; the row is the record of the first migration step.
 */
export const trySkipLocked = (
  connections: Connections,
  tables: Tables,
  version: string
): Effect.Effect<void, UnsupportedServer | StoreError> => {
  const row = `SELECT step FROM ${tables.migrations} WHERE step = 1 FOR UPDATE`
  const rows = (
    skip: Effect.Effect<ReadonlyArray<{ readonly rows: ReadonlyArray<unknown> }>, MysqlFault>,
    at: number
  ) => Effect.map(skip, (answers) => answers[at]?.rows.length ?? 0)
  return Transaction.run(connections, "check SKIP LOCKED", "again", (holder) =>
    Effect.gen(function* () {
      const held = yield* rows(holder.script(["START TRANSACTION", `${row} SKIP LOCKED`]), 1)
      const seen = yield* connections.use((other) =>
        rows(other.script(["START TRANSACTION", `${row} SKIP LOCKED`, "ROLLBACK"]), 1)
      )
      yield* holder.script(["ROLLBACK"])
      // Another process may be trying the same: then neither row count says anything against the server.
      if (held === 1 && seen !== 0) {
        yield* new UnsupportedServer({ version, reason: "it does not skip rows that another session has locked" })
      }
    })
  )
}
