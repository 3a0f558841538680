/**
 * A database of its own for each suite, on the server that the test run started, and the store on it.
 */

import { randomUUID } from "node:crypto"
import { Context, Duration, Effect, Layer, Redacted } from "effect"
import * as Mysql from "mysql2/promise"
import { inject } from "vitest"
import { JobStore } from "../../src/JobStore.js"
import * as Connections from "../../src/mysql/Connections.js"
import * as Migrations from "../../src/mysql/Migrations.js"
import * as MysqlJobStore from "../../src/mysql/MysqlJobStore.js"
import * as ServerCheck from "../../src/mysql/ServerCheck.js"
import * as Tables from "../../src/mysql/Tables.js"
import { StoreHarness } from "./StoreHarness.js"

/** An outside session on the suite's database: what a person with a MySQL shell could do. */
export interface Outside {
  readonly url: string
  readonly query: (
    text: string,
    values?: ReadonlyArray<unknown>
  ) => Effect.Effect<ReadonlyArray<Record<string, unknown>>>
}

export class Database extends Context.Tag("leasehold/test/Database")<Database, Outside>() {}

/** Opens one more session, for tests that hold locks or transactions from outside. */
export const outside = (url: string) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(() => Mysql.createConnection({ uri: url, multipleStatements: true, supportBigNumbers: true })),
      (connection) => Effect.sync(() => connection.destroy())
    ),
    (connection): Outside => ({
      url,
      query: (text, values = []) =>
        Effect.promise(async () => {
          const [rows] = await connection.query(text, [...values])
          return Array.isArray(rows) ? (rows as ReadonlyArray<Record<string, unknown>>) : []
        })
    })
  )

/** An empty database of its own, dropped at the end. `settings` may follow CREATE DATABASE, such as a character set. */
export const emptyDatabase = (settings = "") =>
  Effect.gen(function* () {
    const server = new URL(inject("mysqlUrl"))
    const name = `leasehold_test_${randomUUID().replaceAll("-", "").slice(0, 16)}`
    server.pathname = "/"
    const admin = yield* outside(server.href)
    yield* Effect.acquireRelease(admin.query(`CREATE DATABASE ${name} ${settings}`), () =>
      admin.query(`DROP DATABASE IF EXISTS ${name}`)
    )
    server.pathname = `/${name}`
    return yield* outside(server.href)
  })

export const database: Layer.Layer<Database> = Layer.scoped(Database, emptyDatabase())

const statementTimeout = Duration.seconds(5)

/**
 * The store on a database of its own, as the contract suite wants it. `given` is what a server would give to every new session
 * before the library sets what it relies on.
 */
export const storeOn = (given = ""): Layer.Layer<JobStore | StoreHarness | Database> =>
  Layer.scopedContext(
    Effect.gen(function* () {
      const outsider = yield* Database
      const tables = yield* Tables.make(Tables.defaultPrefix)
      const config = { url: Redacted.make(outsider.url) }
      const open = (size: number, settings: string) =>
        Connections.make(config, { size, statementTimeout, settings: given + settings })
      const worker = yield* open(4, Connections.pinned)
      const client = yield* open(8, Connections.pinned)
      const transactions = yield* open(8, Connections.forCallers)
      const { packet } = yield* ServerCheck.identify(client)
      yield* Migrations.run(client, tables, yield* Migrations.steps)
      const fronts = new Map()
      const harness = StoreHarness.of({
        elapse: (queue, duration) =>
          Effect.gen(function* () {
            const back = `INTERVAL ${Math.round(Duration.toMillis(duration) * 1_000)} MICROSECOND`
            yield* outsider.query(
              `UPDATE ${tables.jobs} SET due_at = due_at - ${back}, finished_at = finished_at - ${back},`
                + ` enqueued_at = enqueued_at - ${back}, first_due_at = first_due_at - ${back} WHERE queue = ?`,
              [queue]
            )
            fronts.clear()
          })
      })
      const jobStore = MysqlJobStore.make({ tables, worker, client, transactions, statementTimeout, packet, fronts })
      return Context.make(JobStore, jobStore).pipe(Context.add(StoreHarness, harness))
    })
  ).pipe(Layer.provideMerge(database), Layer.orDie)

export const store = storeOn()
