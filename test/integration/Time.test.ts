import { SqlClient } from "@effect/sql"
import { MysqlClient } from "@effect/sql-mysql2"
import { expect, layer } from "@effect/vitest"
import { DateTime, Duration, Effect, Layer, Option, Redacted, Schema } from "effect"
import type { PoolOptions } from "mysql2"
import { Job, MysqlQueue, Queue } from "../../src/index.js"
import { JobStore } from "../../src/JobStore.js"
import { Database, database } from "../support/Mysql.js"
import { queue } from "../support/QueueOnMysql.js"

const jobOn = (queueName: string) => Job.make("time.tell", { payload: { n: Schema.Number }, queue: queueName })

/** Microseconds since 1970 of the columns of a job, by the server's own reckoning. */
const microsOf = (id: string) =>
  Effect.flatMap(Database, ({ query }) =>
    Effect.map(
      query(
        `SELECT ${["due_at", "first_due_at", "enqueued_at"]
          .map((column) => `CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ${column}) AS CHAR) AS ${column}`)
          .join(", ")} FROM leasehold_jobs WHERE id = CAST(? AS DECIMAL(20))`,
        [id]
      ),
      ([row]) => ({
        due: BigInt(String(row?.["due_at"])),
        firstDue: BigInt(String(row?.["first_due_at"])),
        enqueued: BigInt(String(row?.["enqueued_at"]))
      })
    )
  )

const claimNow = (queueName: string) =>
  Effect.flatMap(JobStore, (store) =>
    store.claim({
      queue: queueName,
      types: [{ type: "time.tell", version: 1 }],
      worker: "clock",
      lease: Duration.minutes(1),
      limit: 10
    })
  )

layer(queue(), { excludeTestServices: true, timeout: "2 minutes" })("the time of a job", (it) => {
  it.effect("is kept to the microsecond, as a delay and as a date, and is read back so (I4)", () =>
    Effect.gen(function* () {
      const job = jobOn("exact")
      for (const [delay, micros] of [
        [Duration.micros(1n), 1n],
        [Duration.micros(999_999n), 999_999n],
        [Duration.millis(1.5), 1_500n],
        ["1 millis", 1_000n],
        ["250 millis", 250_000n],
        ["999 millis", 999_000n],
        ["365 days", 31_536_000_000_000n]
      ] as const) {
        const { id } = yield* Queue.enqueue(job, { n: 1 }, { delay })
        const { due, enqueued, firstDue } = yield* microsOf(id)
        expect(firstDue - enqueued).toBe(micros)
        expect(due).toBe(firstDue)
      }
      for (const text of [
        "2030-01-01T00:00:00.999Z",
        "2030-01-01T00:00:00.9995Z",
        "2030-01-01T00:00:00.9999996Z",
        "2030-03-31T01:30:00.001Z",
        "2030-10-27T01:30:00Z"
      ]) {
        const runAt = DateTime.unsafeMake(text)
        const { id } = yield* Queue.enqueue(job, { n: 1 }, { runAt })
        expect((yield* microsOf(id)).due).toBe(BigInt(runAt.epochMillis) * 1_000n)
        expect((yield* Queue.get(id)).dueAt).toEqual(Option.some(runAt))
      }
      for (const micros of [1n, 123n, 999n]) {
        const whole = DateTime.unsafeMake("2030-01-01T00:00:00.500Z")
        const runAt = DateTime.addDuration(whole, Duration.micros(micros))
        const { id } = yield* Queue.enqueue(job, { n: 1 }, { runAt })
        expect((yield* microsOf(id)).due).toBe(BigInt(whole.epochMillis) * 1_000n + micros)
        const record = yield* Queue.get(id)
        expect(record.dueAt).toEqual(Option.some(runAt))
        // What was read from one job can be given to another, and is the same instant still.
        const same = yield* Queue.enqueue(job, { n: 2 }, { runAt: record.firstDueAt })
        expect((yield* microsOf(same.id)).due).toBe((yield* microsOf(id)).due)
        const { enqueued } = yield* microsOf(id)
        expect(Math.round(record.enqueuedAt.epochMillis * 1_000)).toBe(Number(enqueued))
      }
    })
  )

  it.effect("that is now is now: what was enqueued is claimed at once, five hundred times", () =>
    Effect.gen(function* () {
      const job = jobOn("now")
      for (let n = 0; n < 500; n++) {
        const { id } = yield* Queue.enqueue(job, { n })
        const { jobs } = yield* claimNow("now")
        expect(jobs.map(({ lease }) => lease.jobId)).toEqual([id])
      }
    })
  )

  it.effect("is never early: no job is claimed before its time, by the database's clock", () =>
    Effect.gen(function* () {
      const job = jobOn("early")
      const { query } = yield* Database
      const delays = Array.from({ length: 60 }, (_, n) => 1 + ((n * 37) % 300))
      yield* Effect.forEach(delays, (delay, n) => Queue.enqueue(job, { n }, { delay }))
      let claimed = 0
      while (claimed < delays.length) claimed += (yield* claimNow("early")).jobs.length
      const early = yield* query(
        "SELECT id FROM leasehold_jobs WHERE queue = 'early'"
          + " AND JSON_UNQUOTE(JSON_EXTRACT(attempts, '$[0].s')) < CAST(first_due_at AS CHAR)"
      )
      expect(early).toEqual([])
    })
  )

  it.effect("in the far future is stored as it is, and in the past it is now; what can not be stored is refused", () =>
    Effect.gen(function* () {
      const job = jobOn("far")
      const enqueue = (options: Queue.EnqueueOptions) => Queue.enqueue(job, { n: 1 }, options)
      for (const text of [
        "2038-01-19T03:14:07.999Z",
        "2038-01-19T03:14:08Z",
        "2106-02-07T06:28:16Z",
        "2255-06-05T23:47:34.741Z",
        "2500-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z"
      ]) {
        const runAt = DateTime.unsafeMake(text)
        const { id } = yield* enqueue({ runAt })
        const record = yield* Queue.get(id)
        expect(record.dueAt).toEqual(Option.some(runAt))
        expect(record.firstDueAt).toEqual(runAt)
      }
      expect((yield* claimNow("far")).jobs).toEqual([])
      const past = yield* Effect.forEach(
        ["1970-01-01T00:00:00Z", "1969-07-20T20:17:40Z", "0000-01-01T00:00:00Z", "-000001-01-01T00:00:00Z"],
        (text) => enqueue({ runAt: DateTime.unsafeMake(text) })
      )
      const { jobs } = yield* claimNow("far")
      expect(jobs.map(({ lease }) => lease.jobId)).toEqual(past.map(({ id }) => id))
      for (const options of [
        { runAt: DateTime.unsafeMake("9999-12-31T23:59:59.999Z") },
        { runAt: DateTime.unsafeMake("+010000-01-01T00:00:00Z") },
        { runAt: new Date() as never },
        { runAt: Number.NaN as never },
        { runAt: "tomorrow" as never },
        { delay: "11574074075 days" },
        { delay: Duration.infinity },
        { delay: -1 },
        { delay: Number.NaN },
        { delay: "-1 seconds" as never },
        { delay: "soon" as never }
      ] satisfies ReadonlyArray<Queue.EnqueueOptions>) {
        expect(yield* Effect.flip(enqueue(options))).toMatchObject({ _tag: "TimeInvalid" })
      }
      const both = yield* Effect.flip(enqueue({ delay: 1, runAt: DateTime.unsafeMake(0) } as never))
      expect(both).toMatchObject({ _tag: "InvalidOption" })
    })
  )

  it.effect("does not change with the zone of the caller's session, in summer time or not", () =>
    Effect.gen(function* () {
      const job = jobOn("zones")
      const sql = yield* SqlClient.SqlClient
      // A clock that is put forward on one of these days, and back on the other.
      const dates = ["2030-03-31T01:30:00.250Z", "2030-10-27T00:30:00.250Z", "2030-10-27T01:30:00.250Z"].map((text) =>
        DateTime.unsafeMake(text)
      )
      for (const zone of ["+00:00", "+05:30", "-11:00", "+14:00", "SYSTEM"]) {
        yield* sql.withTransaction(
          Effect.gen(function* () {
            yield* sql`SET SESSION time_zone = ${zone}`
            for (const runAt of dates) {
              const { id } = yield* Queue.enqueue(job, { n: 1 }, { runAt })
              expect((yield* Queue.get(id)).dueAt).toEqual(Option.some(runAt))
              expect((yield* microsHere(sql, id)).due).toBe(BigInt(runAt.epochMillis) * 1_000n)
            }
            const { id } = yield* Queue.enqueue(job, { n: 1 }, { delay: "1 hour" })
            const { enqueued, firstDue } = yield* microsHere(sql, id)
            expect(firstDue - enqueued).toBe(3_600_000_000n)
            const skew = Number(enqueued / 1_000n) - Date.now()
            expect(Math.abs(skew)).toBeLessThan(60_000)
            yield* sql`SET SESSION time_zone = DEFAULT`
          })
        )
      }
    })
  )
})

/** As {@link microsOf}, on the caller's own connection. */
const microsHere = (sql: SqlClient.SqlClient, id: string) =>
  Effect.map(
    sql<{ due: string; first: string; enqueued: string }>`SELECT
      CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', due_at) AS CHAR) AS due,
      CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', first_due_at) AS CHAR) AS first,
      CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', enqueued_at) AS CHAR) AS enqueued
      FROM leasehold_jobs WHERE id = CAST(${id} AS DECIMAL(20))`,
    ([row]) => ({
      due: BigInt(row?.due ?? 0),
      firstDue: BigInt(row?.first ?? 0),
      enqueued: BigInt(row?.enqueued ?? 0)
    })
  )

const drivers: ReadonlyArray<PoolOptions> = [
  { timezone: "local" },
  { timezone: "Z" },
  { timezone: "+05:30" },
  { timezone: "Z", dateStrings: true },
  { timezone: "+05:30", dateStrings: true },
  { timezone: "local", dateStrings: ["DATETIME"] },
  { timezone: "local", supportBigNumbers: true, bigNumberStrings: true, decimalNumbers: true },
  { timezone: "local", typeCast: false, namedPlaceholders: true, nestTables: true, rowsAsArray: true }
]

layer(database, { excludeTestServices: true, timeout: "1 minute" })("the time of a job", (it) => {
  it.scoped("does not change with the driver's options, nor with the zone of the process", () =>
    Effect.gen(function* () {
      const { url } = yield* Database
      const { hostname, password, pathname, port, username } = new URL(url)
      const before = process.env["TZ"]
      // Other tests run in this process, too.
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          if (before === undefined) delete process.env["TZ"]
          else process.env["TZ"] = before
        })
      )
      const runAt = DateTime.unsafeMake("2030-03-31T01:30:00.125Z")
      for (const zone of ["UTC", "America/St_Johns", "Asia/Kathmandu"]) {
        process.env["TZ"] = zone
        expect(new Date(0).getTimezoneOffset() === 0).toBe(zone === "UTC")
        for (const poolConfig of drivers) {
          yield* Effect.gen(function* () {
            const sql = yield* SqlClient.SqlClient
            const job = jobOn(`driver.${zone}`)
            const written = [
              yield* Queue.enqueue(job, { n: 1 }, { runAt }),
              yield* sql.withTransaction(Queue.enqueue(job, { n: 1 }, { runAt }))
            ]
            for (const { id } of written) {
              // On the caller's connection, rows that are not cast are lost on mysql2 itself, whoever asks for them.
              const here = poolConfig.typeCast === false ? Queue.get(id) : sql.withTransaction(Queue.get(id))
              const read = [yield* Queue.get(id), yield* here]
              for (const record of read) {
                expect(record.dueAt).toEqual(Option.some(runAt))
                expect(record.firstDueAt).toEqual(runAt)
                expect(Math.abs(record.enqueuedAt.epochMillis - Date.now())).toBeLessThan(60_000)
              }
              expect((yield* microsOf(id)).due).toBe(BigInt(runAt.epochMillis) * 1_000n)
            }
            const { id } = yield* Queue.enqueue(job, { n: 1 })
            yield* Effect.scoped(
              Effect.gen(function* () {
                const lease = yield* Queue.claim(job)
                expect(lease.jobId).toBe(id)
                yield* lease.completeWith(Effect.asVoid(sql`SELECT 1`))
              })
            )
            const record = yield* Queue.get(id)
            expect(record.state).toBe("succeeded")
            for (const at of [record.attempts[0]?.startedAt, Option.getOrUndefined(record.finishedAt)]) {
              expect(Math.abs((at?.epochMillis ?? 0) - Date.now())).toBeLessThan(60_000)
            }
          }).pipe(
            Effect.provide(
              MysqlQueue.layer({ connections: { worker: 2, client: 2, transaction: 2 } }).pipe(
                Layer.provideMerge(
                  MysqlClient.layer({
                    host: hostname,
                    port: Number(port),
                    username,
                    password: Redacted.make(password),
                    database: pathname.slice(1),
                    maxConnections: 2,
                    poolConfig
                  })
                )
              )
            )
          )
        }
      }
    })
  )
})
