import { SqlClient } from "@effect/sql"
import { MysqlClient } from "@effect/sql-mysql2"
import { expect, layer } from "@effect/vitest"
import { Deferred, Duration, Effect, Either, Fiber, Layer, Option, Redacted, Schema } from "effect"
import { Job, MysqlQueue, Queue } from "../../src/index.js"
import { JobStore } from "../../src/JobStore.js"
import { Database, emptyDatabase, outside } from "../support/Mysql.js"
import { queue } from "../support/QueueOnMysql.js"
import { deadlocks, lockWaits } from "../support/ServerState.js"

const fields = { a: Schema.Number, b: Schema.Number }

const jobOn = (queueName: string, type = "invoice.send") => Job.make(type, { payload: fields, queue: queueName })

const payload = { a: 1, b: 2 }

/** The rows of a queue, by their ids. */
const rowsOf = (queueName: string) =>
  Effect.flatMap(Database, ({ query }) =>
    query("SELECT CAST(id AS CHAR) AS id, state FROM leasehold_jobs WHERE queue = ? ORDER BY id", [queueName])
  )

/** One more installation of the application: its own client, pools and library connections. */
const another = (options: MysqlQueue.Options = {}) =>
  Effect.flatMap(Database, ({ url }) =>
    Layer.build(
      MysqlQueue.layer({ migrate: "off", connections: { worker: 2, client: 6, transaction: 2 }, ...options }).pipe(
        Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(url), maxConnections: 6 }))
      )
    )
  )

/** Locks on the library's tables that somebody holds now, other than those that only name a table. */
const heldLocks = Effect.flatMap(Database, ({ query, url }) =>
  query(
    "SELECT index_name, lock_mode, lock_data FROM performance_schema.data_locks"
      + " WHERE object_schema = ? AND object_name = 'leasehold_jobs' AND lock_type = 'RECORD'",
    [new URL(url).pathname.slice(1)]
  )
)

layer(queue({ connections: { client: 16 } }), { excludeTestServices: true, timeout: "2 minutes" })(
  "an idempotency key",
  (it) => {
    it.scoped("that fifty callers of five pools give at once names one job, which exactly one of them created", () =>
      Effect.gen(function* () {
        const job = jobOn("fifty")
        const installs = yield* Effect.all(Array.from({ length: 5 }, () => another()))
        for (let round = 0; round < 20; round++) {
          const start = yield* Deferred.make<void>()
          const callers = yield* Effect.forEach(
            Array.from({ length: 50 }, (_, index) => installs[index % 5] as (typeof installs)[number]),
            (install) =>
              Effect.fork(
                Deferred.await(start).pipe(
                  Effect.zipRight(Queue.enqueue(job, payload, { idempotency: { scope: "fifty", key: `k${round}` } })),
                  Effect.provide(install)
                )
              )
          )
          yield* Deferred.succeed(start, void 0)
          const answers = yield* Fiber.join(Fiber.all(callers))
          expect(new Set(answers.map(({ id }) => id)).size).toBe(1)
          expect(answers.filter(({ created }) => created)).toHaveLength(1)
        }
        expect(yield* rowsOf("fifty")).toHaveLength(20)
      })
    )

    it.scoped(
      "of a transaction that rolls back is free: whoever waited for it creates the job, and nobody gets its id",
      () =>
        Effect.gen(function* () {
          const job = jobOn("rolled-back")
          const sql = yield* SqlClient.SqlClient
          const enqueued = yield* Deferred.make<string>()
          const rollBack = yield* Deferred.make<void>()
          const enqueue = Queue.enqueue(job, payload, { idempotency: { key: "rolled-back" } })
          const first = yield* Effect.fork(
            Effect.either(
              sql.withTransaction(
                enqueue.pipe(
                  Effect.tap(({ id }) => Deferred.succeed(enqueued, id)),
                  Effect.zipRight(Deferred.await(rollBack)),
                  Effect.zipRight(Effect.fail("changed my mind"))
                )
              )
            )
          )
          const gone = yield* Deferred.await(enqueued)
          const inTransaction = yield* Effect.fork(
            Effect.retry(sql.withTransaction(enqueue), {
              times: 5,
              while: (error) => error._tag === "TransactionAborted"
            })
          )
          const alone = yield* Effect.fork(enqueue)
          // Both wait for the lock of the uncommitted row.
          yield* lockWaits(2)
          yield* Deferred.succeed(rollBack, void 0)
          expect(yield* Fiber.join(first)).toEqual(Either.left("changed my mind"))
          const answers = [yield* Fiber.join(inTransaction), yield* Fiber.join(alone)]
          const rows = yield* rowsOf("rolled-back")
          expect(rows).toHaveLength(1)
          expect(answers.map(({ id }) => id)).toEqual([rows[0]?.["id"], rows[0]?.["id"]])
          expect(answers.filter(({ created }) => created)).toHaveLength(1)
          expect(rows[0]?.["id"]).not.toBe(gone)
        })
    )

    it.effect("with another payload, type or queue is a conflict, which says nothing of the payload", () =>
      Effect.gen(function* () {
        const job = jobOn("conflict")
        const idempotency = { scope: "conflict", key: "secret-key" }
        const first = yield* Queue.enqueue(job, payload, { idempotency })
        const untouched = yield* Queue.get(first.id)
        for (const conflicting of [
          Queue.enqueue(job, { a: 1, b: 424242 }, { idempotency }),
          Queue.enqueue(jobOn("conflict-2"), payload, { idempotency }),
          Queue.enqueue(jobOn("conflict", "invoice.print"), payload, { idempotency })
        ]) {
          const error = yield* Effect.flip(conflicting)
          expect(error).toMatchObject({ _tag: "IdempotencyConflict", jobId: Option.some(first.id) })
          expect(`${error.message} ${JSON.stringify(error)}`).not.toMatch(/424242|secret-key/)
        }
        expect(yield* Queue.get(first.id)).toEqual(untouched)
      })
    )

    it.effect("counts the payload as the same whatever the order of its keys and the spelling of its numbers", () =>
      Effect.gen(function* () {
        const job = Job.make("any", { payload: Schema.Unknown, queue: "order" })
        const idempotency = { key: "order" }
        const first = yield* Queue.enqueue(job, { a: 1, b: { c: [1, 2], d: 2.5 } }, { idempotency })
        const again = yield* Queue.enqueue(job, JSON.parse('{"b":{"d":25e-1,"c":[1.0,2]},"a":1.0}'), {
          idempotency,
          priority: 0,
          delay: "1 day"
        })
        expect(again).toEqual({ id: first.id, created: false })
        const swapped = yield* Effect.flip(Queue.enqueue(job, { a: 1, b: { c: [2, 1], d: 2.5 } }, { idempotency }))
        expect(swapped._tag).toBe("IdempotencyConflict")
      })
    )

    it.effect("of one scope never meets that of another, not even where they read alike", () =>
      Effect.gen(function* () {
        const job = jobOn("scopes")
        const names = [
          { scope: "s1", key: "k" },
          { scope: "s2", key: "k" },
          { key: "k" },
          { scope: "a", key: "b:c" },
          { scope: "a:b", key: "c" },
          { scope: "a:b:c", key: ":" },
          { scope: "k", key: "s1" }
        ]
        const ids = yield* Effect.forEach(names, (idempotency, index) =>
          Queue.enqueue(job, { a: index, b: 0 }, { idempotency })
        )
        expect(ids.every(({ created }) => created)).toBe(true)
        const found = yield* Effect.forEach(names, (idempotency) => Queue.find(idempotency))
        expect(found.map(Option.map(({ id }) => id))).toEqual(ids.map(({ id }) => Option.some(id)))
        // The empty scope is the scope of those that name none.
        expect((yield* Queue.enqueue(job, { a: 2, b: 0 }, { idempotency: { scope: "", key: "k" } })).created).toBe(
          false
        )
      })
    )

    it.effect("that is too long is refused before any SQL, whatever the session's sql_mode", () =>
      Effect.gen(function* () {
        const job = jobOn("too-long")
        const sql = yield* SqlClient.SqlClient
        yield* sql.withTransaction(
          Effect.gen(function* () {
            yield* sql`SET SESSION sql_mode = ''`
            for (const [key, size] of [
              ["k".repeat(256), 256],
              ["k".repeat(1_000), 1_000],
              ["k".repeat(10_000), 10_000],
              ["\u{1F600}".repeat(64), 256],
              ["\ud800", 3],
              ["", 0]
            ] as const) {
              const refused = yield* Effect.flip(Queue.enqueue(job, payload, { idempotency: { key } }))
              expect(refused).toMatchObject({ _tag: "KeyInvalid", part: "key", size })
              if (size > 0) {
                const scope = yield* Effect.flip(Queue.enqueue(job, payload, { idempotency: { scope: key, key: "k" } }))
                expect(scope).toMatchObject({ _tag: "KeyInvalid", part: "scope", size })
              }
            }
            // The longest that fit, alike but for their last byte.
            const longest = yield* Effect.forEach(["a", "b"], (last) =>
              Queue.enqueue(job, payload, { idempotency: { scope: "s".repeat(255), key: "k".repeat(254) + last } })
            )
            expect(longest.map(({ created }) => created)).toEqual([true, true])
            expect(yield* Queue.find({ scope: "s".repeat(255), key: `${"k".repeat(254)}b` })).toMatchObject({
              value: { id: longest[1]?.id }
            })
            yield* sql`SET SESSION sql_mode = DEFAULT`
          })
        )
        expect(yield* rowsOf("too-long")).toHaveLength(2)
      })
    )

    it.effect("hides no other error: what can not be stored is refused, and never called a replay or clipped", () =>
      Effect.gen(function* () {
        const idempotency = { key: "bad values" }
        const bad = (type: string, options: Queue.EnqueueOptions) =>
          Effect.flip(
            Queue.enqueue(Job.make(type, { payload: Schema.Unknown, queue: "bad" }), 1, { idempotency, ...options })
          )
        expect(yield* bad("t".repeat(65), {})).toMatchObject({ _tag: "InvalidName" })
        expect(yield* bad("t", { priority: 10 })).toMatchObject({ _tag: "InvalidOption" })
        expect(yield* bad("t", { delay: "4000000 days" })).toMatchObject({ _tag: "TimeInvalid" })
        const number = Queue.enqueue(Job.make("t", { payload: Schema.Unknown, queue: "bad" }), Number.NaN, {
          idempotency
        })
        expect(yield* Effect.flip(number)).toMatchObject({ _tag: "PayloadInvalid" })
        // Straight at the store, whose callers have checked: the database refuses, and the key stays free.
        const store = yield* JobStore
        const broken = yield* Effect.flip(
          store.enqueue([
            {
              queue: "bad",
              type: "t".repeat(65),
              priority: 5,
              payload: "1",
              payloadVersion: 1,
              maxAttempts: Option.none(),
              due: Option.none(),
              idempotency: Option.some({ scope: "", key: idempotency.key, fingerprint: "f".repeat(64) }),
              traceContext: Option.none()
            }
          ])
        )
        expect(broken).toMatchObject({ _tag: "StoreRejected", code: "ER_DATA_TOO_LONG 1406" })
        expect(yield* rowsOf("bad")).toEqual([])
        expect(yield* Queue.find(idempotency)).toEqual(Option.none())
      })
    )

    it.effect("lives as long as its job's row: enqueues that race with the cleaner never get an id that is gone", () =>
      Effect.gen(function* () {
        const job = jobOn("retention")
        const store = yield* JobStore
        const enqueue = Queue.enqueue(job, payload, { idempotency: { scope: "retention", key: "k" } })
        let made = 0
        for (let round = 0; round < 200; round++) {
          const before = yield* enqueue
          if (before.created) made++
          yield* Queue.cancel(before.id)
          const [answer] = yield* Effect.all(
            [
              enqueue,
              // A retention of none: the canceled job goes at once.
              store.clean({ canceled: Duration.zero }, String(BigInt(before.id) - 1n), 1).pipe(Effect.ignore)
            ],
            { concurrency: 2 }
          )
          if (answer.created) made++
          // A replay answered while the row was still there; a new job's row is there now.
          if (answer.created) expect((yield* Queue.get(answer.id)).state).toBe("pending")
          else expect(answer.id).toBe(before.id)
        }
        const rows = yield* rowsOf("retention")
        expect(rows.length).toBeLessThanOrEqual(1)
        expect(made).toBeGreaterThan(1)
      })
    )

    it.effect("that is left out or undefined makes jobs that are never the same, in whatever order", () =>
      Effect.gen(function* () {
        const plain = jobOn("unkeyed")
        const derived = Job.make("invoice.derived", {
          payload: { a: Schema.Number },
          queue: "unkeyed",
          idempotencyKey: ({ a }) => `a${a}`
        })
        const created = [
          yield* Queue.enqueue(plain, payload),
          yield* Queue.enqueue(plain, payload, { idempotency: { scope: "u", key: "k" } }),
          yield* Queue.enqueue(plain, payload),
          yield* Queue.enqueue(derived, { a: 1 })
        ]
        expect(created.map((answer) => answer.created)).toEqual([true, true, true, true])
        expect((yield* Queue.enqueue(derived, { a: 1 })).created).toBe(false)
        // The one that is given wins over the job's own.
        expect((yield* Queue.enqueue(derived, { a: 1 }, { idempotency: { key: "mine" } })).created).toBe(true)
        for (const key of [undefined, null, 5]) {
          const refused = yield* Effect.flip(Queue.enqueue(plain, payload, { idempotency: { key: key as never } }))
          expect(refused).toMatchObject({ _tag: "KeyInvalid", part: "key" })
        }
      })
    )

    it.effect("finds a job that is newer than the snapshot of the caller's REPEATABLE READ transaction", () =>
      Effect.gen(function* () {
        const job = jobOn("snapshot")
        const sql = yield* SqlClient.SqlClient
        const { url } = yield* Database
        const stranger = yield* outside(url)
        const idempotency = { scope: "snapshot", key: "k" }
        yield* sql.withTransaction(
          Effect.gen(function* () {
            const [mode] = yield* sql<{ isolation: string }>`SELECT @@transaction_isolation AS isolation`
            expect(mode?.isolation).toBe("REPEATABLE-READ")
            // The snapshot begins here.
            expect(yield* sql`SELECT COUNT(*) AS c FROM leasehold_jobs WHERE queue = 'snapshot'`).toEqual([{ c: 0 }])
            const first = yield* Effect.fork(detached(Queue.enqueue(job, payload, { idempotency })))
            const { created, id } = yield* Fiber.join(first)
            expect(created).toBe(true)
            expect(yield* Queue.find(idempotency)).toEqual(Option.none())
            expect(yield* Queue.enqueue(job, payload, { idempotency })).toEqual({ id, created: false })
            const conflict = yield* Effect.flip(Queue.enqueue(job, { a: 9, b: 9 }, { idempotency }))
            expect(conflict).toMatchObject({ _tag: "IdempotencyConflict", jobId: Option.some(id) })
            // A plain INSERT that had ended in 1062 would leave a lock on the supremum here, and stop everybody else.
            expect((yield* heldLocks).filter(({ lock_data }) => lock_data === "supremum pseudo-record")).toEqual([])
            expect(yield* heldLocks).toEqual([])
            yield* stranger.query("SET SESSION innodb_lock_wait_timeout = 1")
            yield* stranger.query(
              "INSERT INTO leasehold_jobs (queue, type, first_due_at, due_at, enqueued_at, scope, idempotency_key)"
                + " VALUES ('snapshot', 't', NOW(6), NOW(6), NOW(6), 'zzz', 'zzz'), ('snapshot', 't', NOW(6), NOW(6), NOW(6), '', NULL)"
            )
          })
        )
        expect(yield* rowsOf("snapshot")).toHaveLength(3)
      }).pipe(Effect.scoped)
    )

    it.effect.each(["a transaction of its own", "the caller's transaction"])(
      "that somebody else takes in the middle of a bulk in %s adds none of its jobs twice",
      (where) =>
        Effect.gen(function* () {
          const name = where.replaceAll(/[^a-z]/g, "_")
          const job = jobOn(name)
          const sql = yield* SqlClient.SqlClient
          const keyed = (key: string) => Queue.request(job, payload, { idempotency: { scope: name, key } })
          const open = yield* Deferred.make<void>()
          const commit = yield* Deferred.make<void>()
          const stranger = yield* Effect.fork(
            sql.withTransaction(
              Effect.gen(function* () {
                yield* Queue.enqueueMany([keyed("taken")])
                yield* Deferred.succeed(open, void 0)
                yield* Deferred.await(commit)
              })
            )
          )
          yield* Deferred.await(open)
          // The parts of the bulk before the one that waits for the key are written already.
          const bulk = Queue.enqueueMany([
            ...Array.from({ length: 12 }, () => Queue.request(job, payload)),
            keyed("own"),
            keyed("taken")
          ])
          const adding = yield* Effect.fork(where === "the caller's transaction" ? sql.withTransaction(bulk) : bulk)
          yield* lockWaits(1)
          yield* Deferred.succeed(commit, void 0)
          yield* Fiber.join(stranger)
          const added = yield* Fiber.join(adding)
          expect(added.map(({ created }) => created)).toEqual([...Array.from({ length: 13 }, () => true), false])
          const ids = (yield* rowsOf(name)).map(({ id }) => String(id))
          expect([...ids].sort()).toEqual(added.map(({ id }) => String(id)).sort())
        })
    )

    it.effect("met by sixteen callers with two thousand others makes no deadlock", () =>
      Effect.gen(function* () {
        const job = jobOn("crowd")
        const before = yield* deadlocks
        const answers = yield* Effect.forEach(
          Array.from({ length: 2_000 }, (_, index) => index),
          // Keys that spread over the index, each of them twice.
          (index) =>
            Queue.enqueue(job, payload, {
              idempotency: { scope: `s${index % 7}`, key: `${((index % 1_000) * 7919) % 1_000}` }
            }),
          { concurrency: 16 }
        )
        expect(new Set(answers.map(({ id }) => id)).size).toBe(answers.filter(({ created }) => created).length)
        expect((yield* deadlocks) - before).toBe(0)
      })
    )

    it.effect("that is twice in one bulk, or held already, answers one id for all its places", () =>
      Effect.gen(function* () {
        const job = Job.make("bulk", {
          payload: { a: Schema.Number },
          queue: "bulk",
          idempotencyKey: ({ a }) => `bulk ${a}`
        })
        const held = yield* Queue.enqueue(job, { a: 7 })
        const numbers = Array.from({ length: 300 }, (_, index) => index % 150)
        const answers = yield* Queue.enqueueAll(
          job,
          numbers.map((a) => ({ a }))
        )
        expect(answers.filter(({ created }) => created)).toHaveLength(149)
        expect(answers.slice(0, 150).map(({ id }) => id)).toEqual(answers.slice(150).map(({ id }) => id))
        expect(answers[7]).toEqual({ id: held.id, created: false })
        const records = yield* Effect.forEach(answers.slice(0, 150), ({ id }) => Queue.get(id), { concurrency: 8 })
        expect(records.map(({ payload: text }) => JSON.parse(String(text)).a)).toEqual(numbers.slice(0, 150))
      })
    )

    it.effect("that conflicts in a bulk leaves nothing of the bulk, also where the caller's transaction goes on", () =>
      Effect.gen(function* () {
        const job = jobOn("bulk-conflict")
        const sql = yield* SqlClient.SqlClient
        const scope = "bulk-conflict"
        yield* Queue.enqueue(job, payload, { idempotency: { scope, key: "held" } })
        const bulk = Queue.enqueueMany([
          Queue.request(job, payload),
          Queue.request(job, payload, { idempotency: { scope, key: "new" } }),
          Queue.request(job, { a: 5, b: 5 }, { idempotency: { scope, key: "held" } })
        ])
        expect(yield* Effect.flip(bulk)).toMatchObject({ _tag: "IdempotencyConflict" })
        const kept = yield* sql.withTransaction(
          Effect.gen(function* () {
            const first = yield* Queue.enqueue(job, payload)
            expect(yield* Effect.flip(bulk)).toMatchObject({ _tag: "IdempotencyConflict" })
            const last = yield* Queue.enqueueAll(job, [payload, payload])
            return [first, ...last]
          })
        )
        expect((yield* rowsOf("bulk-conflict")).slice(1).map(({ id }) => id)).toEqual(kept.map(({ id }) => id))
        expect(yield* Queue.find({ scope, key: "new" })).toEqual(Option.none())
      })
    )
  }
)

/** Outside of the transaction that is open here. */
const detached = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.flatMap(JobStore, (store) => store.detached(effect))

for (const settings of ["CHARACTER SET latin1", "CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"]) {
  const install = Layer.unwrapEffect(
    Effect.map(Database, ({ url }) => MysqlClient.layer({ url: Redacted.make(url), maxConnections: 4 }))
  )
  const here = MysqlQueue.layer().pipe(
    Layer.provideMerge(install),
    Layer.provideMerge(Layer.scoped(Database, emptyDatabase(settings)))
  )
  layer(here, { excludeTestServices: true, timeout: "1 minute" })(`in a database of ${settings}`, (it) => {
    it.effect("keys that differ in case, accent, width, blanks, zero-width or NUL name different jobs", () =>
      Effect.gen(function* () {
        const job = jobOn("exact")
        const sql = yield* SqlClient.SqlClient
        const keys = [
          "key",
          "KEY",
          "kéy",
          "ke\u0301y",
          "ｋｅｙ",
          "key ",
          "key  ",
          " key",
          "key\t",
          "k\u200Bey",
          "key\u0000",
          "\u0000key",
          "ß",
          "ss",
          "ﬁ",
          "fi",
          "\u{1F600}",
          "\u{1F601}",
          "%",
          "_",
          "'; DROP TABLE leasehold_jobs; --",
          '"\\"'
        ]
        const enqueue = (key: string) => Queue.enqueue(job, payload, { idempotency: { scope: key, key } })
        const alone = yield* Effect.forEach(keys, enqueue)
        expect(alone.every(({ created }) => created)).toBe(true)
        expect(new Set(alone.map(({ id }) => id)).size).toBe(keys.length)
        const joined = yield* sql.withTransaction(Effect.forEach(keys, enqueue))
        expect(joined).toEqual(alone.map(({ id }) => ({ id, created: false })))
        const found = yield* Effect.forEach(keys, (key) => Queue.find({ scope: key, key }))
        expect(found.map(Option.map(({ id }) => id))).toEqual(alone.map(({ id }) => Option.some(id)))
      })
    )
  })
}
