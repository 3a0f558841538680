import { SqlClient } from "@effect/sql"
import { expect, layer } from "@effect/vitest"
import { Deferred, Duration, Effect, Layer, Schema } from "effect"
import { Job, JobStore, Queue, RetryPolicy, Worker } from "../../src/index.js"
import { Database, outside } from "../support/Mysql.js"
import { queue } from "../support/QueueOnMysql.js"
import { until } from "../support/Until.js"

const retry = RetryPolicy.fixed({ delay: "10 millis", jitter: 0, maxAttempts: 5 })
const Parent = Job.make("fan.parent", { payload: { n: Schema.Number }, queue: "fan.parents", retry })
const Child = Job.make("fan.child", {
  payload: { parent: Schema.Number, nth: Schema.Number },
  queue: "fan.children",
  retry
})
const Idle = Job.make("fan.idle", { payload: {}, queue: "fan.idle", retry })
const Slow = Job.make("fan.slow", { payload: {}, success: Schema.String, queue: "fan.slow", retry })

/** Thirty parents at once wait for eight connections: on a busy machine for longer than the usual five seconds. */
const patient = queue({ statementTimeout: "30 seconds" })

layer(patient, { excludeTestServices: true, timeout: "2 minutes" })("bursts and locks", (it) => {
  it.scoped(
    "parents that fan out children while others cancel and clean: each child is there once, and nobody sees a deadlock",
    () =>
      Effect.gen(function* () {
        const { query } = yield* Database
        const store = yield* JobStore.JobStore
        const seen = new Map<string, number>()
        const parent = Parent.toLayer(({ n }, lease) =>
          Effect.gen(function* () {
            const sql = yield* SqlClient.SqlClient
            yield* lease.completeWith(
              sql.withTransaction(
                Queue.enqueueAll(
                  Child,
                  Array.from({ length: 1 + (n % 5) }, (_, nth) => ({ parent: n, nth }))
                )
              )
            )
          }).pipe(Effect.orDie)
        )
        const child = Child.toLayer(({ nth, parent: of }) =>
          Effect.sync(() => void seen.set(`${of}.${nth}`, (seen.get(`${of}.${nth}`) ?? 0) + 1))
        )
        const parents = yield* Queue.enqueueAll(
          Parent,
          Array.from({ length: 200 }, (_, n) => ({ n }))
        )
        const idle = yield* Queue.enqueueAll(
          Idle,
          Array.from({ length: 200 }, () => ({}))
        )
        for (let worker = 0; worker < 3; worker++) {
          yield* Layer.build(
            Layer.provide(
              Worker.layer({
                jobs: [Parent, Child],
                // Nothing is claimed ahead: what waits for a slot for a second is given back, and its attempt counted.
                queues: {
                  "fan.parents": { concurrency: 10, prefetch: 0 },
                  "fan.children": { concurrency: 10, prefetch: 0 }
                },
                poll: "50 millis",
                maintenance: false
              }),
              Layer.merge(parent, child)
            )
          )
        }
        const cancels = Effect.forEach(idle, ({ id }) => Queue.cancel(id), { concurrency: 4, discard: true })
        const cleans = Effect.repeatN(store.clean({ canceled: Duration.zero }, "", 1_000), 30)
        yield* Effect.all([cancels, cleans], { concurrency: 2, discard: true })
        const children = parents.reduce((sum, _, n) => sum + 1 + (n % 5), 0)
        yield* until(
          query("SELECT COUNT(*) AS ended FROM leasehold_jobs WHERE type LIKE 'fan.%' AND state = 2"),
          ([row]) => row?.["ended"] === parents.length + children,
          "2 minutes"
        )
        expect(seen.size).toBe(children)
        expect(yield* query("SELECT COUNT(*) AS jobs FROM leasehold_jobs WHERE type = 'fan.child'")).toEqual([
          { jobs: children }
        ])
        expect(
          yield* query("SELECT MAX(attempt) AS attempts FROM leasehold_jobs WHERE type IN ('fan.parent', 'fan.child')")
        ).toEqual([{ attempts: 1 }])
      })
  )

  it.scoped(
    "a completion whose row somebody has locked is written when the lock is gone, and the handler ran once",
    () =>
      Effect.gen(function* () {
        const { url } = yield* Database
        const started = yield* Deferred.make<void>()
        const finish = yield* Deferred.make<void>()
        let runs = 0
        const handler = Slow.toLayer(() =>
          Effect.sync(() => runs++).pipe(
            Effect.zipRight(Deferred.succeed(started, void 0)),
            Effect.zipRight(Deferred.await(finish)),
            Effect.as("done")
          )
        )
        yield* Layer.build(
          Layer.provide(Worker.layer({ jobs: [Slow], lease: "6 seconds", poll: "50 millis" }), handler)
        )
        const { id } = yield* Queue.enqueue(Slow, {})
        yield* Deferred.await(started)
        yield* Effect.scoped(
          Effect.gen(function* () {
            const stranger = yield* outside(url)
            yield* stranger.query("START TRANSACTION")
            yield* stranger.query("SELECT 1 FROM leasehold_jobs WHERE id = ? FOR UPDATE", [id])
            yield* Deferred.succeed(finish, void 0)
            // A renewal meets the lock, too.
            yield* Effect.sleep("2500 millis")
            expect(yield* Queue.get(id)).toMatchObject({ state: "running" })
          })
        )
        expect(yield* Queue.result(Slow, id)).toBe("done")
        expect(yield* Queue.get(id)).toMatchObject({ state: "succeeded", token: 1, attempt: 1 })
        expect(runs).toBe(1)
      })
  )
})
