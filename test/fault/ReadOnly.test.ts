/**
 * A server that becomes read-only while another one takes over its role, as in a failover: two servers that know nothing of
 * each other, behind one address. `test/failover` does it with a real cluster.
 */
import { randomUUID } from "node:crypto"
import { MysqlClient } from "@effect/sql-mysql2"
import { expect, layer } from "@effect/vitest"
import { Context, Deferred, Duration, Effect, Layer, Redacted, Schema } from "effect"
import { launch } from "../../scripts/mysql/MysqlServer.js"
import { Job, MysqlQueue, Queue, RetryPolicy, Worker } from "../../src/index.js"
import { Database, database, outside } from "../support/Mysql.js"
import * as Proxy from "../support/Proxy.js"
import { until } from "../support/Until.js"

/** The URL of a server that is only this suite's: `super_read_only` is global. */
class OldPrimary extends Context.Tag("leasehold/test/OldPrimary")<OldPrimary, string>() {}

const oldPrimary = Layer.scoped(
  OldPrimary,
  Effect.map(launch({ url: "", serverArgs: ["--innodb-buffer-pool-size=64M"] }), ({ url }) => url)
)

const queueAt = (url: string) =>
  Layer.build(
    MysqlQueue.layer({ statementTimeout: "2 seconds" }).pipe(
      Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(url), maxConnections: 3 }))
    )
  )

const scene = Effect.gen(function* () {
  const next = yield* Database
  const oldUrl = new URL(yield* OldPrimary)
  const old = yield* outside(oldUrl.href)
  // The database has the same name on both.
  oldUrl.pathname = new URL(next.url).pathname
  yield* old.query(`CREATE DATABASE IF NOT EXISTS ${oldUrl.pathname.slice(1)}`)
  yield* Effect.addFinalizer(() => old.query("SET GLOBAL read_only = OFF"))
  const address = yield* Proxy.make(oldUrl.href)
  const context = yield* queueAt(address.url)
  const job = Job.make("readonly.work", {
    payload: { n: Schema.Number },
    success: Schema.Number,
    queue: `readonly.${randomUUID().slice(0, 8)}`,
    retry: RetryPolicy.fixed({ delay: "10 millis", jitter: 0, maxAttempts: 5 })
  })
  const work = (handler: (n: number) => Effect.Effect<number>) =>
    Layer.build(
      Layer.provide(
        Worker.layer({ jobs: [job], lease: "10 seconds", poll: "100 millis", maintenance: false }),
        job.toLayer(({ n }) => handler(n))
      )
    ).pipe(Effect.provide(context))
  const becomeReadOnly = old.query("SET GLOBAL super_read_only = ON")
  return { old, next, address, context, job, work, becomeReadOnly }
})

layer(Layer.merge(oldPrimary, database), { excludeTestServices: true, timeout: "2 minutes" })(
  "F3: a server that becomes read-only",
  (it) => {
    it.scoped("refuses calls with a typed error; the worker says so, charges no attempt, and goes on afterwards", () =>
      Effect.gen(function* () {
        const { becomeReadOnly, context, job, old, work } = yield* scene
        const started = yield* Deferred.make<void>()
        const finish = yield* Deferred.make<void>()
        const built = yield* work((n) =>
          n === 1
            ? Deferred.succeed(started, void 0).pipe(Effect.zipRight(Deferred.await(finish)), Effect.as(1))
            : Effect.succeed(n)
        )
        const { id } = yield* Effect.provide(Queue.enqueue(job, { n: 1 }), context)
        yield* Deferred.await(started)
        yield* becomeReadOnly
        const refused = yield* Effect.provide(Effect.flip(Queue.enqueue(job, { n: 2 })), context)
        expect(refused).toMatchObject({
          _tag: "StoreUnavailable",
          reason: "read_only",
          code: expect.stringContaining("1290")
        })
        // The handler ends while nothing can be written: its completion is tried until it can.
        yield* Deferred.succeed(finish, void 0)
        yield* until(
          Effect.provide(Worker.health, built),
          ({ queues }) => queues[0]?.fault?._tag === "StoreUnavailable" && queues[0].fault.reason === "read_only"
        )
        yield* Effect.sleep("1 second")
        yield* old.query("SET GLOBAL read_only = OFF")
        yield* until(Effect.provide(Queue.get(id), context), ({ state }) => state === "succeeded")
        expect(yield* Effect.provide(Queue.get(id), context)).toMatchObject({ token: 1, attempt: 1 })
        yield* until(Effect.provide(Worker.health, built), ({ queues }) => queues[0]?.fault === undefined)
      })
    )

    it.scoped("is left by every connection at the first such answer, and the call that met it succeeds elsewhere", () =>
      Effect.gen(function* () {
        const { address, becomeReadOnly, context, job, next, old } = yield* scene
        const install = yield* queueAt(next.url)
        const many = (n: number) =>
          Effect.forEach(Array.from({ length: n }), (_, index) => Queue.enqueue(job, { n: index }), { concurrency: n })
        yield* Effect.provide(many(8), context)
        yield* becomeReadOnly
        yield* address.aim(next.url)
        const { id } = yield* Effect.provide(Queue.enqueue(job, { n: 99 }), context)
        expect(yield* Effect.provide(Queue.get(id), install)).toMatchObject({ queue: job.queue })
        const before = yield* old.query("SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_insert', 'Com_select')")
        yield* Effect.provide(Effect.all([many(8), Queue.list({ queue: job.queue }), Queue.counts]), context)
        const after = yield* old.query("SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_insert', 'Com_select')")
        expect(after).toEqual(before)
      })
    )

    it.scoped("is noticed by an idle worker too, which only reads: it finds the jobs at the new primary", () =>
      Effect.gen(function* () {
        const { address, becomeReadOnly, job, next, work } = yield* scene
        const install = yield* queueAt(next.url)
        yield* work((n) => Effect.succeed(n))
        yield* Effect.sleep("500 millis")
        yield* becomeReadOnly
        yield* address.aim(next.url)
        const { id } = yield* Effect.provide(Queue.enqueue(job, { n: 7 }), install)
        const output = yield* Effect.provide(Queue.result(job, id, { timeout: "15 seconds" }), install)
        expect(output).toBe(7)
      })
    )

    it.scoped("but takes the writes of this user all the same, is worked on as ever", () =>
      Effect.gen(function* () {
        const { context, job, old, work } = yield* scene
        yield* work((n) => Effect.succeed(n))
        // Root has CONNECTION_ADMIN, which read_only alone does not bind.
        yield* old.query("SET GLOBAL read_only = ON")
        const [time, output] = yield* Effect.timed(
          Effect.flatMap(Queue.enqueue(job, { n: 3 }), ({ id }) => Queue.result(job, id))
        ).pipe(Effect.provide(context))
        expect(output).toBe(3)
        expect(Duration.toMillis(time)).toBeLessThan(3_000)
      })
    )
  }
)
