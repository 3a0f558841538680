/**
 * The database fails over: a Group Replication cluster of three on loopback, and the library behind an address that is led to
 * the primary, as a router, a proxy or a name does in front of a real one. Prints how long the recovery took.
 */
import { SqlClient } from "@effect/sql"
import { MysqlClient } from "@effect/sql-mysql2"
import { expect, layer } from "@effect/vitest"
import { Context, Effect, Fiber, Layer, Logger, LogLevel, Redacted, Ref, Schedule, Schema } from "effect"
import * as MysqlCluster from "../../scripts/mysql/Cluster.js"
import { findBinary } from "../../scripts/mysql/MysqlServer.js"
import { Job, type JobRecord, MysqlQueue, Queue, RetryPolicy, Worker } from "../../src/index.js"
import { outside } from "../support/Mysql.js"
import * as Proxy from "../support/Proxy.js"
import { until } from "../support/Until.js"

class Cluster extends Context.Tag("leasehold/test/Cluster")<Cluster, MysqlCluster.Cluster>() {}

const cluster = Layer.scoped(Cluster, Effect.flatMap(findBinary, MysqlCluster.start))

const jobOn = (queue: string) =>
  Job.make("failover.work", {
    payload: { n: Schema.Number },
    success: Schema.Number,
    queue,
    retry: RetryPolicy.fixed({ delay: "10 millis", jitter: 0, maxAttempts: 5 })
  })

/** The queue behind an address that leads to the primary of this moment. */
const behindAddress = Effect.gen(function* () {
  const { primary } = yield* Cluster
  const first = yield* primary
  const address = yield* Proxy.make(first.url)
  const context = yield* Layer.build(
    MysqlQueue.layer({ statementTimeout: "2 seconds" }).pipe(
      Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(address.url) }))
    )
  )
  return { first, address, context }
})

/** An address that follows the primary by itself; remembers when it last moved. */
const follow = (address: Proxy.Proxy, from: MysqlCluster.Member) =>
  Effect.gen(function* () {
    const { primary } = yield* Cluster
    let current = from
    const moved = yield* Ref.make(0)
    yield* primary.pipe(
      Effect.flatMap((member) => {
        if (member === current) return Effect.void
        current = member
        return Effect.zipRight(address.aim(member.url), Ref.set(moved, performance.now()))
      }),
      Effect.ignore,
      Effect.repeat(Schedule.spaced("50 millis")),
      Effect.forkScoped
    )
    return moved
  })

/** Enqueues one job after the other, each under its key, until it is interrupted; collects what was acknowledged, and when. */
const produce = (
  job: ReturnType<typeof jobOn>,
  acknowledged: Array<{ readonly id: JobRecord.JobId; readonly at: number }>,
  name = ""
) => {
  let n = 0
  return Effect.suspend(() => {
    const key = `${job.queue}.${name}.${n++}`
    return Queue.enqueue(job, { n }, { idempotency: { key } }).pipe(
      Effect.tap(({ id }) => Effect.sync(() => acknowledged.push({ id, at: performance.now() }))),
      Effect.retry({ while: ({ _tag }) => _tag === "StoreUnavailable", schedule: Schedule.spaced("50 millis") }),
      Effect.zipRight(Effect.sleep("5 millis"))
    )
  }).pipe(Effect.forever)
}

/** Works the job's queue: each run writes one row together with its completion. */
const workers = (job: ReturnType<typeof jobOn>, completed: Array<number>) => {
  const handler = job.toLayer(
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      return ({ n }, lease) =>
        lease.completeWith(Effect.as(sql`INSERT INTO effects (job) VALUES (${lease.jobId})`, n)).pipe(
          // The handler decides what it does without its database: here it waits, as long as it holds the job.
          Effect.retry({
            while: (error) => error._tag === "StoreUnavailable" || error._tag === "OutcomeUnknown",
            schedule: Schedule.spaced("100 millis")
          }),
          Effect.tap(() => Effect.sync(() => completed.push(performance.now()))),
          Effect.orDie
        )
    })
  )
  return Worker.layer({
    jobs: [job],
    // Nothing is claimed ahead: what waits a second for a slot is given back, which counts as an attempt.
    queues: { [job.queue]: { concurrency: 8, prefetch: 0 } },
    lease: "30 seconds",
    poll: "200 millis"
  }).pipe(Layer.provide(handler))
}

const succeeded = (url: string, queue: string) =>
  Effect.scoped(
    Effect.flatMap(outside(url), ({ query }) =>
      query("SELECT CAST(id AS CHAR) AS id FROM leasehold_jobs WHERE queue = ? AND state = 2", [queue])
    )
  )

/** Everything that was acknowledged is on the primary of now and gets done, each job once and in its first attempt. */
const expectNothingLost = (queue: string, acknowledged: ReadonlyArray<{ readonly id: JobRecord.JobId }>) =>
  Effect.gen(function* () {
    const { url } = yield* Effect.flatMap(Cluster, ({ primary }) => primary)
    const ids = new Set(acknowledged.map(({ id }) => id))
    expect(ids.size).toBe(acknowledged.length)
    // More jobs than were acknowledged may be there: an enqueue that was interrupted may have made its job, and told nobody.
    const rows = yield* until(
      succeeded(url, queue),
      (succeeded) => {
        const done = new Set(succeeded.map(({ id }) => String(id)))
        return [...ids].every((id) => done.has(id))
      },
      "60 seconds"
    )
    const { query } = yield* outside(url)
    const effects = yield* query(
      "SELECT effects, COUNT(*) AS jobs FROM (SELECT jobs.id, COUNT(effects.id) AS effects FROM leasehold_jobs AS jobs"
        + " LEFT JOIN effects ON effects.job = jobs.id WHERE queue = ? AND state = 2 GROUP BY jobs.id) AS done GROUP BY effects",
      [queue]
    )
    expect(effects.map((row) => row["effects"])).toEqual([1])
    expect(Number(effects[0]?.["jobs"])).toBeGreaterThanOrEqual(rows.length)
  })

const print = (line: string) => Effect.sync(() => process.stdout.write(`${line}\n`))

const seconds = (from: number, to: number | undefined) => `${(((to ?? Number.NaN) - from) / 1_000).toFixed(2)} s`

layer(cluster, { excludeTestServices: true, timeout: "2 minutes" })("when the database fails over", (it) => {
  it.scoped("F3: a primary that becomes read-only is left for the new one, and no attempt is charged", () =>
    Effect.gen(function* () {
      const { members, promote } = yield* Cluster
      const { address, context, first } = yield* behindAddress
      const job = jobOn("switchover")
      const acknowledged: Array<{ readonly id: JobRecord.JobId; readonly at: number }> = []
      const completed: Array<number> = []
      yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* sql`CREATE TABLE IF NOT EXISTS effects (id BIGINT AUTO_INCREMENT PRIMARY KEY, job BIGINT, KEY (job))`
        const worker = yield* Layer.build(workers(job, completed))
        const producer = yield* Effect.fork(produce(job, acknowledged))
        yield* until(
          Effect.sync(() => completed.length),
          (count) => count > 50
        )
        const next = members.find((member) => member !== first) ?? first
        yield* promote(next)
        const switched = performance.now()
        // The address still leads to the old primary.
        yield* until(
          Effect.provide(Worker.health, worker),
          ({ queues }) => queues[0]?.fault?._tag === "StoreUnavailable" && queues[0].fault.reason === "read_only"
        )
        const refused = yield* Effect.flip(Queue.enqueue(job, { n: 0 }))
        expect(refused).toMatchObject({ _tag: "StoreUnavailable", reason: "read_only" })
        yield* Effect.sleep("2 seconds")
        expect(acknowledged.filter(({ at }) => at > switched)).toEqual([])
        yield* address.aim(next.url)
        const moved = performance.now()
        yield* until(
          Effect.sync(() => completed.filter((at) => at > moved).length),
          (count) => count > 50
        )
        yield* until(Effect.provide(Worker.health, worker), ({ queues }) => queues[0]?.fault === undefined)
        yield* Fiber.interrupt(producer)
        const enqueued = acknowledged.find(({ at }) => at > moved)?.at
        const done = completed.find((at) => at > moved)
        yield* print(
          `switchover: enqueued ${seconds(moved, enqueued)}, completed ${seconds(moved, done)} after the address moved`
        )
        // The library's own part: a producer tries every 50 ms, a handler every 100 ms, a claim at the latest after 5 seconds.
        expect((enqueued ?? Number.POSITIVE_INFINITY) - moved).toBeLessThan(2_000)
        expect((done ?? Number.POSITIVE_INFINITY) - moved).toBeLessThan(7_000)
        yield* expectNothingLost(job.queue, acknowledged)
        const { query } = yield* outside(next.url)
        expect(
          yield* query("SELECT MAX(attempt) AS attempts, MAX(token) AS tokens FROM leasehold_jobs WHERE queue = ?", [
            job.queue
          ])
        ).toEqual([{ attempts: 1, tokens: 1 }])
      }).pipe(Effect.provide(context), Logger.withMinimumLogLevel(LogLevel.None))
    })
  )

  it.scoped(
    "F3: an idle worker leaves a primary that left its group and only answers reads, ever more out of date",
    () =>
      Effect.gen(function* () {
        const { complete, members, primary } = yield* Cluster
        const { address, context, first } = yield* behindAddress
        const job = jobOn("idle")
        yield* Effect.gen(function* () {
          const completed: Array<number> = []
          yield* Layer.build(workers(job, completed))
          yield* Effect.sleep("1 second")
          yield* first.leave
          const next = yield* Effect.retry(primary, { schedule: Schedule.spaced("100 millis"), times: 100 })
          expect(next).not.toBe(first)
          yield* address.aim(next.url)
          // Another process enqueues at the new primary; the old one never hears of it.
          const other = yield* Layer.build(
            MysqlQueue.layer({ migrate: "verify" }).pipe(
              Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(next.url) }))
            )
          )
          const enqueuedAt = performance.now()
          const { id } = yield* Effect.provide(Queue.enqueue(job, { n: 1 }), other)
          yield* until(succeeded(next.url, job.queue), (done) => done.some((row) => row["id"] === id))
          yield* print(`idle worker: completed ${seconds(enqueuedAt, performance.now())} after the enqueue elsewhere`)
          yield* first.join
          yield* complete(members.length)
        }).pipe(Effect.provide(context), Logger.withMinimumLogLevel(LogLevel.None))
      })
  )

  it.scoped(
    "F2: a primary that is killed under load loses nothing that was acknowledged; others take over by themselves",
    () =>
      Effect.gen(function* () {
        const { address, context, first } = yield* behindAddress
        const job = jobOn("killed")
        const acknowledged: Array<{ readonly id: JobRecord.JobId; readonly at: number }> = []
        const completed: Array<number> = []
        yield* Effect.gen(function* () {
          const moved = yield* follow(address, first)
          yield* Layer.build(workers(job, completed))
          const producers = yield* Effect.forkAll(["a", "b", "c", "d"].map((name) => produce(job, acknowledged, name)))
          yield* until(
            Effect.sync(() => completed.length),
            (count) => count > 100
          )
          yield* first.kill
          const killed = performance.now()
          const electedAt = yield* until(Ref.get(moved), (at) => at > killed, "60 seconds")
          yield* until(
            Effect.sync(() => completed.filter((at) => at > electedAt).length),
            (count) => count > 100,
            "60 seconds"
          )
          yield* Fiber.interrupt(producers)
          const enqueued = acknowledged.find(({ at }) => at > killed + 500)?.at
          const done = completed.find((at) => at > killed + 500)
          yield* print(
            `killed primary: a new one after ${seconds(killed, electedAt)}, then enqueued after`
              + ` ${seconds(electedAt, enqueued)} and completed after ${seconds(electedAt, done)}`
          )
          expect((enqueued ?? Number.POSITIVE_INFINITY) - electedAt).toBeLessThan(5_000)
          expect((done ?? Number.POSITIVE_INFINITY) - electedAt).toBeLessThan(7_000)
          yield* expectNothingLost(job.queue, acknowledged)
        }).pipe(Effect.provide(context), Logger.withMinimumLogLevel(LogLevel.None))
      })
  )
})
