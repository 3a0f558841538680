/**
 * What a retry leaves due is found by the claim that its signal leads to, whatever became of its commit.
 */
import { MysqlClient } from "@effect/sql-mysql2"
import { expect, layer } from "@effect/vitest"
import { Duration, Effect, Fiber, Layer, Redacted, Schema } from "effect"
import { Job, JobStore, MysqlQueue, Queue } from "../../src/index.js"
import { Database, database, outside } from "../support/Mysql.js"
import * as Proxy from "../support/Proxy.js"
import { lockWaits } from "../support/ServerState.js"

const buildOn = (url: string) =>
  Layer.build(
    Layer.fresh(MysqlQueue.layer({ statementTimeout: "2 seconds" })).pipe(
      Layer.provideMerge(Layer.fresh(MysqlClient.layer({ url: Redacted.make(url) })))
    )
  )

const Task = Job.make("retried", { payload: { n: Schema.Number }, queue: "retried" })

/** A job that was canceled before it was due. */
const canceled = Effect.tap(Queue.enqueue(Task, { n: 1 }, { delay: "1 hour" }), ({ id }) => Queue.cancel(id))

layer(database, { excludeTestServices: true, timeout: "1 minute" })("a retry", (it) => {
  it.scoped("is found where claims have gone past it before it committed", () =>
    Effect.gen(function* () {
      const { url } = yield* Database
      const [here, elsewhere] = [yield* buildOn(url), yield* buildOn(url)]
      const locker = yield* outside(url)
      yield* Effect.gen(function* () {
        const store = yield* JobStore.JobStore
        const claim = Effect.map(
          store.claim({
            queue: Task.queue,
            types: [{ type: Task.type, version: 1 }],
            worker: "worker-1",
            lease: Duration.minutes(1),
            limit: 10
          }),
          ({ jobs, more }) => ({ ids: jobs.map(({ lease }) => lease.jobId), more })
        )
        yield* claim
        const [first, last] = [yield* canceled, yield* canceled]
        yield* locker.query("START TRANSACTION")
        yield* locker.query("SELECT 1 FROM leasehold_jobs WHERE id = ? FOR UPDATE", [last.id])
        const retrying = yield* Effect.fork(Queue.retryAll({ queue: Task.queue }))
        yield* lockWaits(1)
        // Due later than what waits for its commit.
        const newer = yield* Effect.provide(Queue.enqueue(Task, { n: 2 }), elsewhere)
        expect((yield* claim).ids).toEqual([newer.id])
        yield* locker.query("ROLLBACK")
        expect(yield* Fiber.join(retrying)).toBe(2)
        const found = yield* Effect.iterate(yield* claim, {
          while: ({ more }) => more,
          body: ({ ids }) => Effect.map(claim, (next) => ({ ...next, ids: [...ids, ...next.ids] }))
        })
        expect([...found.ids].sort()).toEqual([first.id, last.id].sort())
      }).pipe(Effect.provide(here))
    })
  )

  it.scoped("of many names the queues that got some also where the answer to its commit was lost", () =>
    Effect.gen(function* () {
      const proxy = yield* Proxy.make((yield* Database).url)
      const context = yield* buildOn(proxy.url)
      yield* Effect.gen(function* () {
        const store = yield* JobStore.JobStore
        const { id } = yield* canceled
        proxy.rules.push({ matches: /attempts_left = max_attempts/, action: "swallow", times: 1 })
        expect((yield* store.retryAll({ queue: Task.queue }, "", 500)).queues).toEqual([Task.queue])
        expect((yield* Queue.get(id)).state).toBe("pending")
      }).pipe(Effect.provide(context))
    })
  )
})
