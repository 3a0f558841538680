import { SqlClient } from "@effect/sql"
import { MysqlClient } from "@effect/sql-mysql2"
import { expect, layer } from "@effect/vitest"
import { Duration, Effect, Fiber, Layer, Option, Redacted, Schema, String as Text } from "effect"
import { Job, MysqlQueue, Queue, Worker } from "../../src/index.js"
import { JobStore } from "../../src/JobStore.js"
import * as Connections from "../../src/mysql/Connections.js"
import * as MysqlJobStore from "../../src/mysql/MysqlJobStore.js"
import * as Tables from "../../src/mysql/Tables.js"
import { Database, database, storeOn } from "../support/Mysql.js"
import { queue } from "../support/QueueOnMysql.js"
import { scene } from "../support/Scene.js"

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

for (const names of ["latin1", "utf8mb3"]) {
  layer(storeOn(`SET NAMES ${names};`), { excludeTestServices: true, timeout: "1 minute" })(
    `where the server gives ${names} to every session, whatever the driver asked for`,
    (it) => {
      it.effect("text of any character goes in and comes out as it is, alone and in a bulk", () =>
        Effect.gen(function* () {
          const { claim, newJob, queue, record, settle, store } = yield* scene
          const { query } = yield* Database
          const text = JSON.stringify(hostile)
          for (const count of [1, 3]) {
            yield* store.enqueue(Array.from({ length: count }, () => newJob({ payload: text })))
            expect(yield* query("SELECT payload FROM leasehold_jobs WHERE queue = ? AND state = 0", [queue])).toEqual(
              Array.from({ length: count }, () => ({ payload: text }))
            )
            const { jobs } = yield* claim({ limit: count })
            expect(jobs.map(({ payload }) => payload)).toEqual(Array.from({ length: count }, () => text))
            for (const { lease } of jobs) {
              yield* settle(lease, { _tag: "Complete", output: text })
              expect((yield* record(lease.jobId)).output).toEqual(Option.some(text))
            }
          }
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
