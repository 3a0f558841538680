import { MysqlClient } from "@effect/sql-mysql2"
import { describe, expect, layer } from "@effect/vitest"
import { Deferred, Duration, Effect, Fiber, HashMap, Layer, Logger, LogLevel, Option, Redacted, Schema } from "effect"
import { Job, JobFailure, JobStore, MysqlQueue, Queue, RetryPolicy, Worker } from "../../src/index.js"
import { Database } from "../support/Mysql.js"
import { queue } from "../support/QueueOnMysql.js"
import { deadlocks, sessions } from "../support/ServerState.js"
import { until } from "../support/Until.js"

const newJob = (queueName: string, type = "fair.work") =>
  Job.make(type, {
    payload: { n: Schema.Number },
    queue: queueName,
    retry: RetryPolicy.fixed({ delay: 0, jitter: 0, maxAttempts: "unlimited" })
  })

const numbered = (count: number) => Array.from({ length: count }, (_, n) => ({ n }))

/** The queue as another process has it, with connections of its own. */
const install = Effect.flatMap(Database, ({ url }) =>
  Layer.build(
    MysqlQueue.layer({ migrate: "off" }).pipe(
      Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(url), maxConnections: 2 }))
    )
  )
)

const jobsIn = (queueName: string, state: number) =>
  Effect.flatMap(Database, ({ query }) =>
    Effect.map(
      query("SELECT COUNT(*) AS jobs FROM leasehold_jobs WHERE queue = ? AND state = ?", [queueName, state]),
      ([row]) => Number(row?.["jobs"])
    )
  )

layer(queue(), { excludeTestServices: true, timeout: "2 minutes" })("many workers", (it) => {
  it.scoped(
    "N2: fifty that start at one instant spread their polls, share a burst of 5,000 without deadlocks, on few connections",
    () =>
      Effect.gen(function* () {
        const job = newJob("herd")
        const rounds: Array<{ readonly at: number; readonly claimed: number }> = []
        const listening = Logger.replace(
          Logger.defaultLogger,
          Logger.make(({ annotations, date, message }) => {
            if (String(message) !== "Claim round") return
            const claimed = Option.getOrElse(HashMap.get(annotations, "claimed"), () => 0)
            rounds.push({ at: date.getTime(), claimed: Number(claimed) })
          })
        )
        const runs = new Map<number, number>()
        const handler = job.toLayer(({ n }) => Effect.sync(() => void runs.set(n, (runs.get(n) ?? 0) + 1)))
        const worker = Worker.layer({ jobs: [job], poll: "1 second", maintenance: false })
        const before = yield* sessions
        const met = yield* deadlocks
        const processes = yield* Effect.all(Array.from({ length: 5 }, () => install))
        const gate = yield* Deferred.make<void>()
        yield* Effect.forEach(
          Array.from({ length: 50 }, (_, index) => processes[index % 5] as (typeof processes)[number]),
          (process) =>
            Effect.forkScoped(
              Deferred.await(gate).pipe(
                Effect.zipRight(Layer.build(Layer.fresh(Layer.provide(worker, handler)))),
                Effect.provide(process)
              )
            ).pipe(Effect.provide(listening), Logger.withMinimumLogLevel(LogLevel.Debug))
        )
        const from = Date.now()
        yield* Deferred.succeed(gate, void 0)
        // The producer is no worker's process, so that nobody is woken: each job is found by a poll.
        for (let n = 0; n < 6; n++) {
          yield* Queue.enqueue(job, { n })
          yield* Effect.sleep("1 second")
        }
        yield* until(
          Effect.sync(() => runs.size),
          (size) => size === 6
        )
        // They began together, and drift apart: a poll comes after 800 to 1,000 ms. In step they would use two or three of these
        // for each of four polls, and a process that stands still for a moment takes a few away.
        const tenths = new Set(
          rounds.flatMap(({ at }) => (at >= from + 2_500 && at < from + 6_000 ? [Math.floor((at - from) / 100)] : []))
        )
        expect(tenths.size).toBeGreaterThanOrEqual(19)
        const idle = rounds.length
        expect(idle).toBeLessThanOrEqual(50 * ((Date.now() - from) / 800 + 2))
        yield* Queue.enqueueAll(
          job,
          numbered(5_000).map(({ n }) => ({ n: n + 6 }))
        )
        yield* until(jobsIn("herd", 2), (done) => done === 5_006)
        expect(runs.size).toBe(5_006)
        expect([...runs.values()].every((count) => count === 1)).toBe(true)
        const burst = rounds.slice(idle)
        const empty = burst.filter(({ claimed }) => claimed === 0)
        expect(empty.length / 5_000).toBeLessThan(0.1)
        expect((yield* deadlocks) - met).toBe(0)
        // Four connections for the workers of a process, and few for its settlements and its start.
        expect((yield* sessions) - before).toBeLessThanOrEqual(5 * 20)
      })
  )

  it.scoped("N3: jobs that always come back at once do not keep those behind them from their turn", () =>
    Effect.gen(function* () {
      const job = newJob("starve")
      const unknown = newJob("starve", "fair.unknown")
      const done = new Set<number>()
      let returned = 0
      let meanwhile = 0
      const handler = job.toLayer(({ n }, { jobId, token }) => {
        if (n >= 0)
          return Effect.delay(
            Effect.sync(() => {
              // When all are done, every turn is for those that come back.
              if (done.size < 100) meanwhile = returned
              done.add(n)
            }),
            "5 millis"
          )
        returned++
        if (n === -1) return Effect.fail(new JobFailure.Snooze({ for: 0 }))
        if (n === -2) return Effect.fail(new JobFailure.Retryable({ code: "again", message: "", retryAfter: 0 }))
        return Effect.fail(new JobFailure.LeaseLost({ jobId, token, during: "work", reason: "superseded" }))
      })
      yield* Queue.enqueueAll(job, [{ n: -1 }, { n: -1 }, { n: -2 }, { n: -3 }])
      yield* Queue.enqueue(unknown, { n: 0 })
      yield* Queue.enqueueAll(job, numbered(100))
      yield* Layer.build(
        Layer.provide(
          Worker.layer({
            jobs: [job],
            queues: { starve: { concurrency: 5, prefetch: 0 } },
            lease: "1 second",
            poll: "50 millis"
          }),
          handler
        )
      )
      yield* until(jobsIn("starve", 2), (jobs) => jobs === 100, "20 seconds")
      expect(done.size).toBe(100)
      // Each return puts a job behind all that are due, so it has its next turn after them: nearly all turns were theirs.
      expect(meanwhile).toBeGreaterThan(0)
      expect(meanwhile).toBeLessThanOrEqual(20)
    })
  )

  it.scoped(
    "N3: a steady stream of one process hides no job of another one, wherever that is, nor an expired lease",
    () =>
      Effect.gen(function* () {
        const { query } = yield* Database
        const store = yield* JobStore.JobStore
        const job = newJob("stream")
        const poll = 500
        const started = new Map<number, number>()
        const [abandoned] = yield* Queue.enqueueAll(job, [{ n: -1 }], { priority: 8 })
        const { jobs } = yield* store.claim({
          queue: "stream",
          types: [{ type: job.type, version: job.version }],
          worker: "gone",
          lease: Duration.seconds(2),
          limit: 1
        })
        expect(jobs.map(({ lease }) => lease.jobId)).toEqual([abandoned?.id])
        const expires = Date.now() + 2_000
        yield* Layer.build(
          Layer.provide(
            Worker.layer({ jobs: [job], poll }),
            job.toLayer(({ n }) => Effect.sync(() => void (started.has(n) || started.set(n, Date.now()))))
          )
        )
        const stream = yield* Queue.enqueue(job, { n: 0 }, { priority: 3 }).pipe(
          Effect.zipRight(Effect.sleep("3 millis")),
          Effect.forever,
          Effect.forkScoped
        )
        yield* Effect.sleep("1 second")
        const inserted = Date.now()
        // As what another process enqueued: of a lower level, of a higher one, and of the stream's own.
        for (const [n, priority] of [9, 0, 3].entries()) {
          yield* query(
            "INSERT INTO leasehold_jobs (queue, type, priority, payload, enqueued_at, first_due_at, due_at) VALUES"
              + " ('stream', 'fair.work', ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))",
            [priority, JSON.stringify({ n: n + 1 })]
          )
        }
        yield* until(
          Effect.sync(() => [-1, 1, 2, 3].filter((n) => started.has(n)).length),
          (found) => found === 4,
          "10 seconds"
        )
        yield* Fiber.interrupt(stream)
        for (const n of [1, 2, 3]) expect((started.get(n) ?? 0) - inserted).toBeLessThan(poll + 500)
        expect((started.get(-1) ?? 0) - expires).toBeLessThan(poll + 500)
      })
  )
})

layer(queue(), { excludeTestServices: true, timeout: "2 minutes" })("the order of jobs", (it) => {
  // One job at a time, so both wait for answers of the server.
  describe("side by side", { concurrent: true }, () => {
    it.scoped("N4: is by priority, then due time, then id, exactly, whatever order they were enqueued in", () =>
      Effect.gen(function* () {
        const { query } = yield* Database
        const job = newJob("order")
        yield* Effect.forEach(
          numbered(300),
          ({ n }) => Queue.enqueue(job, { n }, { priority: (n * 7) % 10, delay: "1 hour" }),
          { concurrency: 4, discard: true }
        )
        // Odd times, many of them equal.
        yield* query(
          "UPDATE leasehold_jobs SET due_at = UTC_TIMESTAMP(6) - INTERVAL (id * 7919 % 23) * 333333 MICROSECOND"
            + " WHERE queue = 'order'"
        )
        const expected = yield* query(
          "SELECT payload FROM leasehold_jobs WHERE queue = 'order' ORDER BY priority, due_at, id"
        )
        const started: Array<number> = []
        yield* Layer.build(
          Layer.provide(
            Worker.layer({ jobs: [job], queues: { order: { concurrency: 1, prefetch: 0 } }, poll: "50 millis" }),
            job.toLayer(({ n }) => Effect.sync(() => void started.push(n)))
          )
        )
        yield* until(
          Effect.sync(() => started.length),
          (count) => count === 300
        )
        expect(started).toEqual(expected.map(({ payload }) => JSON.parse(String(payload)).n))
      })
    )

    it.scoped("N4: is strict: low priorities wait for as long as a higher one has jobs, and run when it has none", () =>
      Effect.gen(function* () {
        const job = newJob("strict")
        const started: Array<string> = []
        yield* Queue.enqueueAll(job, numbered(100), { priority: 9 })
        yield* Queue.enqueueAll(job, [{ n: 1_000 }, { n: 1_000 }], { priority: 0 })
        const handler = job.toLayer(
          Effect.map(Queue.Queue, (queueService) => ({ n }: { readonly n: number }) => {
            started.push(n < 1_000 ? "low" : "high")
            // Each of the urgent ones leaves another behind it, three hundred times.
            return n < 1_000 || n >= 1_300
              ? Effect.void
              : Effect.asVoid(Effect.orDie(queueService.enqueue(job, { n: n + 2 }, { priority: 0 })))
          })
        )
        yield* Layer.build(
          Layer.provide(
            Worker.layer({ jobs: [job], queues: { strict: { concurrency: 1, prefetch: 0 } }, poll: "50 millis" }),
            handler
          )
        )
        yield* until(jobsIn("strict", 2), (done) => done === 402)
        expect(started.slice(0, 302)).toEqual(Array.from({ length: 302 }, () => "high"))
        expect(started.slice(302)).toEqual(Array.from({ length: 100 }, () => "low"))
      })
    )
  })

  it.scoped("N4: is each queue's own: ten jobs beside a queue of twenty thousand start at once", () =>
    Effect.gen(function* () {
      const large = newJob("large")
      const small = newJob("small", "fair.small")
      yield* Queue.enqueueAll(large, numbered(20_000))
      const few = yield* Queue.enqueueAll(small, numbered(10))
      yield* Layer.build(
        Layer.provide(
          Worker.layer({
            jobs: [large, small],
            queues: { large: { concurrency: 10 }, small: { concurrency: 1 } },
            poll: "50 millis"
          }),
          Layer.merge(
            large.toLayer(() => Effect.sleep("2 millis")),
            small.toLayer(() => Effect.void)
          )
        )
      )
      for (const { id } of few) yield* Queue.result(small, id, { timeout: "10 seconds" })
      expect(yield* jobsIn("large", 0)).toBeGreaterThan(10_000)
    })
  )
})
