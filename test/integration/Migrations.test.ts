import { MysqlClient } from "@effect/sql-mysql2"
import { describe, expect, it } from "@effect/vitest"
import { Duration, Effect, Exit, Redacted } from "effect"
import * as Door from "../../src/Migrations.js"
import * as Connections from "../../src/mysql/Connections.js"
import * as Migrations from "../../src/mysql/Migrations.js"
import * as Tables from "../../src/mysql/Tables.js"
import { emptyDatabase, type Outside } from "../support/Mysql.js"

const connect = (outside: Outside) =>
  Connections.make(
    { url: Redacted.make(outside.url) },
    {
      size: 2,
      statementTimeout: Duration.seconds(5),
      settings: Connections.pinned
    }
  )

const scene = Effect.gen(function* () {
  const outside = yield* emptyDatabase()
  const connections = yield* connect(outside)
  const tables = yield* Tables.make("leasehold_")
  const steps = yield* Migrations.steps
  return { outside, connections, tables, steps, run: Migrations.run(connections, tables, steps) }
})

const tableNames = (outside: Outside) =>
  Effect.map(
    outside.query(
      "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY 1"
    ),
    (rows) => rows.map(({ name }) => name)
  )

describe("migrations", () => {
  it.scopedLive("need a connection that names a database, and say so", () =>
    Effect.gen(function* () {
      const { url } = yield* emptyDatabase()
      const client = MysqlClient.layer({ url: Redacted.make(new URL("/", url).href) })
      const refused = yield* Effect.flip(Effect.provide(Door.run(), client))
      expect(refused).toMatchObject({ _tag: "InvalidOption", option: "database" })
    })
  )

  it.scopedLive("are run and verified by a program of their own, through its client", () =>
    Effect.gen(function* () {
      const { url } = yield* emptyDatabase()
      const client = MysqlClient.layer({ url: Redacted.make(url) })
      yield* Effect.gen(function* () {
        expect(yield* Effect.flip(Door.verify())).toMatchObject({ _tag: "SchemaOutdated" })
        expect(yield* Door.run()).toHaveLength(3)
        expect(yield* Door.run()).toEqual([])
        yield* Door.verify()
        expect(yield* Door.run({ tablePrefix: "other_" })).toHaveLength(3)
      }).pipe(Effect.provide(client))
    })
  )

  it.scopedLive("create the tables once, and do nothing the second time", () =>
    Effect.gen(function* () {
      const { connections, outside, run, steps, tables } = yield* scene
      expect(yield* run).toEqual(steps.map(({ name }) => name))
      expect(yield* tableNames(outside)).toEqual([
        "leasehold_jobs",
        "leasehold_migrations",
        "leasehold_queues",
        "leasehold_refusals"
      ])
      expect(yield* run).toEqual([])
      yield* Migrations.verify(connections, tables, steps)
    })
  )

  it.scopedLive("started by ten at once are done by one, and the others see the tables", () =>
    Effect.gen(function* () {
      const { outside, steps, tables } = yield* scene
      const done = yield* Effect.forEach(
        Array.from({ length: 10 }),
        () =>
          Effect.gen(function* () {
            const connections = yield* connect(outside)
            const names = yield* Migrations.run(connections, tables, steps)
            yield* connections.use((session) => session.script([`SELECT COUNT(*) FROM ${tables.jobs}`]))
            return names
          }),
        { concurrency: "unbounded" }
      )
      expect(done.flat()).toEqual(steps.map(({ name }) => name))
    })
  )

  it.scopedLive("that stopped in the middle are refused as dirty, and say which step and how to repair it", () =>
    Effect.gen(function* () {
      const { connections, outside, run, steps, tables } = yield* scene
      const broken = steps.map((step) =>
        step.number === 2 ? { ...step, text: "CREATE TABLE {prefix}queues (broken" } : step
      )
      expect(Exit.isFailure(yield* Effect.exit(Migrations.run(connections, tables, broken)))).toBe(true)
      expect(yield* tableNames(outside)).toEqual(["leasehold_jobs", "leasehold_migrations"])

      const refused = yield* Effect.flip(run)
      expect(refused).toMatchObject({ _tag: "MigrationDirty", step: "0002_queues" })
      expect(refused.message).toContain("delete that row")
      expect(yield* Effect.flip(Migrations.verify(connections, tables, steps))).toMatchObject({
        _tag: "MigrationDirty"
      })

      yield* outside.query("DELETE FROM leasehold_migrations WHERE step = 2")
      expect(yield* run).toEqual(["0002_queues", "0003_refusals"])
    })
  )

  it.scopedLive("that another process is in the middle of are missing, and nothing to repair", () =>
    Effect.gen(function* () {
      const { connections, outside, run, steps, tables } = yield* scene
      yield* run
      yield* outside.query("UPDATE leasehold_migrations SET done_at = NULL WHERE step = 3")
      const verify = Effect.flip(Migrations.verify(connections, tables, steps))
      yield* Migrations.locked(connections, tables, "migrate", () =>
        Effect.map(Effect.exit(verify), (exit) =>
          expect(exit).toMatchObject(Exit.succeed({ _tag: "SchemaOutdated", missing: ["0003_refusals"] }))
        )
      )
      expect(yield* verify).toMatchObject({ _tag: "MigrationDirty", step: "0003_refusals" })
    })
  )

  it.scopedLive("whose text was edited after it was applied are refused", () =>
    Effect.gen(function* () {
      const { connections, run, steps, tables } = yield* scene
      yield* run
      const edited = steps.map((step) => (step.number === 1 ? { ...step, checksum: "0".repeat(64) } : step))
      expect(yield* Effect.flip(Migrations.run(connections, tables, edited))).toMatchObject({
        _tag: "MigrationEdited",
        step: "0001_jobs"
      })
    })
  )

  it.scopedLive("of a newer release are refused by an older library, which changes nothing", () =>
    Effect.gen(function* () {
      const { connections, run, steps, tables } = yield* scene
      yield* run
      const older = steps.slice(0, 2)
      for (const attempt of [
        Migrations.run(connections, tables, older),
        Migrations.verify(connections, tables, older)
      ]) {
        expect(yield* Effect.flip(attempt)).toMatchObject({ _tag: "SchemaNewerThanLibrary", database: 3, library: 2 })
      }
    })
  )

  it.scopedLive("that are missing are named by verify", () =>
    Effect.gen(function* () {
      const { connections, outside, steps, tables } = yield* scene
      expect(yield* Effect.flip(Migrations.verify(connections, tables, steps))).toMatchObject({
        _tag: "SchemaOutdated",
        missing: ["0001_jobs", "0002_queues", "0003_refusals"]
      })
      expect(yield* tableNames(outside)).toEqual([])
    })
  )

  it.scopedLive("leave the lock free after a failure", () =>
    Effect.gen(function* () {
      const { connections, outside, steps, tables } = yield* scene
      yield* Effect.exit(
        Migrations.run(connections, tables, [{ number: 1, name: "0001_bad", text: "CREATE", checksum: "x" }])
      )
      const [row] = yield* outside.query(
        "SELECT IS_FREE_LOCK(CONCAT('leasehold_', LEFT(SHA2(CONCAT(DATABASE(), '/leasehold_'), 256), 40))) AS free"
      )
      expect(row).toEqual({ free: 1 })
      expect(yield* Effect.flip(Migrations.run(connections, tables, steps))).toMatchObject({ _tag: "MigrationDirty" })
    })
  )

  it.scopedLive("of two prefixes in one database stay apart, however long the names are", () =>
    Effect.gen(function* () {
      const { connections, outside, steps } = yield* scene
      const first = yield* Tables.make("a_")
      const second = yield* Tables.make(`b${"_".repeat(29)}`)
      yield* Effect.all([Migrations.run(connections, first, steps), Migrations.run(connections, second, steps)], {
        concurrency: 2
      })
      expect(yield* tableNames(outside)).toHaveLength(8)
      for (const prefix of ["", "A_", "1_", "a-b", "a`b", "a.b", `c${"_".repeat(30)}`]) {
        expect(yield* Effect.flip(Tables.make(prefix))).toMatchObject({ _tag: "InvalidName", kind: "table prefix" })
      }
    })
  )

  it.scopedLive("pin the character sets of the tables, whatever the database's default", () =>
    Effect.gen(function* () {
      const outside = yield* emptyDatabase("CHARACTER SET latin1")
      const connections = yield* connect(outside)
      const tables = yield* Tables.make("leasehold_")
      yield* Migrations.run(connections, tables, yield* Migrations.steps)
      const columns = yield* outside.query(
        "SELECT character_set_name AS charset, COUNT(*) AS columns_of_it FROM information_schema.columns"
          + " WHERE table_schema = DATABASE() AND character_set_name IS NOT NULL GROUP BY 1 ORDER BY 1"
      )
      expect(columns.map(({ charset }) => charset)).toEqual(["ascii", "utf8mb4"])
    })
  )

  it.scopedLive("I6: make no column that sets itself to now, where the server would make them so", () =>
    Effect.gen(function* () {
      const outside = yield* emptyDatabase()
      const given = "SET SESSION explicit_defaults_for_timestamp = OFF"
      const connections = yield* Connections.make(
        { url: Redacted.make(outside.url) },
        { size: 2, statementTimeout: Duration.seconds(5), settings: `${given}; ${Connections.pinned}` }
      )
      yield* Migrations.run(connections, yield* Tables.make("leasehold_"), yield* Migrations.steps)
      const automatic = outside.query(
        "SELECT table_name AS name, column_name AS col FROM information_schema.columns WHERE table_schema = DATABASE()"
          + " AND (data_type = 'timestamp' OR extra LIKE '%on update%' OR column_default LIKE '%CURRENT_TIMESTAMP%')"
      )
      expect(yield* automatic).toEqual([])
      // Such a column would be seen.
      yield* outside.query(`${given}; CREATE TABLE planted (id INT PRIMARY KEY, at TIMESTAMP)`)
      expect(yield* automatic).toEqual([{ name: "planted", col: "at" }])
    })
  )
})
