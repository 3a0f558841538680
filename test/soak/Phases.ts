/**
 * What a soak does many times over, in the process that is watched.
 */
import { MysqlClient } from "@effect/sql-mysql2"
import { Context, Deferred, Effect, Layer, Metric, type MetricState, Redacted } from "effect"
import type * as Mysql from "mysql2/promise"
import { Job, MysqlQueue, Queue, Worker } from "../../src/index.js"
import { until } from "../support/Until.js"

const connections = { worker: 2, client: 2, transaction: 2 }

/** The queue as an application has it, with small pools that are soon filled. */
export const queueOn = (url: string, migrate: "auto" | "verify") =>
  MysqlQueue.layer({ connections, migrate }).pipe(
    Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(url), maxConnections: 2 }))
  )

const Work = Job.make("soak.work", { payload: {}, queue: "soak.work" })

/** Queues that stay empty: each has a loop of its own that polls. */
const idle = Array.from({ length: 20 }, (_, n) => Job.make(`soak.idle.${n}`, { payload: {}, queue: `soak.idle.${n}` }))

let done = 0

/** A worker of the one queue that has jobs, which also deletes at once what has ended. */
export const busyWorker = Worker.layer({
  jobs: [Work],
  queues: { [Work.queue]: { concurrency: 50 } },
  poll: "10 millis",
  lease: "5 seconds",
  maintenance: { reap: "1 second", clean: "1 second", retention: { succeeded: 0 } }
}).pipe(
  Layer.provide(
    Work.toLayer(() =>
      Effect.sync(() => {
        done++
      })
    )
  )
)

/** A worker that finds nothing. */
export const idleWorker = Worker.layer({ jobs: idle, poll: "10 millis", lease: "5 seconds" }).pipe(
  Layer.provide(Layer.mergeAll(Layer.empty, ...idle.map((job) => job.toLayer(() => Effect.void))))
)

/** None of the jobs is left; what has ended is deleted. */
const ended = until(
  Effect.map(Queue.counts, (counts) => counts.filter(({ queue }) => queue === Work.queue)),
  (counts) => counts.length === 0,
  "2 minutes"
)

/** Jobs through the queue, never more than some thousands of them at once. */
export const jobs = (count: number) =>
  Effect.gen(function* () {
    const goal = done + count
    for (let left = count; left > 0; left -= 1_000) {
      yield* Queue.enqueueMany(Array.from({ length: Math.min(left, 1_000) }, () => Queue.request(Work, {})))
      yield* Effect.repeat(Effect.sleep("5 millis"), { until: () => goal - left - done < 3_000 })
    }
    yield* Effect.repeat(Effect.sleep("20 millis"), { until: () => done >= goal })
    yield* ended
  })

const polls = Effect.map(Metric.snapshot, (pairs) =>
  pairs
    .filter(({ metricKey }) => metricKey.name === "leasehold_claim_duration_seconds")
    .reduce((sum, { metricState }) => sum + (metricState as MetricState.MetricState.Histogram).count, 0)
)

/** Polls that find nothing. */
export const emptyPolls = (count: number) =>
  Effect.flatMap(polls, (before) =>
    Effect.repeat(Effect.zipRight(Effect.sleep("50 millis"), polls), { until: (now) => now - before >= count })
  )

/** Connections of the library that end in the middle of its work; every job comes through all the same. */
export const cuts = (observer: Mysql.Connection, database: string) => {
  const sessions = Effect.promise(async () => {
    const [rows] = await observer.query<Array<Mysql.RowDataPacket>>(
      "SELECT id FROM performance_schema.processlist WHERE db = ? ORDER BY id",
      [database]
    )
    return rows.map((row) => Number(row["id"]))
  })
  /** One of those that are open, each in its turn; whether it was still there. */
  const cut = (turn: number) =>
    Effect.gen(function* () {
      const open = yield* until(sessions, (ids) => ids.length > 0)
      const kill = Effect.tryPromise(() => observer.query(`KILL ${open[turn % open.length]}`))
      return yield* Effect.match(kill, { onFailure: () => false, onSuccess: () => true })
    })
  return (count: number) =>
    Effect.gen(function* () {
      for (let done = 0, turn = 0; done < count; turn++) {
        // Its session may be the one that is cut: then it is not known to be there, and the worker runs it or not.
        const enqueue = Effect.either(Queue.enqueue(Work, {}))
        const [wasCut] = yield* Effect.all([cut(turn), enqueue], { concurrency: "unbounded" })
        if (wasCut) done++
      }
      yield* until(Worker.health, ({ queues }) => queues.every(({ fault }) => fault === undefined), "1 minute")
      yield* ended
    })
}

/** Whole applications that start, run a job, and stop: four at a time, each in a lane with a queue of its own. */
export const starts = (url: string) => (count: number) =>
  Effect.forEach(
    [0, 1, 2, 3],
    (lane) => Effect.replicateEffect(startAndStop(url, lane), Math.ceil(count / 4), { discard: true }),
    { concurrency: "unbounded", discard: true }
  )

const startAndStop = (url: string, lane: number) =>
  Effect.gen(function* () {
    const ran = yield* Deferred.make<void>()
    const job = Job.make("soak.start", { payload: {}, queue: `soak.start.${lane}` })
    const application = Worker.layer({ jobs: [job], poll: "20 millis" }).pipe(
      Layer.provide(job.toLayer(() => Effect.asVoid(Deferred.succeed(ran, void 0)))),
      Layer.provideMerge(queueOn(url, "verify"))
    )
    const context = yield* Layer.build(application)
    yield* Effect.provideService(Queue.enqueue(job, {}), Queue.Queue, Context.get(context, Queue.Queue))
    yield* Deferred.await(ran)
  }).pipe(Effect.scoped)
