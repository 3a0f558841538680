import { SqlClient } from "@effect/sql"
import { expect, layer } from "@effect/vitest"
import { Cause, Deferred, Effect, Exit, Fiber, Layer, Option, Schema } from "effect"
import { Job, JobFailure, MysqlQueue, Queue, RetryPolicy, Worker } from "../../src/index.js"
import { Database } from "../support/Mysql.js"
import { queue } from "../support/QueueOnMysql.js"
import { until } from "../support/Until.js"

class OrderMissing extends Schema.TaggedError<OrderMissing>()("OrderMissing", { orderId: Schema.Number }) {}

const jobOn = (queueName: string) =>
  Job.make("order.export", {
    payload: { orderId: Schema.Number },
    success: Schema.Struct({ url: Schema.String }),
    error: OrderMissing,
    failures: { OrderMissing: "permanent" },
    retry: RetryPolicy.fixed({ delay: "10 millis", jitter: 0, maxAttempts: 3 }),
    queue: queueName
  })

const orders = Layer.effectDiscard(
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`CREATE TABLE orders (id INT PRIMARY KEY, status VARCHAR(20) NOT NULL, exports INT NOT NULL DEFAULT 0)`
  )
)

const insertOrder = (id: number) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => sql`INSERT INTO orders (id, status) VALUES (${id}, 'new')`)

const workOn = <T extends string, P, S, E>(job: Job.Job<T, P, S, E>) =>
  ({ jobs: [job], queues: { [job.queue]: { concurrency: 4 } }, lease: "10 seconds", poll: "50 millis" }) as const

layer(orders.pipe(Layer.provideMerge(queue())), { excludeTestServices: true, timeout: "2 minutes" })(
  "an order and its job",
  (it) => {
    it.effect("commit together, and a worker exports the order once", () =>
      Effect.gen(function* () {
        const job = jobOn("export")
        const sql = yield* SqlClient.SqlClient
        const handler = job.toLayer(
          Effect.succeed(({ orderId }) =>
            Effect.as(
              sql`UPDATE orders SET status = 'exported', exports = exports + 1 WHERE id = ${orderId} AND status = 'new'`,
              { url: `file:${orderId}` }
            ).pipe(Effect.mapError(() => new JobFailure.Retryable({ code: "database", message: "not written" })))
          )
        )
        const enqueued = yield* sql.withTransaction(
          Effect.zipRight(
            insertOrder(1),
            Queue.enqueue(
              job,
              { orderId: 1 },
              {
                requireTransaction: true
              }
            )
          )
        )
        expect(enqueued.created).toBe(true)
        const output = yield* Queue.result(job, enqueued.id).pipe(
          Effect.provide(Layer.provide(Worker.layer(workOn(job)), handler))
        )
        expect(output).toEqual({ url: "file:1" })
        expect(yield* sql`SELECT status, exports FROM orders WHERE id = 1`).toEqual([
          { status: "exported", exports: 1 }
        ])
        const record = yield* Queue.get(enqueued.id)
        expect(record).toMatchObject({ state: "succeeded", token: 1, attempt: 1 })
        expect(record.attempts.map(({ outcome }) => outcome)).toEqual([Option.some("completed")])
      })
    )

    it.effect("roll back together: a rolled-back transaction leaves neither row", () =>
      Effect.gen(function* () {
        const job = jobOn("rollback")
        const sql = yield* SqlClient.SqlClient
        const { query } = yield* Database
        const exit = yield* Effect.exit(
          sql.withTransaction(
            Effect.zipRight(
              Effect.zipRight(insertOrder(2), Queue.enqueue(job, { orderId: 2 })),
              Effect.fail("no money")
            )
          )
        )
        expect(exit).toEqual(Exit.fail("no money"))
        expect(yield* query("SELECT * FROM orders WHERE id = 2")).toEqual([])
        expect(yield* query("SELECT * FROM leasehold_jobs WHERE queue = 'rollback'")).toEqual([])
      })
    )

    it.effect("in a nested transaction that fails and is caught, the job goes and the rest stays", () =>
      Effect.gen(function* () {
        const job = jobOn("nested")
        const sql = yield* SqlClient.SqlClient
        const kept = yield* sql.withTransaction(
          Effect.gen(function* () {
            const outer = yield* Queue.enqueue(job, { orderId: 3 })
            yield* Effect.ignore(
              sql.withTransaction(
                Effect.zipRight(Queue.enqueueAll(job, [{ orderId: 4 }, { orderId: 5 }]), Effect.fail("inner"))
              )
            )
            return outer
          })
        )
        expect((yield* Queue.list({ queue: "nested" })).map(({ id }) => id)).toEqual([kept.id])
      })
    )

    it.effect("are invisible to everybody else until the commit, also from child fibers and in parallel", () =>
      Effect.gen(function* () {
        const job = jobOn("invisible")
        const sql = yield* SqlClient.SqlClient
        const { query } = yield* Database
        const count = Effect.map(
          query("SELECT COUNT(*) AS jobs FROM leasehold_jobs WHERE queue = 'invisible'"),
          ([row]) => row?.["jobs"]
        )
        yield* sql.withTransaction(
          Effect.gen(function* () {
            yield* Effect.all(
              [1, 2, 3].map((orderId) => Queue.enqueue(job, { orderId })),
              { concurrency: "unbounded" }
            )
            yield* Fiber.join(yield* Effect.fork(Queue.enqueue(job, { orderId: 4 })))
            expect(yield* count).toBe(0)
          })
        )
        expect(yield* count).toBe(4)
      })
    )

    it.effect("outside of a transaction, requireTransaction refuses to enqueue", () =>
      Effect.gen(function* () {
        const refused = yield* Effect.flip(
          Queue.enqueue(jobOn("required"), { orderId: 1 }, { requireTransaction: true })
        )
        expect(refused._tag).toBe("NotInTransaction")
        expect(yield* Queue.list({ queue: "required" })).toEqual([])
      })
    )

    it.effect("a permanent failure makes the job dead after one run, a retryable one after its budget", () =>
      Effect.gen(function* () {
        const job = jobOn("failing")
        const handler = job.toLayer(({ orderId }) =>
          orderId === 1
            ? Effect.fail(new OrderMissing({ orderId }))
            : Effect.fail(new JobFailure.Retryable({ code: "upstream", message: "503 from password=hunter2" }))
        )
        const [missing, failing] = yield* Queue.enqueueAll(job, [{ orderId: 1 }, { orderId: 2 }])
        if (missing === undefined || failing === undefined) throw new Error("two jobs were enqueued")
        const [first, second] = yield* Effect.all(
          [Effect.flip(Queue.result(job, missing.id)), Effect.flip(Queue.result(job, failing.id))],
          { concurrency: 2 }
        ).pipe(Effect.provide(Layer.provide(Worker.layer(workOn(job)), handler)))
        expect(first).toMatchObject({ _tag: "JobDead", code: "OrderMissing" })
        expect(second).toMatchObject({ _tag: "JobDead", code: "upstream" })
        expect(yield* Queue.get(missing.id)).toMatchObject({ state: "dead", attempt: 1 })
        const record = yield* Queue.get(failing.id)
        expect(record).toMatchObject({ state: "dead", attempt: 3, attemptsLeft: Option.some(0) })
        expect(record.errorMessage).toEqual(Option.some("503 from password=***"))
      })
    )

    it.effect("an expired lease is taken over in place, and whatever the old holder then tries is refused", () =>
      Effect.gen(function* () {
        const job = jobOn("takeover")
        const { query } = yield* Database
        const { id } = yield* Queue.enqueue(job, { orderId: 9 })
        const row = query("SELECT * FROM leasehold_jobs WHERE id = ?", [id])
        yield* Effect.scoped(
          Effect.gen(function* () {
            const old = yield* Queue.claim(job, { lease: "10 minutes" })
            yield* query("UPDATE leasehold_jobs SET due_at = due_at - INTERVAL 1 HOUR WHERE id = ?", [id])
            yield* Effect.scoped(
              Effect.gen(function* () {
                const next = yield* until(Queue.claimOption(job, { lease: "10 minutes" }), Option.isSome)
                const holder = Option.getOrThrow(next)
                expect(holder.jobId).toBe(id)
                expect(holder.token).toBe(old.token + 1)
                const before = yield* row
                for (const [verb, attempt] of Object.entries({
                  complete: old.complete({ url: "stale" }),
                  completeWith: old.completeWith(Effect.succeed({ url: "stale" })),
                  fail: old.fail(new JobFailure.Retryable({ code: "stale", message: "stale" })),
                  snooze: old.snooze("1 second"),
                  renew: old.renew,
                  release: old.release
                })) {
                  const refused = yield* Effect.flip(attempt)
                  expect(refused, verb).toMatchObject({ _tag: "LeaseLost", reason: "superseded" })
                }
                expect(yield* row).toEqual(before)
                yield* holder.complete({ url: "fresh" })
              })
            )
          })
        )
        const record = yield* Queue.get(id)
        expect(record).toMatchObject({ state: "succeeded", attempt: 2, output: Option.some('{"url":"fresh"}') })
        expect(record.attempts.map(({ outcome }) => Option.getOrNull(outcome))).toEqual(["expired", "completed"])
        const story = yield* Queue.why(id)
        expect(JSON.stringify(story)).toContain("refus")
      })
    )

    it.effect("completeWith writes the caller's rows and the end of the job together, or neither", () =>
      Effect.gen(function* () {
        const job = jobOn("together")
        const sql = yield* SqlClient.SqlClient
        const { query } = yield* Database
        yield* insertOrder(20)
        const { id } = yield* Queue.enqueue(job, { orderId: 20 })
        const exported = Effect.as(sql`UPDATE orders SET status = 'exported' WHERE id = 20`, { url: "file:20" })
        yield* Effect.scoped(
          Effect.gen(function* () {
            const lease = yield* Queue.claim(job)
            const failed = yield* Effect.flip(
              lease.completeWith(Effect.zipRight(exported, Effect.fail("printer on fire")))
            )
            expect(failed).toBe("printer on fire")
            expect(yield* query("SELECT status FROM orders WHERE id = 20")).toEqual([{ status: "new" }])
            expect((yield* Queue.get(id)).state).toBe("running")
            expect(yield* lease.completeWith(exported)).toEqual({ url: "file:20" })
          })
        )
        expect(yield* query("SELECT status FROM orders WHERE id = 20")).toEqual([{ status: "exported" }])
        expect(yield* Queue.get(id)).toMatchObject({ state: "succeeded", output: Option.some('{"url":"file:20"}') })
      })
    )

    it.effect("completeWith runs its effect again after a deadlock, and what it wrote counts once", () =>
      Effect.gen(function* () {
        const job = jobOn("deadlock")
        const sql = yield* SqlClient.SqlClient
        const { query } = yield* Database
        yield* insertOrder(30)
        yield* insertOrder(31)
        const { id } = yield* Queue.enqueue(job, { orderId: 30 })
        const rivalHas31 = yield* Deferred.make<void>()
        const holderHas30 = yield* Deferred.make<void>()
        // The rival has written more, so the server makes the holder the victim.
        const rival = sql.withTransaction(
          Effect.gen(function* () {
            yield* Effect.forEach([101, 102, 103, 104], insertOrder)
            yield* sql`UPDATE orders SET exports = exports + 10 WHERE id = 31`
            yield* Deferred.succeed(rivalHas31, void 0)
            yield* Deferred.await(holderHas30)
            yield* sql`UPDATE orders SET exports = exports + 10 WHERE id = 30`
          })
        )
        let runs = 0
        yield* Effect.scoped(
          Effect.gen(function* () {
            const lease = yield* Queue.claim(job)
            const fiber = yield* Effect.fork(rival)
            yield* Deferred.await(rivalHas31)
            yield* lease.completeWith(
              Effect.gen(function* () {
                runs++
                yield* sql`UPDATE orders SET exports = exports + 1 WHERE id = 30`
                yield* Deferred.succeed(holderHas30, void 0)
                yield* sql`UPDATE orders SET exports = exports + 1 WHERE id = 31`
                return { url: "file:30" }
              })
            )
            yield* Fiber.join(fiber)
          })
        )
        expect(runs).toBe(2)
        expect(yield* query("SELECT id, exports FROM orders WHERE id IN (30, 31) ORDER BY id")).toEqual([
          { id: 30, exports: 11 },
          { id: 31, exports: 11 }
        ])
        expect((yield* Queue.get(id)).state).toBe("succeeded")
      })
    )

    it.effect("a worker started inside of a transaction does not write into it", () =>
      Effect.gen(function* () {
        const job = jobOn("stranger")
        const sql = yield* SqlClient.SqlClient
        const { id } = yield* Queue.enqueue(job, { orderId: 40 })
        const written = yield* Deferred.make<void>()
        const handler = job.toLayer(() =>
          Effect.orDie(sql`INSERT INTO orders (id, status) VALUES (40, 'by the handler')`).pipe(
            Effect.zipRight(Deferred.succeed(written, void 0)),
            Effect.as({ url: "x" })
          )
        )
        const exit = yield* Effect.exit(
          sql.withTransaction(
            Effect.gen(function* () {
              const fiber = yield* Effect.forkDaemon(Effect.provide(Worker.run(workOn(job)), handler))
              yield* Deferred.await(written)
              yield* Fiber.interrupt(fiber)
              return yield* Effect.fail("rolled back")
            })
          )
        )
        expect(exit).toEqual(Exit.fail("rolled back"))
        expect((yield* Queue.get(id)).state).toBe("succeeded")
        expect(yield* sql`SELECT status FROM orders WHERE id = 40`).toEqual([{ status: "by the handler" }])
      })
    )

    it.effect("a stop lets running handlers finish, and gives back what it had claimed besides", () =>
      Effect.gen(function* () {
        const job = jobOn("graceful")
        const started = yield* Deferred.make<void>()
        const finish = yield* Deferred.make<void>()
        const handler = job.toLayer(() =>
          Deferred.succeed(started, void 0).pipe(Effect.zipRight(Deferred.await(finish)), Effect.as({ url: "done" }))
        )
        yield* Queue.enqueueAll(
          job,
          [1, 2, 3, 4, 5, 6].map((orderId) => ({ orderId }))
        )
        const fiber = yield* Effect.fork(
          Effect.provide(Worker.run({ ...workOn(job), queues: { graceful: { concurrency: 2 } } }), handler)
        )
        yield* Deferred.await(started)
        const stopping = yield* Effect.fork(Fiber.interrupt(fiber))
        // What waits for a slot goes back before the handlers have ended.
        yield* until(Queue.list({ queue: "graceful", state: "pending" }), ({ length }) => length === 4)
        yield* Deferred.succeed(finish, void 0)
        const exit = yield* Fiber.join(stopping)
        expect(Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause)).toBe(true)
        const states = (yield* Queue.list({ queue: "graceful" })).map(({ state }) => state).sort()
        expect(states).toEqual(["pending", "pending", "pending", "pending", "succeeded", "succeeded"])
      })
    )
  }
)

layer(queue(), { excludeTestServices: true })("bad options", (it) => {
  it.effect("are refused at start, with the option's name and its range", () =>
    Effect.gen(function* () {
      const job = jobOn("options")
      const handler = job.toLayer(() => Effect.succeed({ url: "" }))
      const good = workOn(job)
      const refuse = (options: Worker.Options<readonly [typeof job]>) =>
        Effect.flip(Effect.provide(Worker.run(options), handler))
      for (const [options, option] of [
        [{ ...good, lease: 0 }, "lease"],
        [{ ...good, lease: -1 }, "lease"],
        [{ ...good, lease: Number.NaN }, "lease"],
        [{ ...good, lease: "3 days" }, "lease"],
        [{ ...good, poll: 0 }, "poll"],
        [{ ...good, poll: Number.POSITIVE_INFINITY }, "poll"],
        [{ ...good, queues: { options: { concurrency: 0 } } }, "concurrency"],
        [{ ...good, queues: { options: { concurrency: 1.5 } } }, "concurrency"],
        [{ ...good, queues: { options: { concurrency: Number.NaN } } }, "concurrency"],
        [{ ...good, shutdown: { grace: -5 } }, "grace"]
      ] as const) {
        const refused = yield* refuse(options)
        expect(refused).toMatchObject({ _tag: "InvalidOption" })
        expect(refused.message).toContain(option)
        expect(refused.message).toContain("accepted:")
      }
      expect(yield* refuse({ ...good, queues: { ["q".repeat(65)]: { concurrency: 1 } } })).toHaveProperty("_tag")
      const long = jobOn("q".repeat(65))
      expect(yield* Effect.flip(Queue.enqueue(long, { orderId: 1 }))).toMatchObject({
        _tag: "InvalidName",
        kind: "queue"
      })
    })
  )

  it.effect("of the layer are refused before anything is connected", () =>
    Effect.gen(function* () {
      for (const [options, option] of [
        [{ statementTimeout: 0 }, "statementTimeout"],
        [{ statementTimeout: Number.NaN }, "statementTimeout"],
        [{ connections: { worker: 1 } }, "connections.worker"],
        [{ connections: { client: 0.5 } }, "connections.client"]
      ] as const) {
        const refused = yield* Effect.flip(Layer.build(MysqlQueue.layer(options)))
        expect(refused).toMatchObject({ _tag: "InvalidOption", option })
      }
      expect(yield* Effect.flip(Layer.build(MysqlQueue.layer({ tablePrefix: "Jobs-" })))).toMatchObject({
        _tag: "InvalidName"
      })
    }).pipe(Effect.scoped)
  )
})
