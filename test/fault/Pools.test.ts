/**
 * Scenarios F5, F7 and F9: what is left on connections, connections that are refused, and statements that stay prepared.
 */
import { SqlClient } from "@effect/sql"
import { MysqlClient } from "@effect/sql-mysql2"
import { describe, expect, layer } from "@effect/vitest"
import { Deferred, Duration, Effect, Exit, Fiber, Layer, Logger, Option, Random, Redacted, Ref, Schema } from "effect"
import { Job, MysqlQueue, Queue, Worker } from "../../src/index.js"
import { JobStore } from "../../src/JobStore.js"
import * as Connections from "../../src/mysql/Connections.js"
import { Database, database, outside } from "../support/Mysql.js"
import { scene, succeeded } from "../support/QueueBehindProxy.js"
import { queue } from "../support/QueueOnMysql.js"
import { openTransactions } from "../support/ServerState.js"
import { until } from "../support/Until.js"

const rounds = 200
const seed = Number(process.env["LEASEHOLD_SEED"] ?? Math.floor(Math.random() * 2 ** 31))

const Work = Job.make("pools.work", {
  payload: { n: Schema.Number },
  success: Schema.Number,
  queue: "pools"
})

const Marker = Job.make("pools.marker", { payload: { n: Schema.Number }, queue: "pools.marker" })

/** The smallest pools that there are, so that what one verb leaves on a connection the next one meets. */
const smallPools = queue({ connections: { worker: 2, client: 2, transaction: 2 } })

/** Every verb of the contract, and the callers' transactions. */
const verbs = Effect.gen(function* () {
  const store = yield* JobStore
  const sql = yield* SqlClient.SqlClient
  let n = 0
  const newJob = () => ({ n: ++n })
  const claim = store.claim({
    queue: Work.queue,
    types: [{ type: Work.type, version: 1 }],
    worker: "pools",
    lease: Duration.minutes(10),
    limit: 5
  })
  const held = Effect.map(claim, ({ jobs }) => jobs.map(({ lease }) => lease))
  const anyJob = Effect.map(Queue.list({ queue: Work.queue }), (records) => records[n % Math.max(1, records.length)])
  const onAny = <A, E, R>(act: (id: string) => Effect.Effect<A, E, R>) =>
    Effect.flatMap(anyJob, (record) => (record === undefined ? Effect.void : Effect.asVoid(act(record.id))))
  const note = sql`INSERT INTO notes (text) VALUES ('interrupted')`
  return {
    enqueue: Effect.suspend(() => Queue.enqueue(Work, newJob())),
    "enqueue with a key": Effect.suspend(() => Queue.enqueue(Work, newJob(), { idempotency: { key: `${n % 50}` } })),
    enqueueAll: Effect.suspend(() => Queue.enqueueAll(Work, Array.from({ length: 60 }, newJob))),
    claim,
    renew: Effect.flatMap(held, (leases) => store.renew(leases, Duration.minutes(10))),
    settle: Effect.flatMap(held, (leases) =>
      store.settle(leases.map((lease) => [lease, { _tag: "Complete", output: "1" }] as const))
    ),
    completeWith: Effect.scoped(Effect.flatMap(Queue.claim(Work), (lease) => lease.completeWith(Effect.as(note, 1)))),
    withTransaction: Queue.withTransaction(
      Effect.zipRight(
        note,
        Effect.suspend(() => Queue.enqueue(Work, newJob()))
      )
    ),
    "a transaction of the application": sql.withTransaction(
      Effect.zipRight(
        note,
        Effect.suspend(() => Queue.enqueue(Work, newJob()))
      )
    ),
    cancel: onAny(Queue.cancel),
    retry: onAny(Queue.retry),
    retryAll: Queue.retryAll({ queue: Work.queue }),
    get: onAny(Queue.get),
    find: Queue.find({ key: "1" }),
    list: Queue.list({ queue: Work.queue }),
    counts: Queue.counts,
    why: onAny(Queue.why),
    pause: Effect.zipRight(Queue.pause("pools.other"), Queue.resume("pools.other")),
    reap: store.reap("", 100),
    clean: store.clean({ succeeded: Duration.zero, canceled: Duration.zero }, "", 100),
    recordRefusals: Effect.flatMap(held, (leases) =>
      store.recordRefusals(leases.map((lease) => ({ lease, verb: "complete" })))
    )
  }
})

/** What is logged as an error. */
const listener = Effect.map(Ref.make<ReadonlyArray<string>>([]), (lines) => ({
  said: Ref.get(lines),
  listening: Logger.replace(
    Logger.defaultLogger,
    Logger.make(({ logLevel, message }) => {
      if (logLevel._tag === "Error") Effect.runSync(Ref.update(lines, (all) => [...all, String(message)]))
    })
  )
}))

layer(smallPools, { excludeTestServices: true, timeout: "2 minutes" })("a pool", (it) => {
  it.scoped(
    "F5: is clean after every verb was interrupted at random: nothing open, fresh reads, sessions as they were set up",
    () =>
      Effect.gen(function* () {
        const { query, url } = yield* Database
        yield* query("CREATE TABLE notes (id INT AUTO_INCREMENT PRIMARY KEY, text VARCHAR(20))")
        type Verb = Effect.Effect<unknown, unknown, Queue.Queue>
        const all: ReadonlyArray<readonly [string, Verb]> = Object.entries(yield* verbs)
        const observer = yield* outside(url)
        // None of the verbs touches it.
        const marker = yield* Queue.enqueue(Marker, { n: 0 }, { delay: "1 day" })
        let interrupted = 0
        for (let round = 0; round < rounds; round++) {
          const [name, verb] = all[round % all.length] ?? (yield* Effect.dieMessage("there are verbs"))
          const fiber = yield* Effect.fork(verb)
          const pause = yield* Random.nextIntBetween(0, 15_000)
          const end = performance.now() + pause / 1_000
          while (performance.now() < end) yield* Effect.yieldNow()
          const exit = yield* Fiber.interrupt(fiber)
          if (Exit.isInterrupted(exit)) interrupted++
          // An unrelated read on each pool sees what was committed just now.
          yield* observer.query("UPDATE leasehold_jobs SET attempts_left = ? WHERE id = ?", [round % 100, marker.id])
          const said = `round ${round}, ${name}, LEASEHOLD_SEED=${seed}`
          for (const read of [Queue.get(marker.id), Queue.withTransaction(Queue.get(marker.id))]) {
            expect((yield* read).attemptsLeft, said).toEqual(Option.some(round % 100))
          }
        }
        // Some were interrupted half-way, and some were not: else the pauses say nothing.
        expect(interrupted).toBeGreaterThan(rounds / 10)
        expect(interrupted).toBeLessThan(rounds)
        yield* until(openTransactions, (open) => open === 0, "5 seconds")
        const sessions = yield* observer.query(
          "SELECT variable_name AS name, variable_value AS value, COUNT(*) AS sessions"
            + " FROM performance_schema.variables_by_thread JOIN performance_schema.threads USING (thread_id)"
            + " WHERE processlist_db = DATABASE() AND processlist_id <> CONNECTION_ID()"
            + " AND variable_name IN ('transaction_isolation', 'sql_mode', 'time_zone', 'autocommit', 'transaction_read_only')"
            + " GROUP BY 1, 2 ORDER BY 1, 2"
        )
        const values = (name: string) => sessions.filter((row) => row["name"] === name).map(({ value }) => value)
        // The application's own sessions and the test's are at the server's default.
        expect(values("transaction_isolation")).toEqual(["READ-COMMITTED", "REPEATABLE-READ"])
        expect(values("autocommit")).toEqual(["ON"])
        expect(values("transaction_read_only")).toEqual(["OFF"])
        expect(values("time_zone")).toEqual(["+00:00", "SYSTEM"])
        expect(values("sql_mode")).toContain("STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION")
        expect(values("sql_mode")).toHaveLength(2)
        // All connections of each pool can be had at once.
        const together = (size: number) =>
          Effect.gen(function* () {
            const full = yield* Deferred.make<void>()
            let count = 0
            yield* Effect.forEach(
              Array.from({ length: size }),
              () =>
                Queue.withTransaction(
                  Effect.suspend(() => (++count === size ? Deferred.succeed(full, undefined) : Deferred.await(full)))
                ),
              { concurrency: "unbounded", discard: true }
            ).pipe(Effect.timeout("4 seconds"))
          })
        yield* together(2)
      }).pipe(Effect.withRandom(Random.make(seed)))
  )

  it.scoped("F9: prepares each of a few texts once for each connection, whatever the sizes of batches and lists", () =>
    Effect.gen(function* () {
      const { query, url } = yield* Database
      const store = yield* JobStore
      const sql = yield* SqlClient.SqlClient
      const job = Job.make("pools.sizes", { payload: { n: Schema.Number }, queue: "pools.sizes" })
      const observer = yield* outside(url)
      const prepared = Effect.map(
        observer.query(
          "SELECT COUNT(*) AS count FROM performance_schema.prepared_statements_instances AS s JOIN performance_schema.threads"
            + " ON thread_id = owner_thread_id WHERE processlist_db = DATABASE()"
        ),
        ([row]) => Number(row?.["count"])
      )
      const sizes = (from: number, to: number) =>
        Effect.gen(function* () {
          for (let size = from; size <= to; size++) {
            const payloads = Array.from({ length: size }, (_, n) => ({ n }))
            const keyed = payloads.map((payload) =>
              Queue.request(job, payload, { idempotency: { key: `${size}.${payload.n}` } })
            )
            yield* Queue.enqueueAll(job, payloads)
            const many = Queue.enqueueMany(keyed)
            yield* size % 2 === 0 ? many : sql.withTransaction(many)
            const { jobs } = yield* store.claim({
              queue: job.queue,
              types: [
                { type: job.type, version: 1 },
                { type: `other.${size}`, version: 1 }
              ],
              worker: `worker-${size}`,
              lease: Duration.minutes(10),
              limit: size
            })
            const leases = jobs.map(({ lease }) => lease)
            expect(leases).toHaveLength(size)
            yield* store.renew(leases, Duration.minutes(10))
            yield* store.settle(leases.map((lease) => [lease, { _tag: "Complete", output: `${size}` }] as const))
            const one = leases[0]?.jobId ?? "0"
            yield* Queue.get(one)
            yield* Queue.cancel(one)
            yield* Queue.list({ queue: job.queue, state: "pending" })
          }
          yield* store.clean({ succeeded: Duration.zero }, "", 500)
        })
      yield* query("DELETE FROM leasehold_jobs")
      yield* sizes(1, 30)
      const early = yield* prepared
      yield* sizes(31, 60)
      const late = yield* prepared
      expect(early).toBeGreaterThan(5)
      // Each text that there is on each connection that there is, and that is all: a server allows 16,382 by default.
      expect(late).toBeLessThanOrEqual(100)
      expect(late - early).toBeLessThanOrEqual(25)
      // A text of its own for each size would be seen.
      const before = yield* prepared
      const sum = (size: number) =>
        sql.unsafe(`SELECT ${Array.from({ length: size }, () => "?").join(" + ")} AS sum`, Array(size).fill(1))
      yield* Effect.forEach(
        Array.from({ length: 60 }, (_, n) => n + 1),
        sum,
        { discard: true }
      )
      expect((yield* prepared) - before).toBeGreaterThan(25)
    })
  )

  it.scoped("F9: completes jobs on a server that prepares nothing more", () =>
    Effect.gen(function* () {
      const { context, proxy, query } = yield* scene()
      const job = Job.make("pools.unprepared", { payload: { n: Schema.Number }, queue: "pools.unprepared" })
      let refused = 0
      proxy.rules.push({
        matches: /SET jobs\.attempts[\s\S]*CAST\(\? AS UNSIGNED\)/,
        action: { errno: 1461, sqlState: "42000" },
        onHit: () => refused++
      })
      const worker = Layer.provide(
        Worker.layer({ jobs: [job] }),
        job.toLayer(() => Effect.void)
      )
      yield* Effect.provide(Layer.build(worker), context)
      yield* Effect.provide(Queue.enqueue(job, { n: 1 }), context)
      const rows = yield* until(
        query("SELECT state, error_code FROM leasehold_jobs WHERE queue = ?", [job.queue]),
        ([row]) => Number(row?.["state"]) > 1
      )
      expect(rows).toEqual([{ state: 2, error_code: null }])
      expect(refused).toBe(1)
    })
  )

  it.scoped("F9: closes what it prepared first on a connection that has prepared many", () =>
    Effect.gen(function* () {
      const { url } = yield* Database
      const connections = yield* Connections.make(
        { url: Redacted.make(url) },
        { size: 1, statementTimeout: Duration.seconds(5), settings: Connections.pinned }
      )
      const prepared = yield* connections.use((session) =>
        Effect.gen(function* () {
          for (let n = 0; n < 150; n++) {
            const { rows } = yield* session.execute(`SELECT ? + ${n} AS sum`, ["1"])
            expect(Number(rows[0]?.["sum"])).toBe(n + 1)
          }
          const [answer] = yield* session.script([
            "SELECT COUNT(*) AS count FROM performance_schema.prepared_statements_instances AS s"
              + " JOIN performance_schema.threads ON thread_id = owner_thread_id WHERE processlist_id = CONNECTION_ID()"
          ])
          return Number(answer?.rows[0]?.["count"])
        })
      )
      expect(prepared).toBe(100)
    })
  )
})

// Side by side, since each has a queue, a proxy or a user of its own.
describe("a server with too many connections", { concurrent: true }, () => {
  layer(database, { excludeTestServices: true, timeout: "2 minutes" })((it) => {
    it.scoped("F7: refuses the start by name; in the middle of work, jobs wait for it and none of them fails", () =>
      Effect.gen(function* () {
        const { context, job, proxy, rows, runs, work } = yield* scene()
        yield* proxy.full(true)
        const refused = yield* Effect.flip(
          Effect.scoped(
            Layer.build(
              Layer.provide(MysqlQueue.layer(), MysqlClient.layer({ url: Redacted.make(proxy.url), maxConnections: 1 }))
            )
          )
        )
        expect(JSON.stringify(refused)).toContain("1040")
        yield* proxy.full(false)
        const count = 200
        yield* Queue.enqueueAll(
          job,
          Array.from({ length: count }, (_, n) => ({ n }))
        ).pipe(Effect.provide(context))
        const { said, listening } = yield* listener
        yield* Effect.provide(
          work((n) => Effect.as(Effect.sleep("50 millis"), n), { lease: "10 seconds" }),
          listening
        )
        yield* until(Ref.get(runs), (some) => some > 10)
        yield* proxy.full(true)
        yield* proxy.cut
        yield* until(said, (lines) =>
          lines.some((line) => line.includes("too_many_connections, ER_CON_COUNT_ERROR 1040"))
        )
        const before = yield* Ref.get(runs)
        expect(before).toBeLessThan(count)
        yield* Effect.sleep("1 second")
        yield* proxy.full(false)
        yield* until(rows("state"), succeeded(count))
        expect(yield* Ref.get(runs)).toBe(count)
        // A claim whose answer was cut off is an attempt that nobody has run; none has failed.
        expect((yield* rows("error_code")).every((row) => row["error_code"] === null)).toBe(true)
      })
    )

    it.scoped("F7: for one user, by the server's own limit, is waited for in the same way", () =>
      Effect.gen(function* () {
        const { query, url } = yield* Database
        const schema = new URL(url).pathname.slice(1)
        const name = `limited_${schema.slice(-8)}`
        yield* Effect.acquireRelease(query(`CREATE USER '${name}'@'%' IDENTIFIED BY 'p'`), () =>
          query(`DROP USER '${name}'@'%'`)
        )
        yield* query(`GRANT ALL ON ${schema}.* TO '${name}'@'%'`)
        const limit = (connections: number) =>
          query(`ALTER USER '${name}'@'%' WITH MAX_USER_CONNECTIONS ${connections}`)
        yield* limit(12)
        const own = new URL(url)
        own.username = name
        own.password = "p"
        const job = Job.make("pools.limited", { payload: { n: Schema.Number }, queue: "pools.limited" })
        const context = yield* Layer.build(
          MysqlQueue.layer({ connections: { worker: 2, client: 2, transaction: 2 } }).pipe(
            Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(own.href), maxConnections: 2 }))
          )
        )
        const runs = yield* Ref.make(0)
        const count = 100
        yield* Effect.gen(function* () {
          yield* Queue.enqueueAll(
            job,
            Array.from({ length: count }, (_, n) => ({ n }))
          )
          const handler = job.toLayer(() =>
            Effect.zipRight(
              Ref.update(runs, (n) => n + 1),
              Effect.sleep("50 millis")
            )
          )
          const worker = Worker.layer({
            jobs: [job],
            queues: { [job.queue]: { concurrency: 2 } },
            lease: "10 seconds",
            poll: "50 millis"
          })
          const { listening, said } = yield* listener
          yield* Effect.provide(Layer.build(Layer.provide(worker, handler)), listening)
          yield* until(Ref.get(runs), (some) => some > 5)
          // Somebody else has the only place that there is from now on, and the server ends all other sessions of this user.
          yield* Effect.scoped(
            Effect.gen(function* () {
              const other = yield* outside(own.href)
              const [self] = yield* other.query("SELECT CONNECTION_ID() AS id")
              yield* limit(1)
              const sessions = yield* query(
                "SELECT id FROM performance_schema.processlist WHERE user = ? AND id <> ?",
                [name, self?.["id"]]
              )
              expect(sessions.length).toBeGreaterThan(1)
              yield* Effect.forEach(sessions, ({ id }) => Effect.exit(query(`KILL ${Number(id)}`)), { discard: true })
              yield* until(said, (lines) => lines.some((line) => /too_many_connections, \w+ (1203|1226)/.test(line)))
              yield* limit(12)
            })
          )
          yield* until(query("SELECT state FROM leasehold_jobs WHERE queue = ?", [job.queue]), (rows) =>
            rows.every(({ state }) => state === 2)
          )
          expect(yield* Ref.get(runs)).toBe(count)
        }).pipe(Effect.provide(context))
        expect(
          yield* query("SELECT error_code, COUNT(*) AS jobs FROM leasehold_jobs WHERE queue = ? GROUP BY 1", [
            job.queue
          ])
        ).toEqual([{ error_code: null, jobs: count }])
      })
    )
  })
})
