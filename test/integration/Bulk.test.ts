import { SqlClient } from "@effect/sql"
import { expect, layer } from "@effect/vitest"
import { Duration, Effect, Fiber, Option, Redacted, Schema } from "effect"
import { Job, Queue, Worker } from "../../src/index.js"
import { JobId } from "../../src/JobRecord.js"
import { JobStore, type NewJob } from "../../src/JobStore.js"
import * as Connections from "../../src/mysql/Connections.js"
import * as Enqueueing from "../../src/mysql/Enqueueing.js"
import * as Tables from "../../src/mysql/Tables.js"
import { Database, outside } from "../support/Mysql.js"
import { queue } from "../support/QueueOnMysql.js"
import { until } from "../support/Until.js"

const jobOn = (queueName: string, type = "bulk.work") =>
  Job.make(type, { payload: { n: Schema.Number }, success: Schema.Number, queue: queueName })

const newJob = (queueName: string, payload: string): NewJob => ({
  queue: queueName,
  type: "bulk.work",
  priority: 5,
  payload,
  payloadVersion: 1,
  maxAttempts: Option.some(3),
  due: Option.none(),
  idempotency: Option.none(),
  traceContext: Option.none()
})

/** The rows of a queue as (id, payload), in the order of their ids. */
const rowsOf = (queueName: string) =>
  Effect.flatMap(Database, ({ query }) =>
    query("SELECT CAST(id AS CHAR) AS id, payload FROM leasehold_jobs WHERE queue = ? ORDER BY leasehold_jobs.id", [
      queueName
    ])
  )

layer(queue(), { excludeTestServices: true, timeout: "2 minutes" })("a bulk of jobs", (it) => {
  it.effect(
    "of a hundred thousand, of two types, goes in as a whole by few statements, and answers in its order",
    () =>
      Effect.gen(function* () {
        const { query } = yield* Database
        const [one, two] = [jobOn("large", "bulk.one"), jobOn("large", "bulk.two")]
        const executed = Effect.map(query("SHOW GLOBAL STATUS LIKE 'Com_insert'"), ([row]) => Number(row?.["Value"]))
        const before = yield* executed
        const requests = Array.from({ length: 100_000 }, (_, n) => Queue.request(n % 3 === 0 ? two : one, { n }))
        const answers = yield* Queue.enqueueMany(requests)
        // 400 statements of 250 rows, and what other suites do on the server meanwhile.
        expect((yield* executed) - before).toBeLessThan(10_000)
        expect(answers.every(({ created }) => created)).toBe(true)
        const [sums] = yield* query(
          "SELECT COUNT(*) AS jobs, SUM(type = 'bulk.two') AS two,"
            + " SUM(JSON_EXTRACT(payload, '$.n') = id - FIRST_ID) AS in_order FROM leasehold_jobs,"
            + " (SELECT MIN(id) AS FIRST_ID FROM leasehold_jobs WHERE queue = 'large') f WHERE queue = 'large'"
        )
        expect(sums).toMatchObject({ jobs: 100_000, two: "33334" })
        const sample = [0, 249, 250, 251, 49_999, 99_999]
        const records = yield* Effect.forEach(sample, (n) => Queue.get(answers[n]?.id ?? ""))
        expect(records.map(({ payload }) => payload)).toEqual(sample.map((n) => JSON.stringify({ n })))
      }),
    120_000
  )

  it.scoped("is cut by the bytes of its payloads, whatever their characters weigh", () =>
    Effect.gen(function* () {
      const { query, url } = yield* Database
      const tables = yield* Tables.make(Tables.defaultPrefix)
      const connections = yield* Connections.make(
        { url: Redacted.make(url) },
        { size: 2, statementTimeout: Duration.seconds(5), settings: Connections.pinned }
      )
      const packet = 1024 * 1024
      const enqueue = Enqueueing.make(tables, connections, Duration.seconds(5), packet, () => {})
      // Four bytes, and twice as many digits, for two UTF-16 units.
      const heavy = JSON.stringify("\u{1F600}".repeat(12_000))
      const payloads = Array.from({ length: 75 }, (_, index) => (index % 25 === 0 ? heavy : `"${"x".repeat(index)}"`))
      const enqueued = yield* enqueue(payloads.map((payload) => newJob("heavy", payload)))
      expect(yield* rowsOf("heavy")).toEqual(payloads.map((payload, index) => ({ id: enqueued[index]?.id, payload })))
      // One that is over the half of a packet goes alone, and the server decides about it.
      const alone = yield* enqueue([
        newJob("alone", heavy.repeat(1)),
        newJob("alone", JSON.stringify("y".repeat(400_000)))
      ])
      expect(yield* rowsOf("alone")).toHaveLength(alone.length)
      const sizes = yield* query(
        "SELECT MAX(LENGTH(sql_text)) AS longest FROM performance_schema.prepared_statements_instances"
          + " WHERE sql_text LIKE 'INSERT INTO leasehold_jobs%'"
      )
      expect(Number(sizes[0]?.["longest"])).toBeLessThan(packet / 2)
    })
  )

  it.effect(
    "of jobs that are alike holds each payload as it is, and what they have in common, whatever came before",
    () =>
      Effect.gen(function* () {
        const { query } = yield* Database
        const [store, columns] = [
          yield* JobStore,
          "type, priority, max_attempts, payload_version, trace_context, payload"
        ]
        const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        const plain = [`"'\\\\" ? ; -- \u0000 ü"`, null, '"?"', "1e3"]
        const kinds: ReadonlyArray<Partial<NewJob>> = [
          { maxAttempts: Option.none(), traceContext: Option.none() },
          { maxAttempts: Option.some(65_535), traceContext: Option.some(trace), priority: 0, payloadVersion: 65_535 },
          { type: "bulk.other", maxAttempts: Option.none(), priority: 9 },
          { maxAttempts: Option.some(1), traceContext: Option.none() }
        ]
        // More than once each, so that statements which were prepared for one kind meet the others.
        for (const [round, kind] of [...kinds, ...kinds].entries()) {
          // Those with a character of four bytes go another way.
          const texts = round % 3 === 2 ? [...plain, '"\u{1F600}"'] : plain
          const queueName = `alike.${round}`
          const jobs = Array.from({ length: 1_313 }, (_, n) => ({
            ...newJob(queueName, ""),
            ...kind,
            payload: texts[n % texts.length] ?? null
          }))
          const enqueued = yield* store.enqueue(jobs)
          const rows = yield* query(
            `SELECT CAST(id AS CHAR) AS id, ${columns} FROM leasehold_jobs WHERE queue = ? ORDER BY leasehold_jobs.id`,
            [queueName]
          )
          expect(rows).toEqual(
            jobs.map((job, n) => ({
              id: enqueued[n]?.id,
              type: job.type,
              priority: job.priority,
              max_attempts: Option.getOrNull(job.maxAttempts),
              payload_version: job.payloadVersion,
              trace_context: Option.getOrNull(job.traceContext),
              payload: job.payload
            }))
          )
        }
      })
  )

  it.scoped("of any characters leaves the server's list of processes readable while it runs", () =>
    Effect.gen(function* () {
      const { query, url } = yield* Database
      const store = yield* JobStore
      const holder = yield* outside(url)
      yield* holder.query("LOCK TABLES leasehold_jobs READ")
      const jobs = Array.from({ length: 60 }, () => newJob("listed", '"\u{1F600}"'))
      const waiting = yield* Effect.fork(store.enqueue(jobs))
      const listed = query(
        "SELECT COUNT(*) AS inserts FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'INSERT INTO%'"
      )
      yield* until(listed, ([row]) => row?.["inserts"] === 1)
      yield* holder.query("UNLOCK TABLES")
      expect(yield* Fiber.join(waiting)).toHaveLength(60)
    })
  )

  it.effect("answers the ids that its rows have where ids rise in steps", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const job = jobOn("steps")
      const answers = yield* sql.withTransaction(
        Effect.gen(function* () {
          yield* sql`SET SESSION auto_increment_increment = 3, SESSION auto_increment_offset = 2`
          const enqueued = yield* Queue.enqueueAll(
            job,
            Array.from({ length: 313 }, (_, n) => ({ n }))
          )
          yield* sql`SET SESSION auto_increment_increment = DEFAULT, SESSION auto_increment_offset = DEFAULT`
          return enqueued
        })
      )
      expect(yield* rowsOf("steps")).toEqual(answers.map(({ id }, n) => ({ id, payload: JSON.stringify({ n }) })))
      expect(BigInt(answers[1]?.id ?? 0) - BigInt(answers[0]?.id ?? 0)).toBe(3n)
    })
  )

  it.effect("finds all keys that are held, also where the caller's session limits its selects", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const job = jobOn("limited")
      const requests = Array.from({ length: 120 }, (_, n) =>
        Queue.request(job, { n }, { idempotency: { scope: "limited", key: `${n}` } })
      )
      const first = yield* Queue.enqueueMany(requests)
      const again = yield* sql.withTransaction(
        Effect.gen(function* () {
          yield* sql`SET SESSION sql_select_limit = 1, SESSION sql_safe_updates = 1`
          const answers = yield* Queue.enqueueMany(requests)
          yield* Queue.cancel(answers[0]?.id ?? "")
          yield* sql`SET SESSION sql_select_limit = DEFAULT, SESSION sql_safe_updates = DEFAULT`
          return answers
        })
      )
      expect(again).toEqual(first.map(({ id }) => ({ id, created: false })))
    })
  )

  it.effect("with ids above 2^53 is as exact as any: enqueue, page, cancel, retry, claim, run, result", () =>
    Effect.gen(function* () {
      const { query } = yield* Database
      const job = jobOn("ids")
      yield* query("ALTER TABLE leasehold_jobs AUTO_INCREMENT = 9007199254741002")
      const first = BigInt("9007199254741002")
      const answers = [
        yield* Queue.enqueue(job, { n: 0 }),
        ...(yield* Queue.enqueueAll(
          job,
          [1, 2, 3, 4].map((n) => ({ n }))
        ))
      ]
      const ids = answers.map(({ id }) => id)
      expect(ids).toEqual([0n, 1n, 2n, 3n, 4n].map((n) => String(first + n)))
      const page = yield* Queue.list({ queue: "ids", after: ids[1] ?? "", limit: 2 })
      expect(page.map(({ id }) => id)).toEqual(ids.slice(2, 4))
      expect(yield* Queue.cancel(ids[1] ?? "")).toEqual({ _tag: "canceled" })
      yield* Queue.retry(ids[1] ?? "")
      expect((yield* Queue.get(ids[1] ?? "")).state).toBe("pending")
      yield* Queue.cancel(ids[2] ?? "")
      const handler = job.toLayer(({ n }, lease) => Effect.succeed(lease.jobId === ids[n] ? n : -1))
      const worker = yield* Effect.fork(
        Effect.provide(Worker.run({ jobs: [job], queues: { ids: { concurrency: 2 } }, poll: "50 millis" }), handler)
      )
      const results = yield* Effect.forEach([0, 1, 3, 4], (n) => Queue.result(job, ids[n] ?? ""))
      yield* Fiber.interrupt(worker)
      expect(results).toEqual([0, 1, 3, 4])
      expect((yield* Queue.get(ids[2] ?? "")).state).toBe("canceled")
      // The largest id there can be is one, too.
      yield* query(
        "INSERT INTO leasehold_jobs (id, queue, type, first_due_at, due_at, enqueued_at)"
          + " VALUES (18446744073709551614, 'ids', 'bulk.work', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))"
      )
      const largest = JobId.make("18446744073709551614")
      expect((yield* Queue.get(largest)).id).toBe(largest)
      expect(yield* Queue.cancel(largest)).toEqual({ _tag: "canceled" })
    })
  )
})
