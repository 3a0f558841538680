import { SqlClient } from "@effect/sql"
import { expect, layer } from "@effect/vitest"
import { Duration, Effect, Layer, Option, Schema } from "effect"
import { Job, JobFailure, JobStore, Queue, RetryPolicy, Worker } from "../../src/index.js"
import type { JobRecord } from "../../src/JobRecord.js"
import { Database } from "../support/Mysql.js"
import { queue } from "../support/QueueOnMysql.js"

const jobOn = (queueName: string, type = "read.work") =>
  Job.make(type, {
    payload: { n: Schema.Number },
    success: Schema.Struct({ doubled: Schema.BigInt }),
    retry: RetryPolicy.fixed({ delay: "1 hour", maxAttempts: 1 }),
    queue: queueName
  })

const numbered = (count: number) => Array.from({ length: count }, (_, n) => ({ n }))

/** All pages of a list, each asked for with the last id of the one before; `between` runs after each page. */
const pagesOf = (
  filter: Queue.ListOptions,
  limit: number,
  between: (page: number) => Effect.Effect<unknown, unknown, Queue.Queue>
) =>
  Effect.gen(function* () {
    const pages: Array<ReadonlyArray<JobRecord>> = []
    for (let after: string | undefined = ""; after !== undefined; ) {
      const page: ReadonlyArray<JobRecord> = yield* Queue.list({ ...filter, after, limit })
      pages.push(page)
      after = page.length === limit ? page.at(-1)?.id : undefined
      yield* between(pages.length)
    }
    return pages
  })

layer(queue(), { excludeTestServices: true, timeout: "1 minute" })("reading", (it) => {
  it.effect("a job by its id or by its key answers all of it, and nobody else's", () =>
    Effect.gen(function* () {
      const job = jobOn("one")
      const { id } = yield* Queue.enqueue(job, { n: 1 }, { priority: 3, idempotency: { scope: "a", key: "k" } })
      yield* Queue.enqueue(job, { n: 2 }, { idempotency: { scope: "b", key: "k" } })
      const record = yield* Queue.get(id)
      expect(record).toMatchObject({
        id,
        queue: "one",
        type: "read.work",
        priority: 3,
        state: "pending",
        attempt: 0,
        attemptsLeft: Option.some(1),
        payload: '{"n":1}',
        output: Option.none(),
        cancelRequested: false,
        attempts: []
      })
      expect(yield* Queue.find({ scope: "a", key: "k" })).toEqual(Option.some(record))
      for (const nobodys of [{ key: "k" }, { scope: "A", key: "k" }, { scope: "a", key: "k " }]) {
        expect(yield* Queue.find(nobodys)).toEqual(Option.none())
      }
      const unknown = String(BigInt(id) + 1_000n)
      expect(yield* Effect.flip(Queue.get(unknown))).toMatchObject({ _tag: "JobNotFound", jobId: unknown })
    })
  )

  it.effect("in a transaction sees what it has written, and what it rolls back was never there", () =>
    Effect.gen(function* () {
      const job = jobOn("own")
      const sql = yield* SqlClient.SqlClient
      const id = yield* Effect.flip(
        sql.withTransaction(
          Effect.gen(function* () {
            const enqueued = yield* Queue.enqueue(job, { n: 1 }, { idempotency: { scope: "own", key: "k" } })
            expect((yield* Queue.get(enqueued.id)).state).toBe("pending")
            expect(Option.isSome(yield* Queue.find({ scope: "own", key: "k" }))).toBe(true)
            return yield* Effect.fail(enqueued.id)
          })
        )
      )
      if (typeof id !== "string") return yield* Effect.fail(id)
      expect(yield* Effect.flip(Queue.get(id))).toMatchObject({ _tag: "JobNotFound" })
      expect(yield* Queue.find({ scope: "own", key: "k" })).toEqual(Option.none())
    })
  )

  it.effect("a list page by page has each job once, in order, while others are added and deleted", () =>
    Effect.gen(function* () {
      const job = jobOn("pages")
      const store = yield* JobStore.JobStore
      const first = yield* Queue.enqueueAll(job, numbered(100))
      // Jobs of the second page, which are gone when it has been read.
      const gone = first.slice(10, 17)
      const others: Array<string> = []
      const between = (page: number) =>
        Effect.gen(function* () {
          yield* Queue.enqueue(jobOn("elsewhere"), { n: page })
          if (page <= 20) others.push((yield* Queue.enqueue(job, { n: 1_000 + page })).id)
          if (page !== 3) return
          yield* Effect.forEach(gone, ({ id }) => Queue.cancel(id), { discard: true })
          yield* store.clean({ canceled: Duration.zero }, "", 1_000)
        })
      const pages = yield* pagesOf({ queue: "pages" }, 7, between)
      const seen = pages.flat().map(({ id }) => id)
      expect(pages.slice(0, -1).every((page) => page.length === 7)).toBe(true)
      // Whatever came while they were read stands at the end: no page moved.
      expect(seen.slice(0, 100)).toEqual(first.map(({ id }) => id))
      expect(seen.slice(100)).toEqual(others.slice(0, seen.length - 100))
      const again = yield* pagesOf({ queue: "pages" }, 1_000, () => Effect.void)
      const stay = first.filter((job) => !gone.includes(job)).map(({ id }) => id)
      expect(again.flat().map(({ id }) => id)).toEqual([...stay, ...others])
    })
  )

  it.effect("a list takes queue, type and state together, and refuses limits and cursors that are none", () =>
    Effect.gen(function* () {
      const job = jobOn("filter")
      const other = jobOn("filter", "read.other")
      const jobs = yield* Queue.enqueueAll(job, numbered(6))
      yield* Queue.enqueueAll(other, numbered(3))
      yield* Effect.forEach(jobs.slice(0, 2), ({ id }) => Queue.cancel(id))
      const count = (filter: Queue.ListOptions) => Effect.map(Queue.list(filter), ({ length }) => length)
      expect(yield* count({ queue: "filter" })).toBe(9)
      expect(yield* count({ queue: "filter", type: "read.other" })).toBe(3)
      expect(yield* count({ queue: "filter", type: "read.work", state: "canceled" })).toBe(2)
      expect(yield* count({ queue: "filter", state: "dead" })).toBe(0)
      expect(yield* count({ queue: "filter%" })).toBe(0)
      for (const limit of [0, -1, 1.5, 1_001, Number.NaN]) {
        expect(yield* Effect.flip(Queue.list({ limit }))).toMatchObject({ _tag: "InvalidOption", option: "limit" })
      }
      for (const after of ["12abc", " 1", "-1", "1; DROP TABLE leasehold_jobs", "18446744073709551616"]) {
        expect(yield* Effect.flip(Queue.list({ after })), after).toMatchObject({
          _tag: "InvalidOption",
          option: "after"
        })
      }
    })
  )

  it.effect("counts has each queue's jobs by state", () =>
    Effect.gen(function* () {
      const job = jobOn("counted")
      const jobs = yield* Queue.enqueueAll(job, numbered(7))
      yield* Effect.forEach(jobs.slice(0, 3), ({ id }) => Queue.cancel(id))
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* Queue.claim(job)
          const counts = (yield* Queue.counts).filter(({ queue: name }) => name === "counted")
          expect(counts.map(({ count, state }) => `${state} ${count}`).sort()).toEqual([
            "canceled 3",
            "pending 3",
            "running 1"
          ])
        })
      )
    })
  )

  it.effect("a result is decoded, or says how the job ended or that it has not, and never waits in a transaction", () =>
    Effect.gen(function* () {
      const job = jobOn("result")
      const sql = yield* SqlClient.SqlClient
      const [good, bad, canceled, later] = yield* Queue.enqueueAll(job, numbered(4)).pipe(
        Effect.map((jobs) => jobs.map(({ id }) => id))
      )
      if (good === undefined || bad === undefined || canceled === undefined || later === undefined) {
        throw new Error("four jobs were enqueued")
      }
      yield* Queue.cancel(canceled)
      const handler = job.toLayer(({ n }) =>
        n === 0
          ? Effect.succeed({ doubled: 2n ** 60n })
          : n === 1
            ? Effect.fail(new JobFailure.Permanent({ code: "gone", message: "no such order" }))
            : Effect.fail(new JobFailure.Snooze({ for: "1 hour" }))
      )
      yield* Effect.gen(function* () {
        expect(yield* Queue.result(job, good)).toEqual({ doubled: 2n ** 60n })
        expect(yield* Effect.flip(Queue.result(job, bad))).toMatchObject({
          _tag: "JobDead",
          code: "gone",
          reason: "no such order"
        })
        expect(yield* Effect.flip(Queue.result(job, canceled))).toMatchObject({ _tag: "JobCanceled" })
        const [waited, timeout] = yield* Effect.timed(Effect.flip(Queue.result(job, later, { timeout: "300 millis" })))
        expect(timeout).toMatchObject({ _tag: "ResultTimeout", jobId: later, state: "pending" })
        expect(Duration.toMillis(waited)).toBeGreaterThanOrEqual(300)
        expect(Duration.toMillis(waited)).toBeLessThan(5_000)
        const other = jobOn("result", "read.other")
        expect(yield* Effect.flip(Queue.result(other, good))).toMatchObject({ _tag: "PayloadInvalid", part: "output" })
        expect(yield* Effect.flip(sql.withTransaction(Queue.result(job, good)))).toMatchObject({
          _tag: "InTransaction",
          verb: "result"
        })
      }).pipe(Effect.provide(Layer.provide(Worker.layer({ jobs: [job], poll: "50 millis" }), handler)))
    })
  )
})

layer(queue(), { excludeTestServices: true, timeout: "1 minute" })(
  "a walk over jobs whose ids grow by a digit",
  (it) => {
    it.effect("comes by each of them in small batches: retryAll, the reaper, the cleaner", () =>
      Effect.gen(function* () {
        const store = yield* JobStore.JobStore
        const { query } = yield* Database
        const job = jobOn("walked")
        // Of a new table, so that the ids go from 1 to 120.
        const jobs = yield* Queue.enqueueAll(job, numbered(120))
        expect(jobs.at(-1)?.id).toBe("120")
        const walk = <A>(step: (after: string) => Effect.Effect<JobStore.Walked & { readonly did: A }, unknown>) =>
          Effect.gen(function* () {
            const did: Array<A> = []
            for (let after = Option.some(""); Option.isSome(after); ) {
              const walked: JobStore.Walked & { readonly did: A } = yield* step(after.value)
              did.push(walked.did)
              after = walked.next
            }
            return did
          })
        const sum = (numbers: ReadonlyArray<number>) => numbers.reduce((total, each) => total + each, 0)
        yield* query("UPDATE leasehold_jobs SET state = 3, due_at = NULL, finished_at = UTC_TIMESTAMP(6)")
        const retried = yield* walk((after) =>
          Effect.map(store.retryAll({}, after, 7), ({ next, retried: did }) => ({ next, did }))
        )
        expect(sum(retried)).toBe(120)
        yield* query(
          "UPDATE leasehold_jobs SET state = 1, token = 9, attempts_left = 0, due_at = UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE"
        )
        const reaped = yield* walk((after) =>
          Effect.map(store.reap(after, 7), ({ ended, next }) => ({ next, did: ended.map(({ id }) => id) }))
        )
        expect(reaped.flat()).toEqual(jobs.map(({ id }) => id))
        const cleaned = yield* walk((after) =>
          Effect.map(store.clean({ dead: Duration.zero }, after, 7), ({ cleaned: did, next }) => ({ next, did }))
        )
        expect(sum(cleaned)).toBe(120)
        expect(yield* query("SELECT id FROM leasehold_jobs")).toEqual([])
      })
    )
  }
)
