import { expect } from "@effect/vitest"
import { Effect, Option } from "effect"
import { JobId } from "../../../src/JobRecord.js"
import { before, type It, only, pastLease, scene, settlements } from "../../support/Scene.js"

/** An id that no job has: the largest that an unsigned 64-bit column holds. */
const nobody = JobId.make("18446744073709551615")

export const operate = (it: It): void => {
  cancels(it)
  retries(it)
  looks(it)
}

const cancels = (it: It): void => {
  it.effect("a cancel of a pending job ends it at once, under a raised token, and it never runs", () =>
    Effect.gen(function* () {
      const { elapse, enqueue, expectNothingDue, record, store } = yield* scene
      const id = yield* enqueue()
      const pending = yield* record(id)
      expect(yield* store.cancel(id)).toEqual({ _tag: "canceled" })
      const job = yield* record(id)
      expect(job).toEqual({
        ...pending,
        state: "canceled",
        token: job.token,
        cancelRequested: true,
        dueAt: Option.none(),
        finishedAt: job.finishedAt
      })
      expect(job.token).toBeGreaterThan(pending.token)
      expect(Option.isSome(job.finishedAt)).toBe(true)
      yield* elapse(pastLease)
      yield* expectNothingDue()
    })
  )

  it.effect("a cancel of a job that waits for a retry ends it, and its first holder's lease stays settled", () =>
    Effect.gen(function* () {
      const { hold, record, settle, store } = yield* scene
      const lease = yield* hold()
      yield* settle(lease, settlements.RetryLater)
      expect(yield* store.cancel(lease.jobId)).toEqual({ _tag: "canceled" })
      expect(yield* record(lease.jobId)).toMatchObject({ state: "canceled", attempt: 1 })
      expect(yield* settle(lease, settlements.RetryLater)).toEqual({ _tag: "Recorded", state: "pending" })
    })
  )

  it.effect("a cancel of a running job leaves a request, and its holder keeps the job", () =>
    Effect.gen(function* () {
      const { hold, record, store } = yield* scene
      const lease = yield* hold()
      const held = yield* record(lease.jobId)
      expect(yield* store.cancel(lease.jobId)).toEqual({ _tag: "requested" })
      expect(yield* store.cancel(lease.jobId)).toEqual({ _tag: "requested" })
      expect(yield* record(lease.jobId)).toEqual({ ...held, cancelRequested: true })
    })
  )

  it.effect("a cancel of an ended job says how it ended, and changes nothing", () =>
    Effect.gen(function* () {
      const { enqueue, hold, record, settle, store } = yield* scene
      const succeeded = yield* hold()
      yield* settle(succeeded, settlements.Complete)
      const dead = yield* hold()
      yield* settle(dead, settlements.Bury)
      const canceled = yield* enqueue()
      yield* store.cancel(canceled)
      const cases = [
        [succeeded.jobId, "succeeded"],
        [dead.jobId, "dead"],
        [canceled, "canceled"]
      ] as const
      for (const [id, state] of cases) {
        const ended = yield* record(id)
        expect(yield* store.cancel(id)).toEqual({ _tag: "ended", state })
        expect(yield* record(id)).toEqual(ended)
      }
    })
  )

  it.effect("a job that does not exist can be neither found, canceled nor retried", () =>
    Effect.gen(function* () {
      const { store } = yield* scene
      expect(yield* store.get(nobody)).toEqual(Option.none())
      expect(yield* Effect.flip(store.cancel(nobody))).toMatchObject({ _tag: "JobNotFound", jobId: nobody })
      expect(yield* Effect.flip(store.retry(nobody))).toMatchObject({ _tag: "JobNotFound", jobId: nobody })
    })
  )

  it.effect("a cancel and a claim at once leave the job either canceled or running with a request", () =>
    Effect.gen(function* () {
      const { claim, enqueue, record, store } = yield* scene
      for (let turn = 0; turn < 10; turn++) {
        const id = yield* enqueue()
        const [{ jobs }, answer] = yield* Effect.all([claim(), store.cancel(id)], { concurrency: "unbounded" })
        expect(answer).toEqual(jobs.length === 1 ? { _tag: "requested" } : { _tag: "canceled" })
        expect((yield* record(id)).state).toBe(jobs.length === 1 ? "running" : "canceled")
      }
    })
  )
}

const retries = (it: It): void => {
  it.effect("a retry makes a dead job pending and due now, with its whole budget and a raised token", () =>
    Effect.gen(function* () {
      const { elapse, hold, record, settle, store, takeOne } = yield* scene
      const lease = yield* hold({ maxAttempts: Option.some(2) })
      yield* settle(lease, settlements.Bury)
      yield* elapse(pastLease)
      const dead = yield* record(lease.jobId)
      yield* store.retry(lease.jobId)
      const job = yield* record(lease.jobId)
      expect(job).toEqual({
        ...dead,
        state: "pending",
        token: job.token,
        attemptsLeft: Option.some(2),
        errorCode: Option.none(),
        errorMessage: Option.none(),
        dueAt: job.dueAt,
        finishedAt: Option.none()
      })
      expect(job.token).toBeGreaterThan(dead.token)
      const { attemptsLeft, lease: next, waited } = yield* takeOne()
      expect(next).toMatchObject({ jobId: lease.jobId, attempt: 2 })
      expect(next.token).toBeGreaterThan(job.token)
      expect(attemptsLeft).toEqual(Option.some(1))
      // Due since the retry, not since it was enqueued.
      expect(waited).toBeDefined()
      expect((yield* record(lease.jobId)).attempts.map(({ attempt }) => attempt)).toEqual([1, 2])
      expect(yield* settle(next, settlements.Complete)).toEqual({ _tag: "Recorded", state: "succeeded" })
    })
  )

  it.effect("a retry of a job that was canceled while it ran lets it complete", () =>
    Effect.gen(function* () {
      const { hold, record, renew, settle, store, takeOne } = yield* scene
      const lease = yield* hold()
      yield* store.cancel(lease.jobId)
      yield* settle(lease, settlements.Complete)
      yield* store.retry(lease.jobId)
      expect(yield* record(lease.jobId)).toMatchObject({ state: "pending", cancelRequested: false })
      const next = yield* takeOne()
      expect(yield* renew(next.lease)).toEqual({ _tag: "Renewed", cancelRequested: false })
      expect(yield* settle(next.lease, settlements.Complete)).toEqual({ _tag: "Recorded", state: "succeeded" })
    })
  )

  it.effect("a retry of a job that was canceled before it ran lets it run", () =>
    Effect.gen(function* () {
      const { enqueue, queue, settle, store, takeOne } = yield* scene
      const id = yield* enqueue()
      yield* store.cancel(id)
      expect(yield* store.retry(id)).toBe(queue)
      const { lease } = yield* takeOne()
      expect(lease).toMatchObject({ jobId: id, attempt: 1 })
      expect(yield* settle(lease, settlements.Complete)).toEqual({ _tag: "Recorded", state: "succeeded" })
    })
  )

  it.effect("an unlimited budget stays unlimited after a retry", () =>
    Effect.gen(function* () {
      const { hold, record, settle, store } = yield* scene
      const lease = yield* hold({ maxAttempts: Option.none() })
      yield* settle(lease, settlements.Bury)
      yield* store.retry(lease.jobId)
      expect((yield* record(lease.jobId)).attemptsLeft).toEqual(Option.none())
    })
  )

  it.effect("a job that is neither dead nor canceled can not be retried, and is left as it is", () =>
    Effect.gen(function* () {
      const { enqueue, hold, record, settle, store } = yield* scene
      const succeeded = yield* hold()
      yield* settle(succeeded, settlements.Complete)
      const running = yield* hold()
      const pending = yield* enqueue()
      const cases = [
        [succeeded.jobId, "succeeded"],
        [running.jobId, "running"],
        [pending, "pending"]
      ] as const
      for (const [id, state] of cases) {
        const job = yield* record(id)
        expect(yield* Effect.flip(store.retry(id))).toMatchObject({ _tag: "JobNotEnded", jobId: id, state })
        expect(yield* record(id)).toEqual(job)
      }
    })
  )

  it.effect("retryAll walks over all jobs and retries those that match, and no others", () =>
    Effect.gen(function* () {
      const { enqueue, enqueueMany, hold, queue, record, settle, store, walk } = yield* scene
      const first = yield* enqueue({ type: "mail" })
      yield* store.cancel(first)
      const dead = []
      for (let turn = 0; turn < 5; turn++) {
        const lease = yield* hold()
        yield* settle(lease, settlements.Bury)
        dead.push(lease.jobId)
      }
      const succeeded = yield* hold()
      yield* settle(succeeded, settlements.Complete)
      const canceled = yield* enqueueMany(2)
      yield* Effect.forEach(canceled, store.cancel)
      const counted = (steps: ReadonlyArray<{ readonly retried: number }>) =>
        steps.reduce((sum, { retried }) => sum + retried, 0)
      const onlyDead = yield* walk(first, (after) => store.retryAll({ queue, state: "dead" }, after, 2))
      expect(counted(onlyDead)).toBe(5)
      expect(onlyDead.every(({ retried }) => retried <= 2)).toBe(true)
      expect(onlyDead.map(({ queues }) => queues)).toEqual(
        onlyDead.map(({ retried }) => (retried === 0 ? [] : [queue]))
      )
      const onlyMail = yield* walk(first, (after) => store.retryAll({ queue, type: "mail" }, after, 3))
      expect(counted(onlyMail)).toBe(1)
      const rest = yield* walk(first, (after) => store.retryAll({ queue }, after, 100))
      expect(counted(rest)).toBe(2)
      expect(counted(yield* walk(first, (after) => store.retryAll({ queue }, after, 4)))).toBe(0)
      for (const id of [first, ...dead, ...canceled]) {
        expect(yield* record(id)).toMatchObject({ state: "pending", attemptsLeft: Option.some(3) })
      }
      expect((yield* record(succeeded.jobId)).state).toBe("succeeded")
    })
  )
}

const looks = (it: It): void => {
  it.effect("a list has the jobs that match, by id, from the cursor on, up to its limit", () =>
    Effect.gen(function* () {
      const { enqueue, enqueueMany, queue, store } = yield* scene
      const ids = yield* enqueueMany(4)
      const mail = yield* enqueue({ type: "mail" })
      const [, second, third] = ids
      if (second === undefined || third === undefined) throw new Error("four jobs were enqueued")
      yield* store.cancel(second)
      const list = (filter: Parameters<typeof store.list>[0], after: string, limit: number) =>
        Effect.map(store.list({ queue, ...filter }, after, limit), (jobs) => jobs.map(({ id }) => id))
      expect(yield* list({}, "", 100)).toEqual([...ids, mail])
      expect(yield* list({}, second, 2)).toEqual([third, ids[3]])
      expect(yield* list({ state: "pending" }, "", 3)).toEqual([ids[0], third, ids[3]])
      expect(yield* list({ state: "canceled", type: "count" }, "", 10)).toEqual([second])
      expect(yield* list({ type: "mail" }, "", 10)).toEqual([mail])
      expect(yield* list({}, mail, 10)).toEqual([])
      expect(yield* list({ type: "%" }, "", 10)).toEqual([])
      expect(yield* store.list({ queue }, before(second), 1)).toMatchObject([{ id: second, state: "canceled" }])
    })
  )

  it.effect("jobs are counted by queue and state", () =>
    Effect.gen(function* () {
      const { enqueueMany, hold, queue, settle, store } = yield* scene
      yield* settle(yield* hold(), settlements.Complete)
      yield* settle(yield* hold(), settlements.Bury)
      yield* hold()
      const ids = yield* enqueueMany(3)
      yield* store.cancel(ids[0] ?? nobody)
      const counts = (yield* store.counts).filter((count) => count.queue === queue)
      expect(Object.fromEntries(counts.map(({ count, state }) => [state, count]))).toEqual({
        pending: 2,
        running: 1,
        succeeded: 1,
        dead: 1,
        canceled: 1
      })
    })
  )

  it.effect("refused late writes are remembered by job, oldest first, at most 20", () =>
    Effect.gen(function* () {
      const { hold, store } = yield* scene
      const lease = yield* hold()
      const other = yield* hold()
      yield* store.recordRefusals([])
      yield* store.recordRefusals([
        { lease, verb: "complete" },
        { lease: other, verb: "renew" },
        { lease: { ...lease, worker: "worker-b" }, verb: "fail" }
      ])
      expect((yield* store.refusals(lease.jobId)).map(({ token, verb, worker }) => ({ token, verb, worker }))).toEqual([
        { token: lease.token, verb: "complete", worker: "worker-a" },
        { token: lease.token, verb: "fail", worker: "worker-b" }
      ])
      for (let turn = 0; turn < 3; turn++) {
        yield* store.recordRefusals(Array.from({ length: 15 }, () => ({ lease, verb: "renew" })))
      }
      expect(yield* store.refusals(lease.jobId)).toHaveLength(20)
      expect(only(yield* store.refusals(other.jobId))).toMatchObject({ token: other.token, verb: "renew" })
      expect(yield* store.refusals(nobody)).toEqual([])
    })
  )

  it.effect("outside of a transaction, one that is required is missing and one that is refused is not there", () =>
    Effect.gen(function* () {
      const { enqueue, store } = yield* scene
      expect(yield* Effect.flip(store.requireTransaction("enqueue"))).toMatchObject({
        _tag: "NotInTransaction",
        verb: "enqueue"
      })
      yield* store.refuseTransaction("settle")
      expect(yield* store.detached(Effect.succeed(1))).toBe(1)
      expect(yield* store.detached(enqueue())).toMatch(/^[1-9]\d*$/)
    })
  )
}
