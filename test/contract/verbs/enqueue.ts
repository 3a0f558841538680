import { expect } from "@effect/vitest"
import { DateTime, Duration, Effect, Option } from "effect"
import type { JobId } from "../../../src/JobRecord.js"
import type { NewJob } from "../../../src/JobStore.js"
import { IdempotencyConflict } from "../../../src/QueueError.js"
import { before, type It, only, pastLease, scene, settlements } from "../../support/Scene.js"

const keyed = (scope: string, key: string, fingerprint = "f".repeat(64)): NewJob["idempotency"] =>
  Option.some({ scope, key, fingerprint })

const other = "e".repeat(64)

export const enqueue = (it: It): void => {
  it.effect("an enqueue answers new ids in the order of the jobs, rising", () =>
    Effect.gen(function* () {
      const { newJob, record, store } = yield* scene
      const jobs = Array.from({ length: 25 }, (_, index) => newJob({ payload: String(index) }))
      const enqueued = yield* store.enqueue(jobs)
      expect(enqueued.every(({ created }) => created)).toBe(true)
      const ids = enqueued.map(({ id }) => BigInt(id))
      expect(ids).toEqual([...ids].sort((a, b) => (a < b ? -1 : 1)))
      expect(new Set(ids).size).toBe(25)
      const records = yield* Effect.forEach(enqueued, ({ id }) => record(id))
      expect(records.map(({ payload }) => payload)).toEqual(jobs.map(({ payload }) => payload))
    })
  )

  it.effect("an enqueue of no jobs answers none", () =>
    Effect.gen(function* () {
      const { store } = yield* scene
      expect(yield* store.enqueue([])).toEqual([])
    })
  )

  it.effect("a new job is pending, due now, untouched, with its whole budget", () =>
    Effect.gen(function* () {
      const { enqueue, queue, record } = yield* scene
      const id = yield* enqueue({ priority: 7, payloadVersion: 3, maxAttempts: Option.some(4) })
      const job = yield* record(id)
      expect(job).toEqual({
        id,
        queue,
        type: "count",
        priority: 7,
        state: "pending",
        token: job.token,
        attempt: 0,
        attemptsLeft: Option.some(4),
        maxAttempts: Option.some(4),
        worker: Option.none(),
        payload: "{}",
        payloadVersion: 3,
        output: Option.none(),
        errorCode: Option.none(),
        errorMessage: Option.none(),
        cancelRequested: false,
        enqueuedAt: job.enqueuedAt,
        firstDueAt: job.enqueuedAt,
        dueAt: Option.some(job.enqueuedAt),
        finishedAt: Option.none(),
        attempts: []
      })
    })
  )

  it.effect("a payload comes back exactly as its text was", () =>
    Effect.gen(function* () {
      const { claim, enqueueMany, newJob, record, store, take } = yield* scene
      const payloads = [
        null,
        "null",
        '"{}"',
        '{"bbb":1,"a":2,"a":3}',
        '{ "spaces" :  1.0 }',
        "9007199254740993123456789",
        '"\\u0000\\ud800 \u0000 \u{1F468}\u200D\u{1F469}\u200D\u{1F467} \uFFFF \u202E"',
        `"${"x".repeat(70_000)}"`,
        '{"__proto__":{"polluted":true},"":0}',
        '"\'; DROP TABLE jobs; -- \\\\ %_ `"'
      ]
      const enqueued = yield* store.enqueue(payloads.map((payload) => newJob({ payload })))
      const records = yield* Effect.forEach(enqueued, ({ id }) => record(id))
      expect(records.map(({ payload }) => payload)).toEqual(payloads)
      const { jobs } = yield* take(payloads.length)
      expect(jobs.map(({ payload }) => payload)).toEqual(payloads)
      expect((yield* claim()).jobs).toEqual([])
      expect(yield* enqueueMany(1)).toHaveLength(1)
    })
  )

  it.effect("a delay counts from the enqueue, and the job is not claimed before", () =>
    Effect.gen(function* () {
      const { elapse, enqueue, expectNothingDue, record, takeOne } = yield* scene
      const id = yield* enqueue({ due: Option.some({ after: Duration.minutes(10) }) })
      const { dueAt, enqueuedAt, firstDueAt } = yield* record(id)
      expect(dueAt).toEqual(Option.some(firstDueAt))
      expect(DateTime.distance(enqueuedAt, firstDueAt)).toBe(600_000)
      yield* elapse("9 minutes")
      yield* expectNothingDue()
      yield* elapse("2 minutes")
      expect((yield* takeOne()).lease.jobId).toBe(id)
    })
  )

  it.effect("a job for a date is due at that date", () =>
    Effect.gen(function* () {
      const { enqueue, expectNothingDue, record } = yield* scene
      const at = DateTime.unsafeMake("2199-12-31T23:59:58.123Z")
      const id = yield* enqueue({ due: Option.some({ at }) })
      const { dueAt, firstDueAt } = yield* record(id)
      expect(firstDueAt).toEqual(at)
      expect(dueAt).toEqual(Option.some(at))
      yield* expectNothingDue()
    })
  )

  it.effect("a date in the past is due now, behind what is due already, and is remembered as it was asked", () =>
    Effect.gen(function* () {
      const { enqueue, record, take } = yield* scene
      const first = yield* enqueue()
      const at = DateTime.unsafeMake("1969-06-01T00:00:00Z")
      const second = yield* enqueue({ due: Option.some({ at }) })
      const { dueAt, enqueuedAt, firstDueAt } = yield* record(second)
      expect(firstDueAt).toEqual(at)
      expect(dueAt).toEqual(Option.some(enqueuedAt))
      const { jobs } = yield* take(2)
      expect(jobs.map(({ lease }) => lease.jobId)).toEqual([first, second])
    })
  )

  it.effect("the trace context travels from the enqueue to the claim", () =>
    Effect.gen(function* () {
      const { enqueue, take } = yield* scene
      yield* enqueue({ traceContext: Option.some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01") })
      yield* enqueue()
      const { jobs } = yield* take(2)
      expect(jobs.map(({ traceContext }) => traceContext)).toEqual([
        Option.some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        Option.none()
      ])
    })
  )

  it.effect("the same key again answers the first job, and changes nothing of it", () =>
    Effect.gen(function* () {
      const { newJob, queue, record, store } = yield* scene
      const idempotency = keyed(queue, "k")
      const first = only(yield* store.enqueue([newJob({ idempotency })]))
      const untouched = yield* record(first.id)
      const options: Partial<NewJob> = {
        priority: 0,
        maxAttempts: Option.none(),
        due: Option.some({ after: Duration.days(1) })
      }
      const replay = only(yield* store.enqueue([newJob({ idempotency, ...options })]))
      expect(first.created).toBe(true)
      expect(replay).toEqual({ id: first.id, created: false })
      expect(yield* record(first.id)).toEqual(untouched)
      expect(yield* store.list({ queue }, "", 10)).toHaveLength(1)
    })
  )

  it.effect("a key that is asked for by many at once names one job, which one of them created", () =>
    Effect.gen(function* () {
      const { newJob, queue, store } = yield* scene
      const answers = yield* Effect.forEach(
        Array.from({ length: 20 }, () => newJob({ idempotency: keyed(queue, "k") })),
        (job) => Effect.map(store.enqueue([job]), only),
        { concurrency: "unbounded" }
      )
      expect(new Set(answers.map(({ id }) => id)).size).toBe(1)
      expect(answers.filter(({ created }) => created)).toHaveLength(1)
    })
  )

  it.effect("the same key with another fingerprint is a conflict in every state, and leaves the job as it was", () =>
    Effect.gen(function* () {
      const { hold, newJob, queue, record, settle, store } = yield* scene
      const expectConflict = (key: string, id: JobId) =>
        Effect.gen(function* () {
          const untouched = yield* store.find(queue, key)
          const error = yield* Effect.flip(store.enqueue([newJob({ idempotency: keyed(queue, key, other) })]))
          expect(error).toBeInstanceOf(IdempotencyConflict)
          expect(error).toMatchObject({ _tag: "IdempotencyConflict", jobId: Option.some(id), jobType: "count" })
          expect(yield* store.find(queue, key)).toEqual(untouched)
          const replay = only(yield* store.enqueue([newJob({ idempotency: keyed(queue, key) })]))
          expect(replay).toEqual({ id, created: false })
        })
      const running = yield* hold({ idempotency: keyed(queue, "running") })
      const succeeded = yield* hold({ idempotency: keyed(queue, "succeeded") })
      yield* settle(succeeded, settlements.Complete)
      const dead = yield* hold({ idempotency: keyed(queue, "dead") })
      yield* settle(dead, settlements.Bury)
      const canceled = only(yield* store.enqueue([newJob({ idempotency: keyed(queue, "canceled") })]))
      yield* store.cancel(canceled.id)
      const pending = only(yield* store.enqueue([newJob({ idempotency: keyed(queue, "pending") })]))
      const ids = {
        pending: pending.id,
        running: running.jobId,
        succeeded: succeeded.jobId,
        dead: dead.jobId,
        canceled: canceled.id
      }
      for (const [state, id] of Object.entries(ids)) {
        expect((yield* record(id)).state).toBe(state)
        yield* expectConflict(state, id)
      }
    })
  )

  it.effect("keys that differ in anything, or stand in other scopes, name different jobs", () =>
    Effect.gen(function* () {
      const { newJob, queue, store } = yield* scene
      const pairs: ReadonlyArray<readonly [scope: string, key: string]> = [
        [`${queue}a`, "b:c"],
        [`${queue}a:b`, "c"],
        [queue, "k"],
        [queue, "K"],
        [queue, "k "],
        [queue, " k"],
        [queue, "k\u0000"],
        [queue, "é"],
        [queue, "e"],
        [queue, "e\u0301"],
        [queue, "\u200Bk"],
        [queue, "ｋ"],
        [queue.toUpperCase(), "k"],
        ["", queue]
      ]
      const ids = yield* Effect.forEach(pairs, ([scope, key]) =>
        Effect.map(store.enqueue([newJob({ idempotency: keyed(scope, key) })]), only)
      )
      expect(new Set(ids.map(({ id }) => id)).size).toBe(pairs.length)
      expect(ids.every(({ created }) => created)).toBe(true)
      const found = yield* Effect.forEach(pairs, ([scope, key]) => store.find(scope, key))
      expect(found.map(Option.map(({ id }) => id))).toEqual(ids.map(({ id }) => Option.some(id)))
      expect(yield* store.find(queue, "another")).toEqual(Option.none())
    })
  )

  it.effect("jobs without a key are never the same", () =>
    Effect.gen(function* () {
      const { enqueueMany } = yield* scene
      expect(new Set(yield* enqueueMany(3)).size).toBe(3)
    })
  )

  it.effect("a key twice in one call names one job", () =>
    Effect.gen(function* () {
      const { newJob, queue, store } = yield* scene
      const [first, second, third, fourth] = yield* store.enqueue([
        newJob({ idempotency: keyed(queue, "k") }),
        newJob(),
        newJob({ idempotency: keyed(queue, "k") }),
        newJob({ idempotency: keyed(queue, "l") })
      ])
      expect([first, second, third, fourth].map((answer) => answer?.created)).toEqual([true, true, false, true])
      expect(third?.id).toBe(first?.id)
      expect(new Set([first?.id, second?.id, fourth?.id]).size).toBe(3)
      expect(yield* store.list({ queue }, "", 10)).toHaveLength(3)
    })
  )

  it.effect("a conflict anywhere in one call leaves nothing of the call", () =>
    Effect.gen(function* () {
      const { enqueue, newJob, queue, store } = yield* scene
      const id = yield* enqueue({ idempotency: keyed(queue, "taken") })
      const withOld = yield* Effect.flip(
        store.enqueue([
          newJob(),
          newJob({ idempotency: keyed(queue, "fresh") }),
          newJob({ idempotency: keyed(queue, "taken", other) }),
          newJob()
        ])
      )
      expect(withOld).toMatchObject({ _tag: "IdempotencyConflict", jobId: Option.some(id) })
      const within = yield* Effect.flip(
        store.enqueue([
          newJob({ idempotency: keyed(queue, "twice") }),
          newJob({ idempotency: keyed(queue, "twice", other) })
        ])
      )
      expect(within).toMatchObject({ _tag: "IdempotencyConflict", jobId: Option.none() })
      expect((yield* store.list({ queue }, "", 10)).map((job) => job.id)).toEqual([id])
      expect(yield* store.find(queue, "fresh")).toEqual(Option.none())
      expect(yield* store.find(queue, "twice")).toEqual(Option.none())
    })
  )

  it.effect("a key is free again when its job was cleaned away", () =>
    Effect.gen(function* () {
      const { elapse, enqueue, newJob, queue, store } = yield* scene
      const id = yield* enqueue({ idempotency: keyed(queue, "k") })
      yield* store.cancel(id)
      yield* elapse(pastLease)
      yield* store.clean({ canceled: Duration.seconds(1) }, before(id), 1)
      const again = only(yield* store.enqueue([newJob({ idempotency: keyed(queue, "k", other) })]))
      expect(again.created).toBe(true)
      expect(again.id).not.toBe(id)
    })
  )
}
