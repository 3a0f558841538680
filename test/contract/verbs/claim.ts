import { expect } from "@effect/vitest"
import { DateTime, Duration, Effect, Option } from "effect"
import { before, type It, leaseLength, only, pastLease, scene, settlements } from "../../support/Scene.js"

export const claim = (it: It): void => {
  it.effect("a claim makes the job running, with an owner, a lease that ends, a higher token and an attempt paid", () =>
    Effect.gen(function* () {
      const { enqueue, queue, record, takeOne } = yield* scene
      const id = yield* enqueue({ priority: 2, payload: "[1]", maxAttempts: Option.some(3) })
      const pending = yield* record(id)
      const job = yield* takeOne()
      expect(job).toMatchObject({ queue, type: "count", priority: 2, payload: "[1]", payloadVersion: 1 })
      expect(job.attemptsLeft).toEqual(Option.some(2))
      expect(job.maxAttempts).toEqual(Option.some(3))
      expect(Duration.toMillis(job.waited)).toBeGreaterThanOrEqual(0)
      expect(Duration.toMillis(job.waited)).toBeLessThan(60_000)
      expect(job.lease).toEqual({ jobId: id, token: job.lease.token, attempt: 1, worker: "worker-a" })
      expect(job.lease.token).toBeGreaterThan(pending.token)
      const running = yield* record(id)
      const entry = only(running.attempts)
      expect(running).toEqual({
        ...pending,
        state: "running",
        token: job.lease.token,
        attempt: 1,
        attemptsLeft: Option.some(2),
        worker: Option.some("worker-a"),
        dueAt: Option.some(DateTime.addDuration(entry.startedAt, leaseLength)),
        attempts: [
          {
            attempt: 1,
            token: job.lease.token,
            worker: "worker-a",
            startedAt: entry.startedAt,
            endedAt: Option.none(),
            outcome: Option.none(),
            errorCode: Option.none(),
            errorMessage: Option.none()
          }
        ]
      })
    })
  )

  it.effect("jobs are claimed by priority, then by due time, then by id", () =>
    Effect.gen(function* () {
      const { elapse, enqueue, enqueueMany, take } = yield* scene
      const after = (seconds: number) => ({ due: Option.some({ after: Duration.seconds(seconds) }) })
      const late = yield* enqueue({ priority: 5, ...after(20) })
      const last = yield* enqueue({ priority: 9 })
      const early = yield* enqueue({ priority: 5, ...after(10) })
      const first = yield* enqueue({ priority: 0, ...after(30) })
      const equal = yield* enqueueMany(3, { priority: 7 })
      yield* elapse("31 seconds")
      const { jobs } = yield* take(7)
      expect(jobs.map(({ lease }) => lease.jobId)).toEqual([first, early, late, ...equal, last])
    })
  )

  it.effect("a claim takes no more than its limit, in order, and says whether there is more", () =>
    Effect.gen(function* () {
      const { claim, enqueueMany, take } = yield* scene
      const ids = yield* enqueueMany(5)
      const two = yield* claim({ limit: 2 })
      expect(two.jobs.map(({ lease }) => lease.jobId)).toEqual(ids.slice(0, 2))
      expect(two.more).toBe(true)
      const { jobs } = yield* take(3)
      expect(jobs.map(({ lease }) => lease.jobId)).toEqual(ids.slice(2))
      const none = yield* claim()
      expect(none).toEqual({ jobs: [], ended: [], more: false })
    })
  )

  it.effect("no job goes to two callers", () =>
    Effect.gen(function* () {
      const { claim, enqueueMany, expectNothingDue, take } = yield* scene
      const ids = yield* enqueueMany(60)
      const claims = yield* Effect.forEach(
        Array.from({ length: 18 }, (_, index) => `worker-${index % 6}`),
        (worker) => claim({ worker, limit: 3 }),
        { concurrency: 6 }
      )
      const early = claims.flatMap(({ jobs }) => jobs)
      const { jobs: late } = yield* take(60 - early.length)
      const taken = [...early, ...late].map(({ lease }) => lease.jobId)
      expect(new Set(taken)).toEqual(new Set(ids))
      expect(taken).toHaveLength(60)
      yield* expectNothingDue()
    })
  )

  it.effect("a job whose lease lasts is claimed by nobody else", () =>
    Effect.gen(function* () {
      const { elapse, expectNothingDue, hold } = yield* scene
      yield* hold()
      yield* expectNothingDue()
      yield* elapse("50 seconds")
      yield* expectNothingDue({ worker: "worker-b" })
    })
  )

  it.effect("a claim sees only its queue, the types that it names, and of each the versions that it knows", () =>
    Effect.gen(function* () {
      const { claim, enqueue, expectNothingDue, queue, record, take } = yield* scene
      const newer = yield* enqueue({ type: "mail", payloadVersion: 3 })
      const unknown = yield* enqueue({ type: "Count" })
      const mail = yield* enqueue({ type: "mail", payloadVersion: 2 })
      const count = yield* enqueue({ type: "count", payloadVersion: 1 })
      yield* expectNothingDue({ types: [] })
      yield* expectNothingDue({ queue: `${queue}x`, types: [{ type: "mail", version: 9 }] })
      yield* expectNothingDue({
        types: [
          { type: "mai", version: 9 },
          { type: "%", version: 9 }
        ]
      })
      const { jobs } = yield* take(2, {
        types: [
          { type: "count", version: 3 },
          { type: "mail", version: 2 }
        ]
      })
      expect(jobs.map(({ lease }) => lease.jobId)).toEqual([mail, count])
      expect((yield* claim({ types: [{ type: "mail", version: 2 }] })).jobs).toEqual([])
      for (const id of [newer, unknown]) {
        expect(yield* record(id)).toMatchObject({ state: "pending", attempt: 0, attemptsLeft: Option.some(3) })
      }
      const later = yield* take(1, { types: [{ type: "mail", version: 3 }] })
      expect(only(later.jobs).lease.jobId).toBe(newer)
    })
  )

  it.effect("an expired job is taken over in place, under a higher token", () =>
    Effect.gen(function* () {
      const { elapse, expectNothingDue, hold, record, takeOne } = yield* scene
      const lost = yield* hold()
      yield* elapse(pastLease)
      expect((yield* record(lost.jobId)).state).toBe("running")
      const { attemptsLeft, lease, waited } = yield* takeOne({ worker: "worker-b" })
      expect(lease).toMatchObject({ jobId: lost.jobId, attempt: 2, worker: "worker-b" })
      expect(lease.token).toBeGreaterThan(lost.token)
      expect(attemptsLeft).toEqual(Option.some(1))
      // What it waited is the time since the lease ended, not since the job was due first.
      expect(Duration.toMillis(waited)).toBeLessThan(60_000)
      const job = yield* record(lost.jobId)
      expect(job).toMatchObject({ state: "running", token: lease.token, attempt: 2, worker: Option.some("worker-b") })
      expect(job.attempts.map(({ attempt, outcome, token, worker }) => ({ attempt, outcome, token, worker }))).toEqual([
        { attempt: 1, outcome: Option.some("expired"), token: lost.token, worker: "worker-a" },
        { attempt: 2, outcome: Option.none(), token: lease.token, worker: "worker-b" }
      ])
      expect(job.attempts.map(({ endedAt }) => Option.isSome(endedAt))).toEqual([true, false])
      yield* expectNothingDue()
    })
  )

  it.effect("a worker that meets its own expired job again gets a new token", () =>
    Effect.gen(function* () {
      const { elapse, hold, takeOne } = yield* scene
      const first = yield* hold()
      yield* elapse(pastLease)
      const second = yield* takeOne()
      expect(second.lease).toMatchObject({ jobId: first.jobId, worker: first.worker, attempt: 2 })
      expect(second.lease.token).toBeGreaterThan(first.token)
    })
  )

  it.effect("an expired job without attempts left is not run again: the claim ends it as dead", () =>
    Effect.gen(function* () {
      const { claim, elapse, hold, queue, record, take } = yield* scene
      const lease = yield* hold({ maxAttempts: Option.some(1) })
      yield* elapse(pastLease)
      const { ended, jobs } = yield* take(1)
      expect(jobs).toEqual([])
      expect(ended).toEqual([{ id: lease.jobId, queue, type: "count", state: "dead" }])
      const job = yield* record(lease.jobId)
      expect(job).toMatchObject({
        state: "dead",
        attempt: 1,
        attemptsLeft: Option.some(0),
        worker: Option.none(),
        dueAt: Option.none(),
        errorCode: Option.some("lease_expired")
      })
      expect(job.token).toBeGreaterThan(lease.token)
      expect(Option.isSome(job.finishedAt)).toBe(true)
      expect(Option.getOrElse(job.errorMessage, () => "")).toMatch(/vanished/)
      expect(only(job.attempts).outcome).toEqual(Option.some("reaped"))
      expect(Option.isSome(only(job.attempts).endedAt)).toBe(true)
      expect((yield* claim()).ended).toEqual([])
    })
  )

  it.effect("an expired job that was to be canceled is not run again: the claim ends it as canceled", () =>
    Effect.gen(function* () {
      const { elapse, hold, queue, record, store, take } = yield* scene
      const lease = yield* hold()
      yield* store.cancel(lease.jobId)
      yield* elapse(pastLease)
      const { ended, jobs } = yield* take(1)
      expect(jobs).toEqual([])
      expect(ended).toEqual([{ id: lease.jobId, queue, type: "count", state: "canceled" }])
      const job = yield* record(lease.jobId)
      expect(job).toMatchObject({ state: "canceled", dueAt: Option.none(), worker: Option.none() })
      expect(job.token).toBeGreaterThan(lease.token)
      expect(job.errorCode).toEqual(Option.none())
      expect(only(job.attempts).outcome).toEqual(Option.some("reaped"))
    })
  )

  it.effect("jobs that a claim ends do not keep it from those behind them", () =>
    Effect.gen(function* () {
      const { claim, elapse, enqueueMany, take } = yield* scene
      const poison = yield* enqueueMany(5, { maxAttempts: Option.some(1), priority: 0 })
      yield* take(5)
      const healthy = yield* enqueueMany(3)
      yield* elapse(pastLease)
      const jobs = []
      for (let turn = 0; turn < 500 && jobs.length < 3; turn++) {
        const claimed = yield* claim({ limit: 2 })
        jobs.push(...claimed.jobs)
      }
      expect(jobs.map(({ lease }) => lease.jobId)).toEqual(healthy)
      expect(poison).toHaveLength(5)
    })
  )

  it.effect("a job that kills each of its workers starts as often as its budget says, and no more", () =>
    Effect.gen(function* () {
      const { elapse, enqueue, expectNothingDue, record, take, takeOne } = yield* scene
      const id = yield* enqueue({ maxAttempts: Option.some(3) })
      for (const attempt of [1, 2, 3]) {
        expect((yield* takeOne()).lease.attempt).toBe(attempt)
        yield* elapse(pastLease)
      }
      expect((yield* take(1)).ended).toHaveLength(1)
      yield* expectNothingDue()
      expect(yield* record(id)).toMatchObject({ state: "dead", attempt: 3, attemptsLeft: Option.some(0) })
    })
  )

  it.effect("an unlimited budget is never used up", () =>
    Effect.gen(function* () {
      const { elapse, enqueue, record, takeOne } = yield* scene
      const id = yield* enqueue({ maxAttempts: Option.none() })
      for (const attempt of [1, 2, 3, 4]) {
        const job = yield* takeOne()
        expect(job.lease.attempt).toBe(attempt)
        expect(job.attemptsLeft).toEqual(Option.none())
        expect(job.maxAttempts).toEqual(Option.none())
        yield* elapse(pastLease)
      }
      expect(yield* record(id)).toMatchObject({ state: "running", attempt: 4, attemptsLeft: Option.none() })
    })
  )

  it.effect("a paused queue answers nothing, while its running jobs and other queues go on", () =>
    Effect.gen(function* () {
      const { elapse, enqueue, expectNothingDue, hold, queue, settle, store, take, takeOne } = yield* scene
      const running = yield* hold()
      const stranger = yield* scene
      yield* stranger.enqueue()
      yield* store.setPaused(queue, true)
      yield* store.setPaused(queue, true)
      expect(yield* store.paused).toContain(queue)
      const id = yield* enqueue()
      yield* expectNothingDue()
      expect((yield* stranger.takeOne()).queue).toBe(stranger.queue)
      expect(yield* settle(running, settlements.RetryLater)).toEqual({ _tag: "Recorded", state: "pending" })
      yield* store.setPaused(queue, false)
      expect(yield* store.paused).not.toContain(queue)
      expect((yield* takeOne()).lease.jobId).toBe(id)
      yield* store.setPaused(queue, true)
      yield* elapse(pastLease)
      yield* expectNothingDue()
      yield* store.setPaused(queue, false)
      expect((yield* take(2)).jobs).toHaveLength(2)
    })
  )

  it.effect("the ledger keeps the last 50 attempts, oldest first", () =>
    Effect.gen(function* () {
      const { enqueue, record, settle, takeOne } = yield* scene
      const id = yield* enqueue({ maxAttempts: Option.none() })
      for (let attempt = 1; attempt <= 53; attempt++) {
        yield* settle((yield* takeOne()).lease, settlements.Release)
      }
      const { attempt, attempts } = yield* record(id)
      expect(attempt).toBe(53)
      expect(attempts.map((entry) => entry.attempt)).toEqual(Array.from({ length: 50 }, (_, index) => index + 4))
      const tokens = attempts.map(({ token }) => token)
      expect(tokens).toEqual([...tokens].sort((a, b) => a - b))
      expect(new Set(tokens).size).toBe(50)
    })
  )

  it.effect("a job is found by id as it is by a walk from just before it", () =>
    Effect.gen(function* () {
      const { hold, queue, record, store } = yield* scene
      const lease = yield* hold()
      expect(yield* store.list({ queue }, before(lease.jobId), 1)).toEqual([yield* record(lease.jobId)])
    })
  )
}
