import { SqlClient } from "@effect/sql"
import { MysqlClient } from "@effect/sql-mysql2"
import { expect, layer } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer, Metric, Redacted, Ref, Schema } from "effect"
import { Job, Metrics, MysqlQueue, Queue, Wakeup, Worker } from "../../src/index.js"
import { Database, outside } from "../support/Mysql.js"
import * as Proxy from "../support/Proxy.js"
import { queue } from "../support/QueueOnMysql.js"
import { lockWaits } from "../support/ServerState.js"
import { until } from "../support/Until.js"

const jobOn = (queueName: string) => Job.make("order.ship", { payload: { order: Schema.Number }, queue: queueName })

const orders = Layer.effectDiscard(
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`CREATE TABLE orders (id INT PRIMARY KEY, session BIGINT NOT NULL DEFAULT 0)`
  )
)

const insertOrder = (id: number) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => sql`INSERT INTO orders (id) VALUES (${id})`)

const ordersBetween = (from: number, to: number) =>
  Effect.flatMap(Database, ({ query }) =>
    Effect.map(query("SELECT id FROM orders WHERE id BETWEEN ? AND ? ORDER BY id", [from, to]), (rows) =>
      rows.map(({ id }) => Number(id))
    )
  )

/** The orders that the jobs of a queue are for, in the order of their ids. */
const jobsFor = (queueName: string) =>
  Effect.flatMap(Database, ({ query }) =>
    Effect.map(query("SELECT payload FROM leasehold_jobs WHERE queue = ? ORDER BY id", [queueName]), (rows) =>
      rows.map(({ payload }): number => JSON.parse(String(payload)).order)
    )
  )

/** How often workers of this process were woken for a queue since the ear was opened. */
const ear = (queueName: string) =>
  Effect.gen(function* () {
    const wakeup = yield* Wakeup.Wakeup
    const signal = yield* wakeup.subscribe(queueName)
    const heard = yield* Ref.make(0)
    yield* Effect.forkScoped(
      Effect.forever(
        Effect.zipRight(
          signal.wait,
          Ref.update(heard, (count) => count + 1)
        )
      )
    )
    return heard
  })

const enqueuedCount = (job: Job.Definition) =>
  Effect.map(Metric.value(Metrics.bind(Metrics.enqueued, { queue: job.queue, type: job.type })), ({ count }) => count)

layer(orders.pipe(Layer.provideMerge(queue())), { excludeTestServices: true, timeout: "2 minutes" })(
  "an enqueue in the caller's transaction",
  (it) => {
    it.effect("runs on the caller's connection: from child fibers, in parallel, after a pause and nested", () =>
      Effect.gen(function* () {
        const job = jobOn("connection")
        const sql = yield* SqlClient.SqlClient
        const { query } = yield* Database
        // Each new row of the queue notes the connection that wrote it.
        yield* query(
          "CREATE TABLE written (job BIGINT, session BIGINT);"
            + " CREATE TRIGGER note_session AFTER INSERT ON leasehold_jobs FOR EACH ROW"
            + " INSERT INTO written VALUES (NEW.id, CONNECTION_ID())"
        )
        const session = yield* sql.withTransaction(
          Effect.gen(function* () {
            const [row] = yield* sql<{ id: number }>`SELECT CONNECTION_ID() AS id`
            const enqueue = (order: number) => Queue.enqueue(job, { order })
            yield* Fiber.join(yield* Effect.fork(enqueue(1)))
            yield* Effect.yieldNow()
            yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
            yield* enqueue(2)
            yield* Effect.all([enqueue(3), enqueue(4), enqueue(5)], { concurrency: "unbounded" })
            yield* sql.withTransaction(Queue.enqueueAll(job, [{ order: 6 }, { order: 7 }]))
            yield* Queue.enqueue(job, { order: 8 }, { idempotency: { key: "connection" } })
            expect(yield* jobsFor("connection")).toEqual([])
            return row?.id
          })
        )
        expect(yield* jobsFor("connection")).toHaveLength(8)
        expect(yield* query("SELECT DISTINCT session FROM written")).toEqual([{ session }])
        yield* query("DROP TRIGGER note_session")
      })
    )

    it.effect(
      "a bulk of two hundred in nested transactions commits with the outermost, or goes with the inner one",
      () =>
        Effect.gen(function* () {
          const job = jobOn("nested-bulk")
          const sql = yield* SqlClient.SqlClient
          const bulk = (from: number) =>
            Queue.enqueueAll(
              job,
              Array.from({ length: 200 }, (_, index) => ({ order: from + index }))
            )
          const enqueued = yield* sql.withTransaction(
            Effect.gen(function* () {
              const outer = yield* bulk(0)
              const inner = yield* Effect.exit(sql.withTransaction(Effect.zipRight(bulk(1_000), Effect.fail("inner"))))
              expect(inner).toEqual(Exit.fail("inner"))
              const kept = yield* sql.withTransaction(bulk(2_000))
              return [...outer, ...kept]
            })
          )
          expect(yield* jobsFor("nested-bulk")).toEqual([
            ...Array.from({ length: 200 }, (_, index) => index),
            ...Array.from({ length: 200 }, (_, index) => 2_000 + index)
          ])
          const records = yield* Effect.forEach([enqueued[0], enqueued[199], enqueued[399]], (answer) =>
            Queue.get(answer?.id ?? "")
          )
          expect(records.map(({ payload }) => payload)).toEqual(['{"order":0}', '{"order":199}', '{"order":2199}'])
        })
    )

    it.effect("a bulk that the database refuses half-way leaves nothing of itself, and the transaction goes on", () =>
      Effect.gen(function* () {
        const job = jobOn("half-way")
        const sql = yield* SqlClient.SqlClient
        const { query } = yield* Database
        yield* query(
          "CREATE TRIGGER refuse BEFORE INSERT ON leasehold_jobs FOR EACH ROW"
            + " IF NEW.payload LIKE '%:4242}' THEN SIGNAL SQLSTATE '45000'; END IF"
        )
        const bulk = Queue.enqueueAll(
          job,
          Array.from({ length: 11 }, (_, index) => ({ order: index === 10 ? 4242 : index }))
        )
        const alone = yield* Effect.flip(bulk)
        const kept = yield* sql
          .withTransaction(
            Effect.gen(function* () {
              yield* insertOrder(90)
              expect(yield* Effect.flip(bulk)).toMatchObject({ _tag: "StoreRejected" })
              return yield* Queue.enqueue(job, { order: 90 })
            })
          )
          .pipe(Effect.ensuring(query("DROP TRIGGER refuse")))
        expect(alone).toMatchObject({ _tag: "StoreRejected", code: "ER_SIGNAL_EXCEPTION 1644" })
        expect(kept.created).toBe(true)
        expect(yield* jobsFor("half-way")).toEqual([90])
        expect(yield* ordersBetween(90, 90)).toEqual([90])
      })
    )

    for (const depth of ["in the outermost transaction", "in a nested one"]) {
      it.effect(`a lock wait ${depth} is told apart, and nothing of the transaction commits`, () =>
        Effect.gen(function* () {
          const nested = depth === "in a nested one"
          const [first, second] = nested ? [110, 111] : [100, 101]
          const job = jobOn(`lock-wait-${first}`)
          const sql = yield* SqlClient.SqlClient
          const { url } = yield* Database
          const stranger = yield* outside(url)
          yield* stranger.query(
            "START TRANSACTION; INSERT INTO leasehold_jobs (queue, type, first_due_at, due_at, enqueued_at, scope,"
              + " idempotency_key) VALUES ('stranger', 't', NOW(6), NOW(6), NOW(6), 'lock-wait', ?)",
            [job.queue]
          )
          const keyed = Queue.enqueue(job, { order: 1 }, { idempotency: { scope: "lock-wait", key: job.queue } })
          const after: Array<unknown> = []
          const place = Effect.gen(function* () {
            yield* sql`SET SESSION innodb_lock_wait_timeout = 1`
            yield* insertOrder(first)
            return yield* nested ? sql.withTransaction(keyed) : keyed
          }).pipe(Effect.ensuring(Effect.orDie(sql`SET SESSION innodb_lock_wait_timeout = DEFAULT`)))
          const passed = yield* Effect.flip(sql.withTransaction(place))
          expect(passed).toMatchObject({ _tag: "TransactionAborted", reason: "lock_wait" })
          expect(yield* ordersBetween(first, second)).toEqual([])
          // Also where the caller catches it, goes on and commits.
          yield* sql
            .withTransaction(
              Effect.gen(function* () {
                after.push(yield* Effect.flip(place))
                after.push(yield* Effect.flip(insertOrder(second)))
                after.push(yield* Effect.flip(Queue.enqueue(job, { order: 2 })))
                after.push(yield* Effect.flip(Queue.enqueueAll(job, [{ order: 3 }, { order: 4 }])))
              })
            )
            .pipe(Effect.exit)
          expect(after).toMatchObject([
            { _tag: "TransactionAborted", reason: "lock_wait" },
            { _tag: "SqlError", cause: { errno: 1792 } },
            { _tag: "TransactionAborted", reason: "ended" },
            { _tag: "TransactionAborted", reason: "ended" }
          ])
          yield* stranger.query("ROLLBACK")
          expect(yield* ordersBetween(first, second)).toEqual([])
          expect(yield* jobsFor(job.queue)).toEqual([])
          // The connection is as good as before.
          yield* sql.withTransaction(Effect.zipRight(insertOrder(first), keyed))
          expect(yield* ordersBetween(first, second)).toEqual([first])
          expect(yield* jobsFor(job.queue)).toEqual([1])
        }).pipe(Effect.scoped)
      )
    }

    it.scoped(
      "an enqueue that is not answered in time gives the transaction up, although its statement still waits",
      () =>
        Effect.gen(function* () {
          const { url } = yield* Database
          const stranger = yield* outside(url)
          const job = jobOn("slow")
          const install = yield* Layer.build(
            MysqlQueue.layer({ migrate: "off", statementTimeout: "1 second" }).pipe(
              Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(url), maxConnections: 2 }))
            )
          )
          const idempotency = { scope: "slow", key: "k" }
          for (const nested of [false, true]) {
            yield* stranger.query(
              "START TRANSACTION; INSERT INTO leasehold_jobs (queue, type, first_due_at, due_at, enqueued_at, scope,"
                + " idempotency_key) VALUES ('stranger', 't', NOW(6), NOW(6), NOW(6), 'slow', 'k')"
            )
            const met = yield* Deferred.make<unknown>()
            const caller = yield* Effect.fork(
              Effect.gen(function* () {
                const sql = yield* SqlClient.SqlClient
                const enqueue = Queue.enqueue(job, { order: 130 }, { idempotency })
                // Caught, so that the client commits: it may not commit an order whose job is not there.
                yield* sql.withTransaction(
                  Effect.zipRight(
                    insertOrder(130),
                    (nested ? sql.withTransaction(enqueue) : enqueue).pipe(
                      Effect.matchEffect({
                        onFailure: (error) => Deferred.succeed(met, error),
                        onSuccess: (answer) => Deferred.succeed(met, answer)
                      })
                    )
                  )
                )
              }).pipe(Effect.exit, Effect.provide(install))
            )
            // A nested one's rollback waits behind the statement, which waits now, and will for longer than it has.
            if (nested) yield* Effect.zipRight(lockWaits(1), Effect.sleep("1500 millis"))
            else expect(yield* Deferred.await(met)).toMatchObject({ _tag: "TransactionAborted", reason: "timeout" })
            yield* stranger.query("ROLLBACK")
            yield* Fiber.join(caller)
            expect(yield* Deferred.await(met)).toMatchObject({ _tag: "TransactionAborted", reason: "timeout" })
            expect(yield* ordersBetween(130, 130)).toEqual([])
            expect(yield* jobsFor("slow")).toEqual([])
          }
        })
    )

    it.effect("a deadlock that the enqueue meets is told apart, and nothing of the transaction commits", () =>
      Effect.gen(function* () {
        const job = jobOn("deadlock")
        const sql = yield* SqlClient.SqlClient
        const { url } = yield* Database
        yield* insertOrder(200)
        const round = (nested: boolean) =>
          Effect.gen(function* () {
            const stranger = yield* outside(url)
            // The stranger has written more, so that the caller is the victim.
            yield* stranger.query(
              "START TRANSACTION; INSERT INTO orders (id) VALUES (210), (211), (212), (213), (214), (215), (216);"
                + " INSERT INTO leasehold_jobs (queue, type, first_due_at, due_at, enqueued_at, scope, idempotency_key)"
                + " VALUES ('stranger', 't', NOW(6), NOW(6), NOW(6), 'deadlock', 'k')"
            )
            const keyed = Queue.enqueue(job, { order: 1 }, { idempotency: { scope: "deadlock", key: "k" } })
            const locked = yield* Deferred.make<void>()
            const caller = yield* Effect.fork(
              sql.withTransaction(
                Effect.gen(function* () {
                  yield* sql`UPDATE orders SET session = 1 WHERE id = 200`
                  yield* insertOrder(201)
                  yield* Deferred.succeed(locked, void 0)
                  yield* nested ? sql.withTransaction(keyed) : keyed
                })
              )
            )
            yield* Deferred.await(locked)
            yield* lockWaits(1)
            yield* stranger.query("UPDATE orders SET session = 2 WHERE id = 200")
            yield* stranger.query("ROLLBACK")
            return yield* Effect.flip(Fiber.join(caller))
          }).pipe(Effect.scoped)
        expect(yield* round(false)).toMatchObject({ _tag: "TransactionAborted", reason: "deadlock" })
        expect(yield* round(true)).toMatchObject({ _tag: "TransactionAborted", reason: "deadlock" })
        expect(yield* ordersBetween(201, 219)).toEqual([])
        expect(yield* jobsFor("deadlock")).toEqual([])
      })
    )

    it.effect("is refused where a caught deadlock or an implicit commit has ended the transaction before", () =>
      Effect.gen(function* () {
        const job = jobOn("ended")
        const sql = yield* SqlClient.SqlClient
        const refused = yield* Effect.flip(
          sql.withTransaction(
            Effect.gen(function* () {
              yield* Queue.enqueue(job, { order: 1 })
              // As a deadlock does, behind the client's back.
              yield* sql`ROLLBACK`.unprepared
              return yield* Queue.enqueue(job, { order: 2 })
            })
          )
        )
        expect(refused).toMatchObject({ _tag: "TransactionAborted", reason: "ended" })
        const afterDdl = yield* Effect.flip(
          sql.withTransaction(
            Effect.zipRight(sql`CREATE TABLE implicit (id INT)`, Queue.enqueueAll(job, [{ order: 3 }, { order: 4 }]))
          )
        )
        expect(afterDdl).toMatchObject({ _tag: "TransactionAborted", reason: "ended" })
        expect(yield* jobsFor("ended")).toEqual([])
      })
    )

    it.effect(
      "that commits in ten thousand transactions of sixteen fibers, a third rolled back: each order has its job",
      () =>
        Effect.gen(function* () {
          const job = jobOn("consistent")
          const sql = yield* SqlClient.SqlClient
          const { query } = yield* Database
          yield* Effect.forEach(
            Array.from({ length: 10_000 }, (_, index) => 1_000 + index),
            (order) =>
              sql
                .withTransaction(
                  Effect.gen(function* () {
                    // By turns the order first or its job first, with and without a key.
                    const enqueue = Queue.enqueue(
                      job,
                      { order },
                      order % 2 === 0 ? {} : { idempotency: { scope: "c", key: `${order}` } }
                    )
                    yield* order % 4 < 2 ? insertOrder(order) : enqueue
                    yield* order % 4 < 2 ? enqueue : insertOrder(order)
                    if (order % 3 === 0) yield* Effect.fail("rolled back")
                  })
                )
                .pipe(
                  Effect.retry({
                    times: 10,
                    while: (error) => typeof error === "object" && error._tag === "TransactionAborted"
                  }),
                  Effect.catchIf(
                    (error) => error === "rolled back",
                    () => Effect.void
                  )
                ),
            { concurrency: 16, discard: true }
          )
          const committed = Array.from({ length: 10_000 }, (_, index) => 1_000 + index).filter(
            (order) => order % 3 !== 0
          )
          expect(yield* ordersBetween(1_000, 10_999)).toEqual(committed)
          expect([...(yield* jobsFor("consistent"))].sort((a, b) => a - b)).toEqual(committed)
          expect(
            yield* query(
              "SELECT COUNT(*) AS odd FROM orders o LEFT JOIN leasehold_jobs j ON j.queue = 'consistent'"
                + " AND j.payload = CONCAT('{\"order\":', o.id, '}') WHERE o.id BETWEEN 1000 AND 10999 AND j.id IS NULL"
            )
          ).toEqual([{ odd: 0 }])
        }),
      // It takes 20 s alone; other files use the same server meanwhile.
      300_000
    )

    it.scoped("never runs before its data is visible, in a thousand rounds with workers that wait for it", () =>
      Effect.gen(function* () {
        const job = jobOn("visible")
        const sql = yield* SqlClient.SqlClient
        const blind = yield* Ref.make(0)
        const ran = yield* Ref.make(0)
        const handler = job.toLayer(({ order }) =>
          Effect.gen(function* () {
            const rows = yield* Effect.orDie(sql`SELECT id FROM orders WHERE id = ${order}`)
            if (rows.length !== 1) yield* Ref.update(blind, (count) => count + 1)
            yield* Ref.update(ran, (count) => count + 1)
          })
        )
        const options = { jobs: [job], queues: { visible: { concurrency: 5 } }, poll: "50 millis" } as const
        yield* Layer.build(Layer.provide(Worker.layer(options), handler))
        yield* Effect.forEach(
          Array.from({ length: 1_000 }, (_, index) => 20_000 + index),
          (order) => {
            // The job comes first, and the transaction stays open for a while after it.
            const place = Queue.enqueue(job, { order }).pipe(
              Effect.zipRight(Effect.sleep(order % 10 === 0 ? "30 millis" : "1 millis")),
              Effect.zipRight(insertOrder(order))
            )
            return order % 2 === 0 ? sql.withTransaction(place) : Queue.withTransaction(place)
          },
          { concurrency: 16, discard: true }
        )
        yield* until(Ref.get(ran), (count) => count === 1_000)
        expect(yield* Ref.get(blind)).toBe(0)
      })
    )

    it.scoped("of another client wakes workers late, never early, and not for other queues", () =>
      Effect.gen(function* () {
        const job = jobOn("late")
        const sql = yield* SqlClient.SqlClient
        const heard = yield* ear("late")
        const other = yield* ear("late-other")
        yield* sql.withTransaction(Effect.zipRight(Queue.enqueue(job, { order: 1 }), Effect.yieldNow()))
        yield* until(Ref.get(heard), (count) => count > 0)
        expect(yield* Ref.get(other)).toBe(0)
      })
    )
  }
)

layer(orders.pipe(Layer.provideMerge(queue())), { excludeTestServices: true, timeout: "1 minute" })(
  "Queue.withTransaction",
  (it) => {
    it.scoped("wakes the workers of this process and counts its jobs once, when it has committed", () =>
      Effect.gen(function* () {
        const job = jobOn("exactly")
        const heard = yield* ear("exactly")
        yield* Queue.withTransaction(
          Effect.gen(function* () {
            yield* insertOrder(1)
            yield* Queue.enqueue(job, { order: 1 }, { requireTransaction: true })
            yield* Queue.enqueueAll(job, [{ order: 2 }, { order: 3 }])
            expect(yield* jobsFor("exactly")).toEqual([])
            // Long enough for a back-off's first signals.
            yield* Effect.sleep("50 millis")
            expect(yield* Ref.get(heard)).toBe(0)
            expect(yield* enqueuedCount(job)).toBe(0)
          })
        )
        yield* until(Ref.get(heard), (count) => count > 0)
        expect(yield* jobsFor("exactly")).toEqual([1, 2, 3])
        expect(yield* ordersBetween(1, 1)).toEqual([1])
        expect(yield* enqueuedCount(job)).toBe(3)
      })
    )

    it.scoped("that rolls back leaves no row, wakes nobody and counts nothing", () =>
      Effect.gen(function* () {
        const job = jobOn("never")
        const heard = yield* ear("never")
        const place = Effect.forEach([10, 11, 12], (order) =>
          Effect.zipRight(insertOrder(order), Queue.enqueue(job, { order }))
        )
        expect(yield* Effect.flip(Queue.withTransaction(Effect.zipRight(place, Effect.fail("no"))))).toBe("no")
        const died = yield* Effect.exit(Queue.withTransaction(Effect.zipRight(place, Effect.die("bug"))))
        expect(died).toEqual(Exit.die("bug"))
        const begun = yield* Deferred.make<void>()
        const fiber = yield* Effect.fork(
          Queue.withTransaction(
            place.pipe(Effect.zipRight(Deferred.succeed(begun, void 0)), Effect.zipRight(Effect.never))
          )
        )
        yield* Deferred.await(begun)
        yield* Fiber.interrupt(fiber)
        yield* Effect.sleep("50 millis")
        expect(yield* ordersBetween(10, 12)).toEqual([])
        expect(yield* jobsFor("never")).toEqual([])
        expect(yield* Ref.get(heard)).toBe(0)
        expect(yield* enqueuedCount(job)).toBe(0)
      })
    )

    it.effect("is READ COMMITTED, nests by the client's own withTransaction, and refuses to be nested", () =>
      Effect.gen(function* () {
        const job = jobOn("nesting")
        const sql = yield* SqlClient.SqlClient
        const { query } = yield* Database
        yield* Queue.withTransaction(
          Effect.gen(function* () {
            expect(yield* sql`SELECT id FROM orders WHERE id = 20`).toEqual([])
            yield* query("INSERT INTO orders (id) VALUES (20)")
            expect(yield* sql`SELECT id FROM orders WHERE id = 20`).toEqual([{ id: 20 }])
            yield* Queue.enqueue(job, { order: 20 })
            yield* Effect.ignore(
              sql.withTransaction(Effect.zipRight(Queue.enqueue(job, { order: 21 }), Effect.fail("inner")))
            )
            expect(yield* Effect.flip(Queue.withTransaction(Effect.void))).toMatchObject({ _tag: "InTransaction" })
          })
        )
        expect(yield* jobsFor("nesting")).toEqual([20])
        const within = yield* Effect.flip(sql.withTransaction(Queue.withTransaction(Effect.void)))
        expect(within).toMatchObject({ _tag: "InTransaction", verb: "withTransaction" })
      })
    )

    it.effect("that is interrupted in a statement ends at once, and its connection is not used again", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { query } = yield* Database
        const begun = yield* Deferred.make<number>()
        const fiber = yield* Effect.fork(
          Queue.withTransaction(
            Effect.gen(function* () {
              const [row] = yield* sql<{ id: number }>`SELECT CONNECTION_ID() AS id`
              yield* insertOrder(30)
              yield* Deferred.succeed(begun, row?.id ?? 0)
              yield* sql`SELECT SLEEP(20)`
            })
          )
        )
        const session = yield* Deferred.await(begun)
        yield* until(
          query("SELECT 1 FROM information_schema.processlist WHERE id = ? AND info LIKE '%SLEEP(20)%'", [session]),
          (rows) => rows.length === 1
        )
        const since = performance.now()
        yield* Fiber.interrupt(fiber)
        expect(performance.now() - since).toBeLessThan(2_000)
        yield* query("KILL ?", [session]).pipe(Effect.catchAllDefect(() => Effect.void))
        yield* until(ordersBetween(30, 30), (ids) => ids.length === 0)
        yield* Queue.withTransaction(insertOrder(31))
        expect(yield* ordersBetween(30, 31)).toEqual([31])
      })
    )

    it.effect(
      "whose effect catches a deadlock or a lock wait of an enqueue and goes on fails, and nothing is written",
      () =>
        Effect.gen(function* () {
          const job = jobOn("swallowed")
          const sql = yield* SqlClient.SqlClient
          const { url } = yield* Database
          const stranger = yield* outside(url)
          yield* stranger.query(
            "START TRANSACTION; INSERT INTO leasehold_jobs (queue, type, first_due_at, due_at, enqueued_at, scope,"
              + " idempotency_key) VALUES ('stranger', 't', NOW(6), NOW(6), NOW(6), 'swallowed', 'k')"
          )
          const aborted = yield* Effect.flip(
            Queue.withTransaction(
              Effect.gen(function* () {
                yield* sql`SET SESSION innodb_lock_wait_timeout = 1`
                yield* insertOrder(40)
                yield* Effect.ignore(
                  Queue.enqueue(job, { order: 40 }, { idempotency: { scope: "swallowed", key: "k" } })
                )
                yield* sql`SET SESSION innodb_lock_wait_timeout = DEFAULT`
                return "committed, it thinks"
              })
            )
          )
          expect(aborted).toMatchObject({ _tag: "TransactionAborted", verb: "withTransaction" })
          expect(yield* ordersBetween(40, 40)).toEqual([])
        }).pipe(Effect.scoped)
    )

    it.scoped("whose commit is not answered has an unknown outcome; whose connection is cut before it, none", () =>
      Effect.gen(function* () {
        const { query, url } = yield* Database
        const proxy = yield* Proxy.make(url)
        const install = yield* Layer.build(
          MysqlQueue.layer({ migrate: "off", statementTimeout: "2 seconds" }).pipe(
            Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(proxy.url) }))
          )
        )
        const job = jobOn("unanswered")
        const place = (order: number) =>
          Queue.withTransaction(Effect.zipRight(insertOrder(order), Queue.enqueue(job, { order }))).pipe(
            Effect.flip,
            Effect.provide(install)
          )
        proxy.rules.push({ matches: /(?<!READ-)COMMIT$/, action: "swallow", times: 1 })
        expect(yield* place(50)).toMatchObject({ _tag: "OutcomeUnknown", verb: "withTransaction" })
        yield* until(ordersBetween(50, 50), (ids) => ids.length === 1)
        proxy.rules.push({ matches: /(?<!READ-)COMMIT$/, action: { errno: 1213, sqlState: "40001" }, times: 1 })
        expect(yield* place(51)).toMatchObject({ _tag: "TransactionAborted", reason: "deadlock" })
        proxy.rules.push({ matches: /START TRANSACTION/, action: "swallow", times: 1 })
        expect(yield* place(52)).toMatchObject({ _tag: "StoreUnavailable", reason: "connection" })
        expect(yield* ordersBetween(51, 52)).toEqual([])
        expect(yield* jobsFor("unanswered")).toEqual([50])
        expect(yield* query("SELECT 1 AS alive")).toEqual([{ alive: 1 }])
      })
    )
  }
)
