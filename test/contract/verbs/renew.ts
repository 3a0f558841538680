import { expect } from "@effect/vitest"
import { Duration, Effect, Option } from "effect"
import { before, type It, leaseLength, only, pastLease, scene, settlements } from "../../support/Scene.js"

export const renew = (it: It): void => {
  it.effect("a renewal keeps the job from others for another lease, and changes nothing else", () =>
    Effect.gen(function* () {
      const { elapse, expectNothingDue, hold, record, renew, takeOne } = yield* scene
      const lease = yield* hold()
      const { dueAt: _, ...held } = yield* record(lease.jobId)
      expect(yield* renew(lease)).toEqual({ _tag: "Renewed", cancelRequested: false })
      const { dueAt: __, ...renewed } = yield* record(lease.jobId)
      expect(renewed).toEqual(held)
      for (let turn = 0; turn < 3; turn++) {
        yield* elapse("50 seconds")
        yield* expectNothingDue()
        expect(yield* renew(lease)).toEqual({ _tag: "Renewed", cancelRequested: false })
      }
      yield* elapse("50 seconds")
      yield* expectNothingDue()
      yield* elapse("11 seconds")
      expect((yield* takeOne()).lease.jobId).toBe(lease.jobId)
    })
  )

  it.effect("a lease is renewed for as long as the renewal says", () =>
    Effect.gen(function* () {
      const { elapse, expectNothingDue, hold, store, takeOne } = yield* scene
      const lease = yield* hold()
      expect(yield* store.renew([lease], Duration.minutes(10))).toEqual([{ _tag: "Renewed", cancelRequested: false }])
      yield* elapse("9 minutes")
      yield* expectNothingDue()
      yield* elapse("61 seconds")
      expect((yield* takeOne()).lease.jobId).toBe(lease.jobId)
    })
  )

  it.effect("two renewals within one instant are both renewed", () =>
    Effect.gen(function* () {
      const { hold, store } = yield* scene
      const lease = yield* hold()
      const both = yield* Effect.all([store.renew([lease], leaseLength), store.renew([lease], leaseLength)])
      expect(both.flat()).toEqual([
        { _tag: "Renewed", cancelRequested: false },
        { _tag: "Renewed", cancelRequested: false }
      ])
    })
  )

  it.effect("a renewal of no leases answers none", () =>
    Effect.gen(function* () {
      const { store } = yield* scene
      expect(yield* store.renew([], leaseLength)).toEqual([])
    })
  )

  it.effect("an expired lease that nobody took over is renewed", () =>
    Effect.gen(function* () {
      const { elapse, expectNothingDue, hold, renew } = yield* scene
      const lease = yield* hold()
      yield* elapse(pastLease)
      expect(yield* renew(lease)).toEqual({ _tag: "Renewed", cancelRequested: false })
      yield* expectNothingDue()
    })
  )

  it.effect("a lease that was taken over is lost, and its renewal changes nothing", () =>
    Effect.gen(function* () {
      const { elapse, hold, record, renew, takeOne } = yield* scene
      const lease = yield* hold()
      yield* elapse(pastLease)
      yield* takeOne({ worker: "worker-b" })
      const held = yield* record(lease.jobId)
      expect(yield* renew(lease)).toEqual({ _tag: "Lost", reason: "superseded" })
      expect(yield* record(lease.jobId)).toEqual(held)
    })
  )

  it.effect("a renewal of a job that is to be canceled extends its lease and says so", () =>
    Effect.gen(function* () {
      const { elapse, expectNothingDue, hold, record, renew, store } = yield* scene
      const lease = yield* hold()
      yield* store.cancel(lease.jobId)
      yield* elapse("50 seconds")
      expect(yield* renew(lease)).toEqual({ _tag: "Renewed", cancelRequested: true })
      yield* elapse("50 seconds")
      yield* expectNothingDue()
      expect(yield* renew(lease)).toEqual({ _tag: "Renewed", cancelRequested: true })
      expect(yield* record(lease.jobId)).toMatchObject({ state: "running", token: lease.token, cancelRequested: true })
    })
  )

  for (const tag of ["Complete", "RetryLater", "Bury", "Snooze", "Release"] as const) {
    it.effect(`a lease is lost once its job was settled by ${tag}`, () =>
      Effect.gen(function* () {
        const { hold, record, renew, settle } = yield* scene
        const lease = yield* hold()
        yield* settle(lease, settlements[tag])
        const settled = yield* record(lease.jobId)
        expect(yield* renew(lease)).toEqual({ _tag: "Lost", reason: "superseded" })
        expect(yield* record(lease.jobId)).toEqual(settled)
      })
    )
  }

  it.effect("a lease on a job that was canceled in the end is lost for that reason", () =>
    Effect.gen(function* () {
      const { elapse, hold, renew, settle, store, take } = yield* scene
      const settled = yield* hold()
      yield* store.cancel(settled.jobId)
      yield* settle(settled, settlements.Complete)
      expect(yield* renew(settled)).toEqual({ _tag: "Lost", reason: "canceled" })
      const vanished = yield* hold()
      yield* store.cancel(vanished.jobId)
      yield* elapse(pastLease)
      expect((yield* take(1)).ended).toHaveLength(1)
      expect(yield* renew(vanished)).toEqual({ _tag: "Lost", reason: "canceled" })
    })
  )

  it.effect("a lease is lost when its job was reaped, also after an operator's retry", () =>
    Effect.gen(function* () {
      const { elapse, hold, record, renew, store } = yield* scene
      const lease = yield* hold({ maxAttempts: Option.some(1) })
      yield* elapse(pastLease)
      yield* store.reap(before(lease.jobId), 1)
      expect((yield* renew(lease))._tag).toBe("Lost")
      yield* store.retry(lease.jobId)
      const retried = yield* record(lease.jobId)
      expect(yield* renew(lease)).toEqual({ _tag: "Lost", reason: "superseded" })
      expect(yield* record(lease.jobId)).toEqual(retried)
    })
  )

  it.effect("a lease on a job that was cleaned away is lost", () =>
    Effect.gen(function* () {
      const { elapse, hold, renew, settle, store } = yield* scene
      const lease = yield* hold()
      yield* settle(lease, settlements.Complete)
      yield* elapse(pastLease)
      yield* store.clean({ succeeded: Duration.seconds(1) }, before(lease.jobId), 1)
      expect((yield* renew(lease))._tag).toBe("Lost")
    })
  )

  it.effect("renewals are answered in the order of the leases, and a lost one hinders no other", () =>
    Effect.gen(function* () {
      const { elapse, enqueueMany, expectNothingDue, record, renew, settle, store, take } = yield* scene
      yield* enqueueMany(4)
      const { jobs } = yield* take(4)
      const [first, second, third, fourth] = jobs.map(({ lease }) => lease)
      if (!first || !second || !third || !fourth) throw new Error("four jobs were taken")
      yield* settle(second, settlements.Complete)
      yield* store.cancel(third.jobId)
      yield* elapse("50 seconds")
      const stale = { ...first, token: first.token - 1 }
      expect(yield* store.renew([fourth, third, second, stale, first], leaseLength)).toEqual([
        { _tag: "Renewed", cancelRequested: false },
        { _tag: "Renewed", cancelRequested: true },
        { _tag: "Lost", reason: "superseded" },
        { _tag: "Lost", reason: "superseded" },
        { _tag: "Renewed", cancelRequested: false }
      ])
      yield* elapse("50 seconds")
      yield* expectNothingDue()
      expect((yield* record(second.jobId)).state).toBe("succeeded")
      expect(only([yield* renew(first)])._tag).toBe("Renewed")
    })
  )
}
