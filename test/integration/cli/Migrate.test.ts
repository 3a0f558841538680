import { describe, expect, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { command } from "../../support/CommandRun.js"
import { emptyDatabase, type Outside, outside } from "../../support/Mysql.js"

const steps = ["0001_jobs", "0002_queues", "0003_refusals"]

const tablesOf = ({ query }: Outside) =>
  Effect.map(
    query("SELECT table_name AS name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY 1"),
    (rows) => rows.map(({ name }) => name)
  )

const allTables = ["leasehold_jobs", "leasehold_migrations", "leasehold_queues", "leasehold_refusals"]

/** A database whose last step was begun and not done, as a process leaves it that dies there: before or after the statement. */
const stoppedIn = (step: 1 | 2 | 3, died: "before" | "after") =>
  Effect.gen(function* () {
    const database = yield* emptyDatabase()
    const migrated = yield* command(["migrate"], database)
    expect(migrated.code).toBe(0)
    yield* database.query(`DELETE FROM leasehold_migrations WHERE step > ${step}`)
    yield* database.query(`UPDATE leasehold_migrations SET done_at = NULL WHERE step = ${step}`)
    const names = ["jobs", "queues", "refusals"].slice(died === "before" ? step - 1 : step)
    for (const name of names) yield* database.query(`DROP TABLE leasehold_${name}`)
    const refused = yield* command(["migrate"], database)
    expect(refused).toMatchObject({ code: 4, out: "" })
    expect(refused.err).toContain("leasehold migrate --repair")
    return database
  })

describe("leasehold migrate", () => {
  it.scopedLive("creates the tables, then has nothing to do", () =>
    Effect.gen(function* () {
      const database = yield* emptyDatabase()
      const first = yield* command(["migrate"], database)
      expect(first.out.split("\n")).toEqual(steps.map((step) => `${step}: done`))
      expect(yield* tablesOf(database)).toEqual(allTables)
      const second = yield* command(["migrate", "--json"], database)
      expect(JSON.parse(second.out)).toEqual({ done: [] })
      expect((yield* command(["migrate", "--prefix", "other_"], database)).code).toBe(0)
      expect(yield* tablesOf(database)).toHaveLength(8)
    })
  )

  it.scopedLive("--verify and --dry-run change nothing; what the latter prints is what it takes", () =>
    Effect.gen(function* () {
      const database = yield* emptyDatabase()
      const missing = yield* command(["migrate", "--verify"], database)
      expect(missing.code).toBe(4)
      expect(missing.err).toContain(`lacks 3 migration steps (${steps.join(", ")}). Run: leasehold migrate`)
      const planned = yield* command(["migrate", "--dry-run", "--json"], database)
      const { planned: plan } = Schema.decodeUnknownSync(
        Schema.parseJson(
          Schema.Struct({ planned: Schema.Array(Schema.Struct({ name: Schema.String, statement: Schema.String })) })
        )
      )(planned.out)
      expect(plan.map(({ name }) => name)).toEqual(steps)
      const text = yield* command(["migrate", "--dry-run", "--prefix", "p_"], database)
      expect(text.out).toMatch(/^-- 0001_jobs\nCREATE TABLE p_jobs \(/)
      expect(yield* tablesOf(database)).toEqual([])

      const byHand = yield* emptyDatabase()
      for (const { statement } of plan) yield* byHand.query(statement)
      yield* command(["migrate"], database)
      for (const table of ["leasehold_jobs", "leasehold_queues", "leasehold_refusals"]) {
        expect(yield* byHand.query(`SHOW CREATE TABLE ${table}`)).toEqual(
          yield* database.query(`SHOW CREATE TABLE ${table}`)
        )
      }
      expect(yield* command(["migrate", "--verify"], database)).toMatchObject({ code: 0 })
      expect((yield* command(["migrate", "--dry-run"], database)).out).toContain("Nothing to do")
    })
  )

  it.scopedLive("--repair records a step whose table is there, and runs one whose table is not", () =>
    Effect.gen(function* () {
      for (const step of [1, 2, 3] as const) {
        for (const died of ["before", "after"] as const) {
          const database = yield* stoppedIn(step, died)
          const repaired = yield* command(["migrate", "--repair", "--json"], database)
          const did = died === "after" ? "recorded" : "withdrawn"
          expect(JSON.parse(repaired.out), `${step} ${died}`).toEqual({
            repaired: [{ step: steps[step - 1], did }],
            done: steps.slice(died === "after" ? step : step - 1)
          })
          expect(yield* tablesOf(database)).toEqual(allTables)
          expect(yield* command(["migrate", "--verify"], database)).toMatchObject({ code: 0 })
          expect((yield* command(["migrate", "--repair"], database)).out).toContain("Nothing to repair.")
        }
      }
    })
  )

  it.scopedLive("--repair of a table in use keeps its rows", () =>
    Effect.gen(function* () {
      const database = yield* stoppedIn(3, "after")
      yield* database.query(
        "INSERT INTO leasehold_refusals (job_id, token, verb, worker, refused_at) VALUES (1, 1, 'complete', 'w', UTC_TIMESTAMP(6))"
      )
      expect(yield* command(["migrate", "--repair"], database)).toMatchObject({ code: 0 })
      expect(yield* database.query("SELECT COUNT(*) AS n FROM leasehold_refusals")).toEqual([{ n: 1 }])
    })
  )

  it.scopedLive("--repair touches nothing where the table is somebody else's, and says so", () =>
    Effect.gen(function* () {
      const database = yield* stoppedIn(2, "before")
      yield* database.query("CREATE TABLE leasehold_queues (name VARCHAR(64) PRIMARY KEY)")
      const refused = yield* command(["migrate", "--repair"], database)
      expect(refused).toMatchObject({ code: 4, out: "" })
      expect(refused.err).toContain("Table leasehold_queues is neither")
      expect(yield* database.query("SHOW COLUMNS FROM leasehold_queues")).toHaveLength(1)
      expect(yield* database.query("SELECT step, done_at FROM leasehold_migrations WHERE step = 2")).toEqual([
        { step: 2, done_at: null }
      ])
    })
  )

  it.scopedLive("--repair waits for a migration that is under way, which is none to repair", () =>
    Effect.gen(function* () {
      const database = yield* stoppedIn(3, "after")
      const other = yield* outside(database.url)
      const lock = "CONCAT('leasehold_', LEFT(SHA2(CONCAT(DATABASE(), '/leasehold_'), 256), 40))"
      yield* other.query(`SELECT GET_LOCK(${lock}, 0)`)
      const waiting = yield* Effect.fork(command(["migrate", "--repair", "--json"], database))
      const isWaiting = database.query(
        "SELECT 1 FROM performance_schema.processlist WHERE state = 'User lock' AND db = DATABASE()"
      )
      yield* isWaiting.pipe(Effect.repeat({ until: (rows) => rows.length > 0 }))
      yield* other.query("UPDATE leasehold_migrations SET done_at = UTC_TIMESTAMP(6) WHERE step = 3")
      yield* other.query(`DO RELEASE_LOCK(${lock})`)
      expect(JSON.parse((yield* waiting).out)).toEqual({ repaired: [], done: [] })
    })
  )

  it.scopedLive("of an edited step is refused, and --repair does not help", () =>
    Effect.gen(function* () {
      const database = yield* stoppedIn(2, "after")
      yield* database.query("UPDATE leasehold_migrations SET checksum = REPEAT('0', 64) WHERE step = 2")
      const refused = yield* command(["migrate", "--repair"], database)
      expect(refused.code).toBe(4)
      expect(refused.err).toContain("repair it with the release that began it")
    })
  )
})

describe("other commands on tables that are not there", () => {
  it.scopedLive("say what to run, with exit code 4", () =>
    Effect.gen(function* () {
      const database = yield* emptyDatabase()
      for (const args of [
        ["counts"],
        ["show", "1"],
        ["enqueue", "a.b"],
        ["pause", "a"],
        ["retry", "--state", "dead"]
      ]) {
        const ran = yield* command(args, database)
        expect(ran).toMatchObject({ code: 4, out: "" })
        expect(ran.err).toContain("Run: leasehold migrate")
      }
    })
  )
})
