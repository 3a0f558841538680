import { describe, expect, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import type { Connections } from "../../src/mysql/Connections.js"
import * as ServerCheck from "../../src/mysql/ServerCheck.js"
import type { Answer, OwnSession, Row } from "../../src/mysql/Session.js"

const answer = (rows: ReadonlyArray<Row>): Answer => ({ rows, affected: 0, insertId: "0" })

/** Sessions that answer as servers do which this run can not start. What real MySQL answers is tried wherever a layer starts. */
const sessions = (script: (session: number, statement: string) => ReadonlyArray<Row>): Connections => {
  let opened = 0
  return {
    use: (body) => {
      const number = opened++
      const session: Pick<OwnSession, "script"> = {
        script: (statements) => Effect.succeed(statements.map((statement) => answer(script(number, statement))))
      }
      return body(session as OwnSession)
    }
  }
}

const server = (version: string, changes: Row = {}) =>
  ServerCheck.identify(
    sessions(() => [
      { version, comment: "", packet: 67_108_864, innodb: "DEFAULT", current_database: "shop", ...changes }
    ])
  )

describe("the server check", () => {
  it.effect("takes MySQL from 8.0.13 on", () =>
    Effect.gen(function* () {
      for (const version of ["8.0.13", "8.0.45-0ubuntu1", "8.4.0", "9.7.4-2", "10.0.1", "26.7.0"]) {
        expect(yield* server(version)).toEqual({ version, packet: 67_108_864 })
      }
    })
  )

  it.effect("refuses older ones, servers that only speak its protocol, and MySQL without InnoDB, and says why", () =>
    Effect.gen(function* () {
      for (const [version, changes, reason] of [
        ["5.7.44", {}, "too old"],
        ["8.0.12", {}, "too old"],
        ["5.5.5-10.11.6-MariaDB", {}, "mariadb"],
        ["8.0.11-TiDB-v7.5.0", {}, "tidb"],
        ["8.0.30-Vitess", {}, "vitess"],
        ["8.0.33", { comment: "Dolt" }, "dolt"],
        ["8.4.0", { innodb: "NO" }, "InnoDB"]
      ] as const) {
        const refused = yield* Effect.flip(server(version, changes))
        expect(refused).toMatchObject({ _tag: "UnsupportedServer", version })
        expect(refused.message).toContain(reason)
      }
    })
  )

  it.effect("refuses a server that takes SKIP LOCKED and shows the locked row all the same", () =>
    Effect.gen(function* () {
      const tables = {
        prefix: "leasehold_",
        jobs: "leasehold_jobs",
        queues: "leasehold_queues",
        refusals: "leasehold_refusals",
        migrations: "leasehold_migrations"
      }
      const row = [{ step: 1 }]
      const tried = (seenByOther: ReadonlyArray<Row>, held: ReadonlyArray<Row> = row) =>
        Effect.exit(
          ServerCheck.trySkipLocked(
            sessions((session, statement) =>
              statement.includes("SKIP LOCKED") ? (session === 0 ? held : seenByOther) : []
            ),
            tables,
            "8.4.0"
          )
        )
      expect(Exit.isSuccess(yield* tried([]))).toBe(true)
      const refused = yield* tried(row)
      expect(Exit.isFailure(refused) && JSON.stringify(refused.cause)).toContain("UnsupportedServer")
      // Another process holds the row for the same trial: nothing can be said of the server.
      expect(Exit.isSuccess(yield* tried(row, []))).toBe(true)
    })
  )
})
