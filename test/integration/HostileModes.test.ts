import { SqlClient } from "@effect/sql"
import { MysqlClient } from "@effect/sql-mysql2"
import { expect, layer } from "@effect/vitest"
import { Duration, Effect, Fiber, Layer, Option, Redacted, Schema, String as Text } from "effect"
import { Job, MysqlQueue, Queue, Worker } from "../../src/index.js"
import { JobStore } from "../../src/JobStore.js"
import * as Connections from "../../src/mysql/Connections.js"
import * as MysqlJobStore from "../../src/mysql/MysqlJobStore.js"
import * as Tables from "../../src/mysql/Tables.js"
import { Database, database } from "../support/Mysql.js"
import { queue } from "../support/QueueOnMysql.js"

const jobOn = (queueName: string) =>
  Job.make("mode.work", { payload: { text: Schema.String }, success: Schema.String, queue: queueName })

const hostile = "'; DROP TABLE leasehold_jobs; -- \\' \" ` % _ * \n \u{1F600}"

/** Everything that joins the caller's transaction, once. */
const everythingOn = (job: ReturnType<typeof jobOn>, scope: string) =>
  Effect.gen(function* () {
    const idempotency = { scope, key: hostile }
    const one = yield* Queue.enqueue(job, { text: hostile }, { idempotency, delay: "1 hour" })
    expect(one.created).toBe(true)
    expect(yield* Queue.enqueue(job, { text: hostile }, { idempotency })).toEqual({ id: one.id, created: false })
    const conflict = yield* Effect.flip(Queue.enqueue(job, { text: "" }, { idempotency }))
    expect(conflict).toMatchObject({ _tag: "IdempotencyConflict", jobId: Option.some(one.id) })
    const many = yield* Queue.enqueueMany([
      Queue.request(job, { text: hostile }, { idempotency }),
      Queue.request(job, { text: "2" }, { priority: 9 }),
      Queue.request(job, { text: "3" }, { idempotency: { scope, key: `${hostile}3` } })
    ])
    expect(many.map(({ created }) => created)).toEqual([false, true, true])
    expect((yield* Queue.get(one.id)).payload).toBe(JSON.stringify({ text: hostile }))
    expect(yield* Queue.find(idempotency)).toMatchObject({ value: { id: one.id, state: "pending" } })
    expect(yield* Queue.cancel(one.id)).toEqual({ _tag: "canceled" })
    yield* Queue.retry(one.id)
    expect((yield* Queue.get(one.id)).state).toBe("pending")
    return [one.id, ...many.slice(1).map(({ id }) => id)]
  })

const modes = [
  "",
  "ANSI",
  "ANSI_QUOTES",
  "NO_BACKSLASH_ESCAPES",
  "PIPES_AS_CONCAT",
  "TRADITIONAL",
  "HIGH_NOT_PRECEDENCE",
  "PAD_CHAR_TO_FULL_LENGTH",
  "ONLY_FULL_GROUP_BY,NO_ZERO_DATE,NO_UNSIGNED_SUBTRACTION",
  "ANSI,NO_BACKSLASH_ESCAPES,TRADITIONAL,IGNORE_SPACE,REAL_AS_FLOAT"
]

layer(queue(), { excludeTestServices: true, timeout: "1 minute" })("under a session's sql_mode", (it) => {
  for (const mode of modes) {
    it.effect(`${mode === "" ? "that is empty" : mode}, all that joins a transaction works as ever`, () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const job = jobOn("modes")
        const ids = yield* sql.withTransaction(
          Effect.gen(function* () {
            yield* sql`SET SESSION sql_mode = ${mode}`
            return yield* Effect.ensuring(
              everythingOn(job, `mode ${mode}`),
              Effect.orDie(sql`SET SESSION sql_mode = DEFAULT`)
            )
          })
        )
        const records = yield* Effect.forEach(ids, (id) => Queue.get(id))
        expect(records.map(({ state }) => state)).toEqual(["pending", "pending", "pending"])
      })
    )

    it.scoped(`${mode === "" ? "that is empty" : mode}, completeWith and withTransaction do too`, () =>
      Effect.gen(function* () {
        // As where the server gives this mode to every new session, of the library's too.
        const { query, url } = yield* Database
        const tables = yield* Tables.make(Tables.defaultPrefix)
        const config = { url: Redacted.make(url) }
        const open = (settings: string) =>
          Connections.make(config, { size: 2, statementTimeout: Duration.seconds(5), settings })
        const fromServer = `SET SESSION sql_mode = '${mode}', SESSION time_zone = '+05:30', SESSION autocommit = 0;`
        const store = MysqlJobStore.make({
          tables,
          worker: yield* open(fromServer + Connections.pinned),
          client: yield* open(fromServer + Connections.pinned),
          transactions: yield* open(fromServer + Connections.forCallers),
          statementTimeout: Duration.seconds(5),
          packet: 1024 * 1024,
          fronts: new Map()
        })
        const install = Layer.provideMerge(Queue.layer, Layer.succeed(JobStore, store))
        const sql = yield* SqlClient.SqlClient
        const job = jobOn(`complete-${modes.indexOf(mode)}`)
        yield* query("CREATE TABLE IF NOT EXISTS notes (text VARCHAR(200) CHARACTER SET utf8mb4)")
        yield* Effect.gen(function* () {
          const { id } = yield* Queue.withTransaction(
            Effect.gen(function* () {
              yield* everythingOn(job, `own ${mode}`)
              return yield* Queue.enqueue(job, { text: hostile }, { priority: 0 })
            })
          )
          const lease = yield* Queue.claim(job)
          expect(lease.jobId).toBe(id)
          yield* lease.completeWith(
            Effect.gen(function* () {
              const [session] = yield* sql<{ mode: string }>`SELECT @@sql_mode AS mode`
              // The caller's statements are to mean there what they mean on his own connections.
              expect(session?.mode ?? "").toContain(mode.split(",").at(-1))
              yield* sql`INSERT INTO notes VALUES (${hostile})`
              return hostile
            })
          )
          const record = yield* Queue.get(id)
          expect(record).toMatchObject({ state: "succeeded", output: Option.some(JSON.stringify(hostile)) })
          expect(record.attempts).toHaveLength(1)
          expect(Math.abs((record.attempts[0]?.startedAt.epochMillis ?? 0) - Date.now())).toBeLessThan(60_000)
        }).pipe(Effect.provide(install))
      })
    )
  }
})

const names = { camelToSnake: Text.camelToSnake, snakeToCamel: Text.snakeToCamel, shout: Text.toUpperCase }

const transformed = (transforms: {
  readonly transformQueryNames?: (name: string) => string
  readonly transformResultNames?: (name: string) => string
}) =>
  MysqlQueue.layer().pipe(
    Layer.provideMerge(
      Layer.unwrapEffect(
        Effect.map(Database, ({ url }) =>
          MysqlClient.layer({ url: Redacted.make(url), maxConnections: 4, ...transforms })
        )
      )
    ),
    Layer.provideMerge(database)
  )

for (const [name, transforms] of Object.entries({
  "of queries to snake case": { transformQueryNames: names.camelToSnake },
  "of queries and results": { transformQueryNames: names.camelToSnake, transformResultNames: names.snakeToCamel },
  "of results to capitals": { transformResultNames: names.shout }
})) {
  layer(transformed(transforms), { excludeTestServices: true, timeout: "1 minute" })(
    `with the client's transforms ${name}`,
    (it) => {
      it.effect("a job lives its whole life, and the caller's own statements keep their transforms", () =>
        Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          const job = jobOn("transforms")
          yield* sql`CREATE TABLE order_lines (line_id INT PRIMARY KEY, line_text TEXT)`
          const ids = yield* sql.withTransaction(everythingOn(job, "t"))
          yield* Effect.scoped(
            Effect.gen(function* () {
              const lease = yield* Queue.claim(job)
              expect(ids).toContain(lease.jobId)
              yield* lease.completeWith(
                Effect.gen(function* () {
                  const lineId = transforms.transformQueryNames === undefined ? "line_id" : "lineId"
                  const lineText = transforms.transformQueryNames === undefined ? "line_text" : "lineText"
                  yield* sql`INSERT INTO order_lines ${sql.insert({ [lineId]: 1, [lineText]: "x" })}`
                  const [row] = yield* sql`SELECT line_id FROM order_lines`
                  const asked = transforms.transformResultNames?.("line_id") ?? "line_id"
                  expect(row).toEqual({ [asked]: 1 })
                  return "done"
                })
              )
              expect(yield* Queue.get(lease.jobId)).toMatchObject({ state: "succeeded", attempt: 1 })
            })
          )
          const handler = job.toLayer(({ text }) => Effect.succeed(text))
          const worker = yield* Effect.fork(
            Effect.provide(Worker.run({ jobs: [job], queues: { transforms: { concurrency: 2 } } }), handler)
          )
          const { id } = yield* Queue.withTransaction(Queue.enqueue(job, { text: "again" }, { priority: 0 }))
          expect(yield* Queue.result(job, id)).toBe("again")
          yield* Fiber.interrupt(worker)
        })
      )
    }
  )
}

layer(database, { excludeTestServices: true, timeout: "1 minute" })("a table prefix", (it) => {
  const install = (url: string, options: MysqlQueue.Options) =>
    Layer.build(
      MysqlQueue.layer({ connections: { worker: 2, client: 2, transaction: 2 }, ...options }).pipe(
        Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(url), maxConnections: 3 }))
      )
    )

  it.scoped("keeps two queues in one database apart: jobs, keys, pauses, migrations", () =>
    Effect.gen(function* () {
      const { query, url } = yield* Database
      const [a, b] = yield* Effect.all(
        [install(url, { tablePrefix: "a_" }), install(url, { tablePrefix: "b_".padEnd(30, "z") })],
        { concurrency: 2 }
      )
      const tables = yield* query(
        "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name"
      )
      expect(tables.filter(({ name }) => !/^(a_|b_z{28})/.test(String(name)))).toEqual([])
      expect(tables).toHaveLength(8)
      const job = jobOn("both")
      const enqueue = Queue.enqueue(job, { text: "x" }, { idempotency: { key: "same" } })
      expect((yield* Effect.provide(enqueue, a)).created).toBe(true)
      expect((yield* Effect.provide(enqueue, b)).created).toBe(true)
      expect((yield* Effect.provide(enqueue, b)).created).toBe(false)
      yield* Effect.provide(Queue.pause("both"), a)
      expect(yield* Effect.provide(Queue.paused, a)).toEqual(["both"])
      expect(yield* Effect.provide(Queue.paused, b)).toEqual([])
      const run = Effect.scoped(
        Effect.gen(function* () {
          const lease = yield* Queue.claim(job)
          yield* lease.complete("done")
          return lease.jobId
        })
      )
      const id = yield* Effect.provide(run, b)
      expect((yield* Effect.provide(Queue.get(id), b)).state).toBe("succeeded")
      expect((yield* Effect.provide(Queue.list(), a)).map(({ state }) => state)).toEqual(["pending"])
    })
  )

  it.scoped("that is too long or no plain name is refused before any DDL", () =>
    Effect.gen(function* () {
      const { url } = yield* Database
      for (const tablePrefix of [
        "x".repeat(31),
        "",
        "Jobs_",
        "1_",
        "_",
        "a-",
        "a.",
        "a`",
        "a'; DROP TABLE a_jobs; --",
        "ä_",
        "a b"
      ]) {
        const refused = yield* Effect.flip(install(url, { tablePrefix }))
        expect(refused).toMatchObject({ _tag: "InvalidName", kind: "table prefix" })
      }
      yield* install(url, { tablePrefix: "select" })
    })
  )
})

layer(database, { excludeTestServices: true, timeout: "1 minute" })("a database user", (it) => {
  /** A user with these rights, one a line: `SELECT ON jobs`. */
  const user = (name: string, grants: ReadonlyArray<string>) =>
    Effect.gen(function* () {
      const { query, url } = yield* Database
      const schema = new URL(url).pathname.slice(1)
      const account = `'${name}_${schema.slice(-8)}'@'%'`
      yield* Effect.acquireRelease(query(`CREATE USER ${account} IDENTIFIED BY 'p'`), () =>
        query(`DROP USER ${account}`)
      )
      for (const grant of grants) {
        const [rights, table] = grant.split(" ON ")
        yield* query(`GRANT ${rights} ON ${schema}.${table === "*" ? "*" : `leasehold_${table}`} TO ${account}`)
      }
      const own = new URL(url)
      own.username = `${name}_${schema.slice(-8)}`
      own.password = "p"
      return own.href
    })

  const as = (url: string, options: MysqlQueue.Options) =>
    Layer.build(
      MysqlQueue.layer({ connections: { worker: 2, client: 2, transaction: 2 }, ...options }).pipe(
        Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(url), maxConnections: 3 }))
      )
    )

  const migrator = ["CREATE, SELECT, INSERT, UPDATE ON *"]
  const start = ["SELECT, UPDATE ON migrations"]
  const producer = [...start, "SELECT, INSERT ON jobs"]
  const operator = [
    ...start,
    "SELECT, INSERT, UPDATE ON jobs",
    "SELECT, INSERT, UPDATE ON queues",
    "SELECT ON refusals"
  ]
  const worker = [...start, "SELECT, UPDATE, DELETE ON jobs", "SELECT ON queues", "SELECT, INSERT, DELETE ON refusals"]

  it.scoped("that migrates needs to create tables; with rights on rows only, the queue starts on them and works", () =>
    Effect.gen(function* () {
      const { query } = yield* Database
      const job = jobOn("rights")
      const creates = yield* user("mig", migrator)
      yield* as(creates, { migrate: "auto" })
      const produces = yield* as(yield* user("pro", producer), { migrate: "verify" })
      const operates = yield* as(yield* user("ope", operator), { migrate: "verify" })
      const works = yield* as(yield* user("wor", worker), { migrate: "verify" })

      yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const idempotency = { key: "k" }
        const first = yield* Queue.enqueue(job, { text: "1" }, { idempotency })
        expect(yield* sql.withTransaction(Queue.enqueue(job, { text: "1" }, { idempotency }))).toEqual({
          id: first.id,
          created: false
        })
        yield* sql.withTransaction(Queue.enqueueAll(job, [{ text: "2" }, { text: "3" }]))
        yield* Queue.withTransaction(Queue.enqueue(job, { text: "4" }))
        expect(yield* Queue.find(idempotency)).toMatchObject({ value: { id: first.id } })
        expect(yield* Queue.list()).toHaveLength(4)
        const denied = yield* Effect.flip(Queue.cancel(first.id))
        expect(denied).toMatchObject({ _tag: "StoreRejected", code: expect.stringContaining("1142") })
      }).pipe(Effect.provide(produces))

      const ids = (yield* Effect.provide(Queue.list(), operates)).map(({ id }) => id)
      yield* Effect.gen(function* () {
        yield* Queue.pause("rights")
        yield* Queue.cancel(ids[3] ?? "")
        yield* Queue.retry(ids[3] ?? "")
        yield* Queue.retryAll({ queue: "none" })
        yield* Queue.why(ids[3] ?? "")
        yield* Queue.counts
        yield* Queue.resume("rights")
      }).pipe(Effect.provide(operates))

      const results = yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const handler = job.toLayer(({ text }, lease) =>
          text === "1" ? Effect.orDie(lease.completeWith(Effect.as(sql`SELECT 1`, text))) : Effect.succeed(text)
        )
        const options = {
          jobs: [job],
          queues: { rights: { concurrency: 2 } },
          poll: "50 millis",
          lease: "1 second",
          maintenance: { reap: "1 second", retention: { succeeded: "1 millis" } }
        } as const
        const fiber = yield* Effect.fork(Effect.provide(Worker.run(options), handler))
        const answers = yield* Effect.forEach(ids, (id) => Queue.result(job, id))
        const store = yield* JobStore
        const walked = yield* store.clean({ succeeded: Duration.zero }, "", 100)
        yield* store.reap("", 100)
        yield* Fiber.interrupt(fiber)
        return { answers, cleaned: walked.cleaned }
      }).pipe(Effect.provide(works))
      expect(results).toEqual({ answers: ["1", "2", "3", "4"], cleaned: 4 })
      expect(yield* query("SELECT COUNT(*) AS left_over FROM leasehold_jobs")).toEqual([{ left_over: 0 }])
    })
  )

  /** The verbs of a role, with whatever they need: each is refused where a right is missing. */
  const work: {
    readonly [role: string]: (
      job: ReturnType<typeof jobOn>
    ) => Effect.Effect<void, unknown, Queue.Queue | JobStore | SqlClient.SqlClient>
  } = {
    producer: (job: ReturnType<typeof jobOn>) =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { id } = yield* Queue.enqueue(job, { text: "x" })
        yield* sql.withTransaction(Queue.enqueue(job, { text: "x" }, { idempotency: { key: job.queue } }))
        yield* Queue.get(id)
      }),
    operator: (job: ReturnType<typeof jobOn>) =>
      Effect.gen(function* () {
        const { id } = yield* Queue.enqueue(job, { text: "x" })
        yield* Queue.cancel(id)
        yield* Queue.retry(id)
        yield* Queue.pause(job.queue)
        yield* Queue.resume(job.queue)
        yield* Queue.paused
        yield* Queue.why(id)
      }),
    worker: (job: ReturnType<typeof jobOn>) =>
      Effect.gen(function* () {
        const store = yield* JobStore
        const { jobs } = yield* store.claim({
          queue: job.queue,
          types: [{ type: job.type, version: 1 }],
          worker: "w",
          lease: Duration.minutes(1),
          limit: 10
        })
        const lease = jobs[0]?.lease ?? (yield* Effect.die("a job was there"))
        yield* store.renew([lease], Duration.minutes(1))
        yield* store.recordRefusals([{ lease, verb: "complete" }])
        yield* store.settle([[lease, { _tag: "Complete", output: null }]])
        yield* store.reap("", 100)
        yield* store.clean({ succeeded: Duration.zero }, "", 100)
      })
  }

  it.scoped("with one right less can not do its work: none of them is granted for nothing", () =>
    Effect.gen(function* () {
      const { query, url } = yield* Database
      const admin = yield* as(url, { migrate: "auto" })
      const roles = { producer, operator, worker }
      for (const role of ["producer", "operator", "worker"] as const) {
        const rights = roles[role].flatMap((grant) => {
          const [list, table] = grant.split(" ON ")
          return (list ?? "").split(", ").map((right) => `${right} ON ${table}`)
        })
        for (const missing of [undefined, ...rights]) {
          const name = `${role.slice(0, 1)}${missing === undefined ? "" : rights.indexOf(missing)}`
          const job = jobOn(`less.${name}`)
          yield* query("DELETE FROM leasehold_jobs; DELETE FROM leasehold_refusals")
          yield* Effect.provide(Queue.enqueue(job, { text: "x" }), admin)
          const own = yield* user(
            name,
            rights.filter((right) => right !== missing)
          )
          const outcome = yield* as(own, { migrate: "verify" }).pipe(
            Effect.flatMap((install) => Effect.provide(work[role]?.(job) ?? Effect.void, install)),
            Effect.scoped,
            Effect.either
          )
          const denied = outcome._tag === "Left" && /ER_\w+ 114[23]/.test(JSON.stringify(outcome.left))
          expect({ role, missing, denied, outcome: outcome._tag }).toEqual({
            role,
            missing,
            denied: missing !== undefined,
            outcome: missing === undefined ? "Right" : "Left"
          })
        }
      }
    })
  )
})
