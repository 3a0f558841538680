import { randomUUID } from "node:crypto"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Schema } from "effect"
import { command } from "../../support/CommandRun.js"
import { emptyDatabase, type Outside, outside } from "../../support/Mysql.js"
import * as Proxy from "../../support/Proxy.js"
import { until } from "../../support/Until.js"

const Findings = Schema.parseJson(
  Schema.Array(
    Schema.Struct({
      check: Schema.String,
      level: Schema.String,
      says: Schema.String,
      advice: Schema.optional(Schema.String)
    })
  )
)

const examine = (url: string, args: ReadonlyArray<string> = []) =>
  Effect.gen(function* () {
    const ran = yield* command(["doctor", "--json", ...args], { url })
    const findings = Schema.decodeUnknownSync(Findings)(ran.out)
    for (const { advice, level } of findings) expect(level === "ok" || (advice ?? "") !== "").toBe(true)
    const of = (check: string) => findings.filter((finding) => finding.check === check)
    return { code: ran.code, findings, of, levels: (check: string) => of(check).map(({ level }) => level) }
  })

const migrated = Effect.gen(function* () {
  const database = yield* emptyDatabase()
  expect(yield* command(["migrate"], database)).toMatchObject({ code: 0 })
  return database
})

/** Jobs of a queue, every one due since so many seconds, and as many ended ones. */
const fill = ({ query }: Outside, queue: string, count: number, seconds: number) =>
  query(
    "INSERT INTO leasehold_jobs (queue, type, priority, state, enqueued_at, first_due_at, due_at)"
      + " WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)"
      + " SELECT /*+ SET_VAR(cte_max_recursion_depth = 50000) */ ?, CONCAT('type.', n % 3), n % 10, IF(n % 2, 0, 2),"
      + " UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), IF(n % 2, UTC_TIMESTAMP(6) - INTERVAL ? SECOND, NULL) FROM numbers",
    [2 * count, queue, seconds]
  )

/** A user who may do only what is granted, on the tables of a database. */
const user = (database: Outside, name: string, grants: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const admin = yield* outside(database.url)
    const unique = `${name}_${randomUUID().slice(0, 8)}`
    const account = `'${unique}'@'%'`
    yield* Effect.acquireRelease(
      admin.query(`CREATE USER ${account} IDENTIFIED WITH caching_sha2_password BY 'hunter2'`),
      () => admin.query(`DROP USER ${account}`)
    )
    const url = new URL(database.url)
    for (const grant of grants) {
      yield* admin.query(`GRANT ${grant.replace(" ON ", ` ON ${url.pathname.slice(1)}.`)} TO ${account}`)
    }
    url.username = unique
    url.password = "hunter2"
    return url.href
  })

describe("leasehold doctor", () => {
  it.scopedLive("finds a fresh install in order", () =>
    Effect.gen(function* () {
      const { url } = yield* migrated
      const { code, findings, levels } = yield* examine(url)
      expect(findings.filter(({ check, level }) => level === "problem" && check !== "drift")).toEqual([])
      expect(code === 0 || levels("drift").includes("problem")).toBe(true)
      expect(levels("tables")).toEqual(["ok"])
      expect(levels("rights")).toEqual(["ok", "ok", "ok"])
      expect(levels("locks")).toEqual(["ok"])
      expect(levels("claim")).toEqual(["ok"])
      expect(levels("isolation")).toEqual(["ok"])
      const text = yield* command(["doctor"], { url })
      expect(text.out).toContain("ok       claim: no job is due, so only the plan was looked at: range on jobs_claim")
    })
  )

  it.scopedLive("tries the claim on the jobs that are there, counts its locks, and claims nothing", () =>
    Effect.gen(function* () {
      const database = yield* migrated
      yield* fill(database, "orders", 2_000, 3)
      yield* fill(database, "mail", 5, 3_600)
      const before = yield* database.query(
        "SELECT COUNT(*) AS n, SUM(state) AS s, SUM(token) AS t, MAX(due_at) AS d FROM leasehold_jobs"
      )
      const { of } = yield* examine(database.url)
      const says = of("claim").map((finding) => finding.says)
      expect(says.find((text) => text.startsWith("queue orders: "))).toMatch(
        /^queue orders: range on jobs_claim, 10 jobs locked for \d{2} rows read and 1\d locks in an index$/
      )
      expect(says.find((text) => text.startsWith("queue mail: "))).toContain("5 jobs locked")
      expect(of("claim").every(({ level }) => level === "ok")).toBe(true)
      expect(of("backlog").map((finding) => finding.says)).toEqual(["queue mail: the oldest due job waits for 1h"])
      expect(
        yield* database.query(
          "SELECT COUNT(*) AS n, SUM(state) AS s, SUM(token) AS t, MAX(due_at) AS d FROM leasehold_jobs"
        )
      ).toEqual(before)
      // Nothing is left locked: a session that does not wait gets them all.
      yield* database.query("START TRANSACTION")
      expect(yield* database.query("SELECT id FROM leasehold_jobs WHERE state = 0 FOR UPDATE NOWAIT")).toHaveLength(
        2_005
      )
      yield* database.query("ROLLBACK")
    })
  )

  it.scopedLive("warns of a paused queue whose jobs wait", () =>
    Effect.gen(function* () {
      const database = yield* migrated
      yield* fill(database, "orders", 1, 5)
      yield* command(["pause", "orders"], database)
      const { of } = yield* examine(database.url)
      expect(of("backlog")).toMatchObject([{ level: "warning", advice: "Open it: leasehold resume orders" }])
    })
  )

  it.scopedLive(
    "M6: tells of transactions that have been open for long, since the server can purge nothing meanwhile",
    () =>
      Effect.gen(function* () {
        const { url } = yield* migrated
        const proxy = yield* Proxy.make(url)
        // A minute is a second here.
        proxy.rules.push({
          matches: /innodb_trx/,
          action: { rewrite: (text) => text.replace("INTERVAL 1 MINUTE", "INTERVAL 1 SECOND") }
        })
        const snapshot = yield* outside(url)
        yield* snapshot.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        yield* Effect.sleep("2500 millis")
        const told = (yield* examine(proxy.url)).of("transactions")
        expect(told).toMatchObject([{ level: "warning", advice: expect.stringContaining("old snapshot") }])
        expect(told[0]?.says).toMatch(/open for more than a minute, the oldest for [0-9]+ seconds/)
      })
  )

  it.scopedLive("says so where the server refuses its list of transactions, and still looks at the rest", () =>
    Effect.gen(function* () {
      const database = yield* migrated
      const stranger = yield* outside(database.url)
      yield* fill(database, "orders", 1, 5)
      const [session] = yield* stranger.query("SELECT CONNECTION_ID() AS id")
      yield* stranger.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
      // MySQL 9.7 can not put a character of four bytes into that list (errno 3854).
      const asleep = yield* Effect.fork(stranger.query("SELECT SLEEP(600) /* \u{1F389} */"))
      yield* until(
        database.query("SELECT 1 FROM performance_schema.processlist WHERE state = 'User sleep' AND db = DATABASE()"),
        (rows) => rows.length === 1
      )
      // The server answers from what it has looked up before, until nobody has asked for a tenth of a second.
      const list = database.query("SELECT trx_query FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = ?", [
        session?.["id"]
      ])
      const listed = yield* until(
        Effect.delay(Effect.exit(list), "200 millis"),
        (answer) => Exit.isFailure(answer) || answer.value.length === 1
      )
      const refused = Exit.isFailure(listed)
      const { code, levels, of } = yield* examine(database.url)
      yield* Fiber.interrupt(asleep)
      expect([code, levels("connections"), levels("clock"), levels("claim")]).toEqual([0, ["ok"], ["ok"], ["ok"]])
      // Releases before that can, and see a transaction that has just begun.
      expect(of("transactions")).toMatchObject(
        refused
          ? [
              {
                level: "warning",
                says: expect.stringContaining("3854"),
                advice: expect.stringContaining("doctor again")
              }
            ]
          : [{ level: "ok" }]
      )
    })
  )

  it.scopedLive("has problems with tables that somebody changed, and names the lines", () =>
    Effect.gen(function* () {
      const database = yield* migrated
      yield* database.query("ALTER TABLE leasehold_jobs DROP KEY jobs_claim, ADD KEY mine (finished_at)")
      const { code, of } = yield* examine(database.url)
      expect(code).toBe(6)
      expect(of("tables").map(({ level, says }) => `${level}: ${says}`)).toEqual([
        "problem: leasehold_jobs lacks: KEY `jobs_claim` (`queue`,`priority`,`due_at`)",
        "warning: leasehold_jobs has, beside what the migrations make: KEY `mine` (`finished_at`)"
      ])
      expect(of("claim").map(({ level, says }) => `${level}: ${says}`)).toEqual([
        "problem: the index jobs_claim is missing: no job can be claimed"
      ])
    })
  )

  it.scopedLive("has a problem with tables that are missing, and still looks at the rest", () =>
    Effect.gen(function* () {
      const { url } = yield* emptyDatabase()
      const { code, levels } = yield* examine(url)
      expect(code).toBe(6)
      expect(levels("tables")).toEqual(["problem"])
      expect(levels("connections")).toHaveLength(1)
    })
  )

  it.scopedLive("knows what a user may do, by trying; a role that was asked for is a problem", () =>
    Effect.gen(function* () {
      const database = yield* migrated
      const url = yield* user(database, "doctor_producer", [
        "SELECT, INSERT ON leasehold_jobs",
        "SELECT ON leasehold_queues",
        "SELECT, UPDATE ON leasehold_migrations"
      ])
      const all = yield* examine(url)
      expect(all.levels("rights")).toEqual(["ok", "warning", "warning"])
      expect(all.of("rights").at(-1)?.says).toBe(
        "the user may not work: it lacks UPDATE on jobs, DELETE on jobs, SELECT on refusals, INSERT on refusals, DELETE on refusals"
      )
      expect(all.of("tables")).toMatchObject([{ level: "warning" }])
      expect((yield* examine(url, ["--role", "produce"])).levels("rights")).toEqual(["ok"])
      const worker = yield* examine(url, ["--role", "work"])
      expect(worker.levels("rights")).toEqual(["problem"])
      expect(worker.code).toBe(6)
    })
  )

  describe("the rights of who migrates", () => {
    const all = "CREATE, SELECT, INSERT, UPDATE ON *"
    const tablesOf = (database: Outside) =>
      database.query("SELECT table_name AS name FROM information_schema.tables WHERE table_schema = DATABASE()")

    it.scopedLive("are known before there is any table, and trying them makes none", () =>
      Effect.gen(function* () {
        const database = yield* emptyDatabase()
        const may = yield* user(database, "doctor_migrator", [all])
        const migrator = yield* examine(may, ["--role", "migrate"])
        expect(migrator.of("rights")).toMatchObject([{ level: "ok", says: "the user may migrate" }])
        // Unasked, since that is what has to be done next.
        expect((yield* examine(may)).of("rights")).toMatchObject([{ level: "ok", says: "the user may migrate" }])
        expect(yield* tablesOf(database)).toEqual([])
        expect(yield* command(["migrate"], { url: may })).toMatchObject({ code: 0 })
        const after = yield* tablesOf(database)
        expect((yield* examine(may, ["--role", "migrate"])).levels("rights")).toEqual(["ok"])
        expect(yield* tablesOf(database)).toEqual(after)
      })
    )

    // With one right less, a migration fails, and the doctor has said so, before and after there are tables.
    it.scopedLive.each(["CREATE", "SELECT", "INSERT", "UPDATE"])("without %s it is a problem", (lacking) =>
      Effect.gen(function* () {
        const fresh = yield* emptyDatabase()
        const rest = `${["CREATE", "SELECT", "INSERT", "UPDATE"].filter((right) => right !== lacking).join(", ")} ON *`
        const url = yield* user(fresh, "doctor_less", [rest])
        const before = yield* examine(url, ["--role", "migrate"])
        expect(before.code).toBe(6)
        expect(before.of("rights").map(({ says }) => says)).toEqual([
          lacking === "CREATE"
            ? "the user may not migrate: it lacks CREATE on migrations, CREATE on jobs, CREATE on queues, CREATE on refusals"
            : `the user may not migrate: it lacks ${lacking} on migrations`
        ])
        expect(yield* command(["migrate"], { url })).toMatchObject({ code: 3 })
      })
    )

    it.scopedLive("are nothing that a worker's user is told of, unless it is asked for", () =>
      Effect.gen(function* () {
        const database = yield* migrated
        const url = yield* user(database, "doctor_worker", ["SELECT, INSERT, UPDATE, DELETE ON *"])
        expect((yield* examine(url)).of("rights").map(({ says }) => says)).toEqual([
          "the user may produce",
          "the user may operate",
          "the user may work"
        ])
        const migrator = yield* examine(url, ["--role", "migrate"])
        expect(migrator.levels("rights")).toEqual(["problem"])
        expect(migrator.code).toBe(6)
      })
    )

    it.scopedLive("to repair, it takes temporary tables and DELETE besides", () =>
      Effect.gen(function* () {
        const database = yield* migrated
        const url = yield* user(database, "doctor_repair", [all])
        expect((yield* examine(url, ["--role", "repair"])).of("rights")).toMatchObject([
          {
            level: "problem",
            says: "the user may not repair: it lacks CREATE TEMPORARY TABLES on the database, DELETE on migrations"
          }
        ])
        const more = yield* user(database, "doctor_repairer", [
          all,
          "CREATE TEMPORARY TABLES ON *",
          "DELETE ON leasehold_migrations"
        ])
        expect((yield* examine(more, ["--role", "repair"])).levels("rights")).toEqual(["ok"])
      })
    )
  })

  it.scopedLive("--strict makes problems of warnings, and too many processes are one", () =>
    Effect.gen(function* () {
      const { url } = yield* migrated
      const [row] = yield* (yield* outside(url)).query("SELECT @@max_connections AS most")
      const most = Number(row?.["most"])
      const crowded = String(Math.ceil((most * 0.9) / 30))
      const warned = yield* examine(url, ["--processes", crowded, "--app-pool", "10"])
      expect(warned.levels("connections")).toEqual(["warning"])
      const strict = yield* examine(url, ["--processes", crowded, "--strict"])
      expect(strict.code).toBe(6)
      const tooMany = yield* examine(url, ["--processes", String(most)])
      expect(tooMany.levels("connections")).toEqual(["problem"])
      expect(tooMany.code).toBe(6)
    })
  )
})

describe("a database that can not be used", () => {
  it.scopedLive("is exit code 3 and one line that holds no password", () =>
    Effect.gen(function* () {
      const database = yield* migrated
      const url = new URL(yield* user(database, "doctor_reader", ["SELECT ON leasehold_jobs"]))
      const wrong = new URL(url)
      wrong.password = "letmein"
      const nowhere = new URL(database.url)
      nowhere.pathname = "/leasehold_no_such_database"
      const forbidden = new URL(url)
      forbidden.pathname = "/mysql"
      for (const [place, said] of [
        [wrong, `refuses the login of user "${url.username}": check user and password`],
        [nowhere, 'has no database "leasehold_no_such_database": create it'],
        [forbidden, `User "${url.username}" may not use database "mysql"`],
        [url, "was refused by the database"]
      ] as const) {
        for (const args of [["counts"], ["migrate", "--verify"]]) {
          const { code, err, out } = yield* command(args, { url: place.href })
          expect(err).toContain(said)
          expect(err.split("\n")).toHaveLength(1)
          expect(err).not.toMatch(/hunter2|letmein/)
          expect({ code, out }).toEqual({ code: 3, out: "" })
        }
      }
    })
  )

  it.scopedLive("is none for a user who may only read", () =>
    Effect.gen(function* () {
      const database = yield* migrated
      const url = yield* user(database, "doctor_watcher", [
        "SELECT ON leasehold_jobs",
        "SELECT ON leasehold_queues",
        "SELECT ON leasehold_refusals",
        "SELECT ON leasehold_migrations"
      ])
      yield* fill(database, "orders", 1, 5)
      expect(yield* command(["counts"], { url })).toMatchObject({ code: 0 })
      expect(yield* command(["why", "1"], { url })).toMatchObject({ code: 0 })
      const refused = yield* command(["cancel", "1"], { url })
      expect(refused.code).toBe(3)
      expect(refused.err).toContain("Grant the database user")
    })
  )
})
