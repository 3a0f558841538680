import { randomUUID } from "node:crypto"
import { MysqlClient } from "@effect/sql-mysql2"
import { expect, layer } from "@effect/vitest"
import { Duration, Effect, Fiber, Layer, Redacted, Ref, Schema } from "effect"
import { Job, JobFailure, JobStore, MysqlQueue, Queue, RetryPolicy, Worker } from "../../src/index.js"
import { Database, database } from "../support/Mysql.js"
import * as Proxy from "../support/Proxy.js"
import { openTransactions } from "../support/ServerState.js"
import { until } from "../support/Until.js"

const commit = /(?<!READ-)COMMIT$/
const settlement = /SET jobs\.attempts/
const deadlock = { errno: 1213, sqlState: "40001" }

/** A queue of its own name whose every connection goes through a proxy of its own. */
const scene = Effect.gen(function* () {
  const direct = yield* Database
  const proxy = yield* Proxy.make(direct.url)
  const context = yield* Layer.build(
    MysqlQueue.layer({ statementTimeout: "5 seconds" }).pipe(
      Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(proxy.url) }))
    )
  )
  const job = Job.make("late.work", {
    payload: { n: Schema.Number },
    queue: `late.${randomUUID().slice(0, 8)}`,
    retry: RetryPolicy.fixed({ delay: "1 hour", jitter: 0, maxAttempts: 1 })
  })
  const rows = (columns: string) =>
    direct.query(`SELECT ${columns} FROM leasehold_jobs WHERE queue = ? ORDER BY id`, [job.queue])
  return { ...direct, proxy, context, job, rows }
})

const numbered = (count: number) => Array.from({ length: count }, (_, n) => ({ n }))

layer(database, { excludeTestServices: true, timeout: "1 minute" })("a write that comes late", (it) => {
  it.scoped("C5: of a reaper changes no job that was completed, canceled or claimed since it was looked at", () =>
    Effect.gen(function* () {
      const { context, job, proxy, query, rows } = yield* scene
      yield* Effect.gen(function* () {
        const store = yield* JobStore.JobStore
        const jobs = yield* Queue.enqueueAll(job, numbered(6))
        const { jobs: held } = yield* store.claim({
          queue: job.queue,
          types: [{ type: job.type, version: 1 }],
          worker: "holder",
          lease: Duration.minutes(1),
          limit: 10
        })
        expect(held).toHaveLength(6)
        yield* query("UPDATE leasehold_jobs SET due_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE queue = ?", [
          job.queue
        ])
        // The reaper has looked; what it looked at is locked, and then ended, when all else has happened.
        const goOn = yield* Effect.makeLatch()
        proxy.rules.push({
          matches: /cancel_requested = 1\) ORDER BY \S+ FOR UPDATE/,
          action: { held: goOn }
        })
        const reaping = yield* Effect.fork(store.reap("", 1_000))
        yield* until(
          Effect.sync(() => proxy.hits[0] ?? 0),
          (hits) => hits === 1
        )
        const [completed, failed, renewed, reclaimed] = held.map(({ lease }) => lease)
        if (completed === undefined || failed === undefined || renewed === undefined || reclaimed === undefined) {
          throw new Error("six jobs were claimed")
        }
        yield* store.settle([
          [completed, { _tag: "Complete", output: null }],
          [failed, { _tag: "Bury", code: "own", message: "own" }]
        ])
        yield* store.renew([renewed], Duration.minutes(1))
        yield* query(
          "UPDATE leasehold_jobs SET attempts_left = 1, token = token + 1, due_at = UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE,"
            + " lease_owner = 'heir' WHERE id = ?",
          [reclaimed.jobId]
        )
        const before = yield* rows("id, state, token, due_at, error_code, attempts, lease_owner")
        yield* goOn.open
        const { ended } = yield* Fiber.join(reaping)
        expect(ended.map(({ id }) => id)).toEqual(jobs.slice(4).map(({ id }) => id))
        const after = yield* rows("id, state, token, due_at, error_code, attempts, lease_owner")
        expect(after.slice(0, 4)).toEqual(before.slice(0, 4))
        expect(after.slice(4)).toMatchObject([
          { state: 3, token: 2, error_code: "lease_expired" },
          { state: 3, token: 2, error_code: "lease_expired" }
        ])
      }).pipe(Effect.provide(context))
    })
  )

  it.scoped("E3: a lost answer to a failure is found again: the job is dead once, and its handler ran once", () =>
    Effect.gen(function* () {
      const { context, job, proxy, rows } = yield* scene
      const runs = yield* Ref.make(0)
      proxy.rules.push({ matches: settlement, action: "swallow", times: 1 })
      const handler = job.toLayer(() =>
        Effect.zipRight(
          Ref.update(runs, (count) => count + 1),
          Effect.fail(new JobFailure.Permanent({ code: "gone", message: "no such order" }))
        )
      )
      yield* Effect.gen(function* () {
        yield* Layer.build(
          Layer.provide(Worker.layer({ jobs: [job], lease: "10 seconds", poll: "50 millis" }), handler)
        )
        const { id } = yield* Queue.enqueue(job, { n: 1 })
        expect(yield* Effect.flip(Queue.result(job, id))).toMatchObject({ _tag: "JobDead", code: "gone" })
        expect((yield* Queue.why(id)).events.filter(({ kind }) => kind === "refused")).toEqual([])
      }).pipe(Effect.provide(context))
      expect(proxy.hits).toEqual([1])
      expect(yield* rows("state, token, attempt, JSON_LENGTH(attempts) AS entries")).toEqual([
        { state: 3, token: 1, attempt: 1, entries: 1 }
      ])
      expect(yield* Ref.get(runs)).toBe(1)
    })
  )

  it.scoped("E3: a lost answer to a cancel is asked again: the job is canceled once, under one raised token", () =>
    Effect.gen(function* () {
      const { context, job, proxy, rows } = yield* scene
      const { id } = yield* Queue.enqueue(job, { n: 1 }).pipe(Effect.provide(context))
      proxy.rules.push({ matches: commit, action: "swallow", times: 1 })
      yield* Queue.cancel(id).pipe(Effect.provide(context))
      expect(proxy.hits).toEqual([1])
      expect(yield* rows("state, token")).toEqual([{ state: 4, token: 1 }])
      expect(yield* Queue.cancel(id).pipe(Effect.provide(context))).toEqual({ _tag: "ended", state: "canceled" })
    })
  )

  for (const [name, action] of [
    ["a lost answer", "swallow"],
    ["a deadlock", { ...deadlock, executed: true }],
    ["a lock wait", { errno: 1205, sqlState: "HY000", executed: true }]
  ] as const) {
    it.scoped(`E3: ${name} where a batch was written, some of it: each end is found again, or written then`, () =>
      Effect.gen(function* () {
        const { context, job, proxy, rows } = yield* scene
        yield* Effect.gen(function* () {
          const store = yield* JobStore.JobStore
          const claim = (worker: string) =>
            store.claim({
              queue: job.queue,
              types: [{ type: job.type, version: 1 }],
              worker,
              lease: Duration.minutes(1),
              limit: 10
            })
          yield* Queue.enqueueAll(job, numbered(5))
          const leases = (yield* claim("holder")).jobs.map(({ lease }) => lease)
          const toCancel = leases[3]
          if (toCancel === undefined) throw new Error("five jobs were claimed")
          yield* store.cancel(toCancel.jobId)
          const ends = [
            { _tag: "Complete", output: "1" },
            { _tag: "RetryLater", delay: Duration.zero, code: "spent", message: "one attempt is all it has" },
            { _tag: "Release" },
            { _tag: "Complete", output: "1" },
            { _tag: "Snooze", delay: Duration.days(1) }
          ] as const
          const settle = store.settle(
            leases.flatMap((lease, index) => (ends[index] === undefined ? [] : [[lease, ends[index]] as const]))
          )
          proxy.rules.push({ matches: /NO_MERGE\(held\)[\s\S]*SET jobs\.attempts/, action, times: 1 })
          // Before the batch is told apart, somebody claims what it has given back.
          const tellApart = yield* Effect.makeLatch()
          proxy.rules.push({ matches: /FOR UPDATE NOWAIT/, action: { held: tellApart }, times: 1 })
          const settling = yield* Effect.fork(
            Effect.catchTag(settle, "StoreUnavailable", (fault) => {
              expect(name).toBe("a lock wait")
              expect(fault.code).toContain("1205")
              return settle
            })
          )
          yield* until(
            Effect.sync(() => proxy.hits[1] ?? 0),
            (hits) => hits === 1
          )
          expect((yield* claim("heir")).jobs.map(({ lease }) => [lease.jobId, lease.token])).toEqual([
            [leases[2]?.jobId, 2]
          ])
          yield* tellApart.open
          expect(yield* Fiber.join(settling)).toEqual(
            ["succeeded", "dead", "pending", "canceled", "pending"].map((state) => ({ _tag: "Recorded", state }))
          )
          expect(proxy.hits).toEqual([1, 1])
        }).pipe(Effect.provide(context))
        expect(yield* rows("state, token, output, error_code, JSON_LENGTH(attempts) AS entries, lease_owner")).toEqual([
          { state: 2, token: 1, output: "1", error_code: null, entries: 1, lease_owner: null },
          { state: 3, token: 1, output: null, error_code: "spent", entries: 1, lease_owner: null },
          { state: 1, token: 2, output: null, error_code: null, entries: 2, lease_owner: "heir" },
          { state: 4, token: 1, output: null, error_code: null, entries: 1, lease_owner: null },
          { state: 0, token: 1, output: null, error_code: null, entries: 1, lease_owner: null }
        ])
      })
    )
  }
})

layer(database, { excludeTestServices: true, timeout: "1 minute" })("a commit that the database refuses", (it) => {
  it.scoped("B6: is tried again by an enqueue that has the transaction to itself: each job is there once", () =>
    Effect.gen(function* () {
      const { context, job, proxy, rows } = yield* scene
      proxy.rules.push({ matches: commit, action: deadlock, times: 2 })
      const idempotency = { scope: job.queue, key: "k" }
      const keyed = yield* Queue.enqueue(job, { n: 0 }, { idempotency }).pipe(Effect.provide(context))
      expect(keyed.created).toBe(true)
      expect(proxy.hits).toEqual([2])
      proxy.rules.splice(0)
      proxy.hits.splice(0)
      proxy.rules.push({ matches: commit, action: deadlock, times: 2 })
      const bulk = yield* Queue.enqueueAll(job, numbered(20)).pipe(Effect.provide(context))
      expect(proxy.hits).toEqual([2])
      expect(yield* rows("CAST(id AS CHAR) AS id")).toEqual([keyed, ...bulk].map(({ id }) => ({ id })))
    })
  )

  it.scoped("B6: so is a statement in the middle of a bulk that is refused as a deadlock", () =>
    Effect.gen(function* () {
      const { context, job, proxy, query } = yield* scene
      proxy.rules.push({
        matches: /INSERT INTO leasehold_jobs[\s\S]*NULL, \?\)/,
        action: deadlock,
        skip: 2,
        times: 1
      })
      const enqueued = yield* Queue.enqueueAll(job, numbered(313)).pipe(Effect.provide(context))
      expect(proxy.hits).toEqual([1])
      expect(
        yield* query(
          "SELECT CAST(id AS CHAR) AS name, payload FROM leasehold_jobs WHERE queue = ? ORDER BY leasehold_jobs.id",
          [job.queue]
        )
      ).toEqual(enqueued.map(({ id }, n) => ({ name: id, payload: JSON.stringify({ n }) })))
    })
  )

  it.scoped("B6: fails a Queue.withTransaction with an error to run it again by, and nothing of it is there", () =>
    Effect.gen(function* () {
      const { context, job, proxy, rows } = yield* scene
      proxy.rules.push({ matches: commit, action: deadlock, times: 1 })
      const place = Queue.withTransaction(Queue.enqueue(job, { n: 1 }))
      yield* Effect.gen(function* () {
        expect(yield* Effect.flip(place)).toMatchObject({ _tag: "TransactionAborted", reason: "deadlock" })
        expect(yield* rows("id")).toEqual([])
        yield* place
      }).pipe(Effect.provide(context))
      expect(yield* rows("state")).toEqual([{ state: 0 }])
      expect(yield* openTransactions).toBe(0)
    })
  )
})
