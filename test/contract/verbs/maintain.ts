import { expect } from "@effect/vitest"
import { Duration, Effect, Option } from "effect"
import { before, type It, only, pastLease, scene, settlements } from "../../support/Scene.js"

export const maintain = (it: It): void => {
  it.effect("a reap ends expired jobs that no claim may take over, and leaves all others as they are", () =>
    Effect.gen(function* () {
      const { elapse, enqueue, hold, queue, record, renew, settle, store, takeOne, walk } = yield* scene
      const exhausted = yield* hold({ maxAttempts: Option.some(1) })
      const canceled = yield* hold({ maxAttempts: Option.some(2) })
      yield* store.cancel(canceled.jobId)
      const both = yield* hold({ maxAttempts: Option.some(1) })
      yield* store.cancel(both.jobId)
      const takeable = yield* hold({ maxAttempts: Option.some(2) })
      const unlimited = yield* hold({ maxAttempts: Option.none() })
      const ended = yield* hold({ maxAttempts: Option.some(1) })
      yield* settle(ended, settlements.RetryLater)
      yield* elapse(pastLease)
      const held = yield* hold({ maxAttempts: Option.some(1), priority: 0 }, { limit: 1 })
      yield* renew(held)
      const pending = yield* enqueue()
      const others = [takeable.jobId, unlimited.jobId, ended.jobId, held.jobId, pending]
      const untouched = yield* Effect.forEach(others, record)

      const steps = yield* walk(exhausted.jobId, (after) => store.reap(after, 2))
      const mine = steps.flatMap((step) => step.ended).filter((job) => job.queue === queue)
      expect(mine).toEqual([
        { id: exhausted.jobId, queue, type: "count", state: "dead" },
        { id: canceled.jobId, queue, type: "count", state: "canceled" },
        { id: both.jobId, queue, type: "count", state: "canceled" }
      ])
      expect(yield* Effect.forEach(others, record)).toEqual(untouched)

      const dead = yield* record(exhausted.jobId)
      expect(dead).toMatchObject({
        state: "dead",
        errorCode: Option.some("lease_expired"),
        worker: Option.none(),
        dueAt: Option.none()
      })
      expect(dead.token).toBeGreaterThan(exhausted.token)
      expect(Option.getOrElse(dead.errorMessage, () => "")).toMatch(/vanished/)
      expect(only(dead.attempts).outcome).toEqual(Option.some("reaped"))
      expect(only(dead.attempts).endedAt).toEqual(dead.finishedAt)
      const stopped = yield* record(canceled.jobId)
      expect(stopped).toMatchObject({ state: "canceled", worker: Option.none(), dueAt: Option.none() })
      expect(stopped.token).toBeGreaterThan(canceled.token)
      expect(only(stopped.attempts).outcome).toEqual(Option.some("reaped"))

      const again = yield* walk(exhausted.jobId, (after) => store.reap(after, 100))
      expect(again.flatMap((step) => step.ended).filter((job) => job.queue === queue)).toEqual([])
      expect((yield* takeOne({ limit: 1 })).lease.jobId).toBe(takeable.jobId)
    })
  )

  it.effect("a walk looks at no more jobs than its limit, and goes on from where it was", () =>
    Effect.gen(function* () {
      const { elapse, enqueueMany, store, take } = yield* scene
      const ids = yield* enqueueMany(4, { maxAttempts: Option.some(1) })
      yield* take(4)
      yield* elapse(pastLease)
      const [first, second, third, fourth] = ids
      if (!first || !second || !third || !fourth) throw new Error("four jobs were enqueued")
      const one = yield* store.reap(before(first), 1)
      expect(one.ended.map(({ id }) => id)).toEqual([first])
      expect(one.next).toEqual(Option.some(first))
      const two = yield* store.reap(first, 2)
      expect(two.ended.map(({ id }) => id)).toEqual([second, third])
      expect(two.next).toEqual(Option.some(third))
      const rest = yield* store.reap(third, 100)
      expect(rest.ended.map(({ id }) => id)).toContain(fourth)
      expect(yield* store.reap("18446744073709551615", 10)).toEqual({ ended: [], next: Option.none() })
    })
  )

  it.effect("a clean deletes ended jobs that are older than their state's retention, and nothing else", () =>
    Effect.gen(function* () {
      const { elapse, enqueue, hold, renew, settle, store, walk } = yield* scene
      const old = {
        succeeded: yield* hold(),
        dead: yield* hold(),
        canceled: yield* hold()
      }
      yield* settle(old.succeeded, settlements.Complete)
      yield* settle(old.dead, settlements.Bury)
      yield* store.cancel(old.canceled.jobId)
      yield* settle(old.canceled, settlements.Complete)
      const running = yield* hold()
      const waiting = yield* enqueue({ due: Option.some({ after: Duration.days(2_000) }) })
      yield* elapse("1000 days")
      yield* renew(running)
      const young = yield* hold()
      yield* settle(young, settlements.Complete)
      yield* store.recordRefusals([{ lease: old.succeeded, verb: "renew" }])
      const exists = (id: typeof waiting) => Effect.map(store.get(id), Option.isSome)
      const clean = (retention: Parameters<typeof store.clean>[0]) =>
        Effect.map(
          walk(old.succeeded.jobId, (after) => store.clean(retention, after, 2)),
          (steps) => steps.reduce((sum, { cleaned }) => sum + cleaned, 0)
        )

      expect(yield* clean({})).toBe(0)
      expect(yield* clean({ succeeded: Duration.days(1001), dead: Duration.days(1001) })).toBe(0)
      expect(yield* clean({ succeeded: Duration.days(999), canceled: Duration.days(1001) })).toBe(1)
      expect(yield* exists(old.succeeded.jobId)).toBe(false)
      expect(yield* store.refusals(old.succeeded.jobId)).toEqual([])
      // One that comes later than that would be kept for ever.
      yield* store.recordRefusals([{ lease: old.succeeded, verb: "renew" }])
      expect(yield* store.refusals(old.succeeded.jobId)).toEqual([])
      expect(yield* exists(old.dead.jobId)).toBe(true)
      expect(yield* exists(old.canceled.jobId)).toBe(true)
      expect(yield* clean({ canceled: Duration.days(999) })).toBe(1)
      expect(yield* exists(old.canceled.jobId)).toBe(false)
      expect(yield* clean({ dead: Duration.days(999), succeeded: Duration.days(999) })).toBe(1)
      expect(yield* exists(old.dead.jobId)).toBe(false)
      for (const id of [running.jobId, waiting, young.jobId]) expect(yield* exists(id)).toBe(true)
    })
  )

  it.effect("a clean looks at no more jobs than its limit", () =>
    Effect.gen(function* () {
      const { elapse, enqueueMany, store } = yield* scene
      const ids = yield* enqueueMany(3)
      yield* Effect.forEach(ids, store.cancel)
      yield* elapse("1000 days")
      const [first, second] = ids
      if (!first || !second) throw new Error("three jobs were enqueued")
      const retention = { canceled: Duration.days(999) }
      expect(yield* store.clean(retention, before(first), 2)).toEqual({ cleaned: 2, next: Option.some(second) })
      expect((yield* store.clean(retention, second, 1)).cleaned).toBe(1)
    })
  )

  it.effect("the id of a job that was cleaned away is never given again", () =>
    Effect.gen(function* () {
      const { elapse, enqueue, store } = yield* scene
      const id = yield* enqueue()
      yield* store.cancel(id)
      yield* elapse("1000 days")
      yield* store.clean({ canceled: Duration.days(999) }, before(id), 1)
      expect(BigInt(yield* enqueue())).toBeGreaterThan(BigInt(id))
    })
  )
}
