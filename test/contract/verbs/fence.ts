import { expect } from "@effect/vitest"
import { Duration, Effect, Option } from "effect"
import type { JobState } from "../../../src/JobRecord.js"
import { before, type It, pastLease, scene, settlements } from "../../support/Scene.js"

const tags = ["Complete", "RetryLater", "Bury", "Snooze", "Release"] as const

/** Where each settlement leads while something is left of the budget and nobody asked for a cancel. */
const leadsTo: { readonly [Tag in (typeof tags)[number]]: JobState } = {
  Complete: "succeeded",
  RetryLater: "pending",
  Bury: "dead",
  Snooze: "pending",
  Release: "pending"
}

/** Which leases may settle, and what those hear that may not. */
export const fence = (it: It): void => {
  it.effect("an expired lease that nobody took over still settles its job", () =>
    Effect.gen(function* () {
      const { elapse, hold, record, settle, store } = yield* scene
      for (const tag of tags) {
        const lease = yield* hold({ maxAttempts: Option.some(2) })
        yield* elapse(pastLease)
        expect(yield* settle(lease, settlements[tag])).toEqual({ _tag: "Recorded", state: leadsTo[tag] })
        expect((yield* record(lease.jobId)).state).toBe(leadsTo[tag])
        // Else the next turn could claim it.
        yield* store.cancel(lease.jobId)
      }
    })
  )

  for (const tag of [...tags, "Cancel"] as const) {
    it.effect(`${tag} under a token that was taken over is lost and changes nothing`, () =>
      Effect.gen(function* () {
        const { elapse, hold, record, settle, takeOne } = yield* scene
        const lease = yield* hold()
        yield* elapse(pastLease)
        const taker = yield* takeOne({ worker: "worker-b" })
        const held = yield* record(lease.jobId)
        expect(yield* settle(lease, settlements[tag])).toEqual({ _tag: "Lost", reason: "superseded" })
        expect(yield* record(lease.jobId)).toEqual(held)
        expect(yield* settle(taker.lease, settlements.Complete)).toEqual({ _tag: "Recorded", state: "succeeded" })
        expect(yield* settle(lease, settlements[tag])).toEqual({ _tag: "Lost", reason: "superseded" })
      })
    )
  }

  it.effect(
    "a lease of another worker is none, though its token is the same: a database that lost commits gives it out twice",
    () =>
      Effect.gen(function* () {
        const { hold, record, settle, store } = yield* scene
        const lease = yield* hold()
        const stale = { ...lease, worker: "worker-of-a-lost-history" }
        const held = yield* record(lease.jobId)
        for (const tag of tags) {
          expect(yield* settle(stale, settlements[tag])).toEqual({ _tag: "Lost", reason: "superseded" })
        }
        expect(yield* store.renew([stale], Duration.minutes(5))).toEqual([{ _tag: "Lost", reason: "superseded" }])
        const effect = Effect.die("The effect of a stale lease ran")
        expect(yield* Effect.flip(store.completeWith(stale, effect))).toMatchObject({ _tag: "LeaseLost" })
        expect(yield* record(lease.jobId)).toEqual(held)
        expect(yield* settle(lease, settlements.Complete)).toEqual({ _tag: "Recorded", state: "succeeded" })
        expect(yield* settle(stale, settlements.Complete)).toEqual({ _tag: "Lost", reason: "superseded" })
      })
  )

  it.effect("a settlement after the reaper ended the job is lost, not recorded, also after an operator's retry", () =>
    Effect.gen(function* () {
      const { elapse, hold, record, settle, store, takeOne } = yield* scene
      const lease = yield* hold({ maxAttempts: Option.some(1) })
      yield* elapse(pastLease)
      yield* store.reap(before(lease.jobId), 1)
      for (const tag of tags) {
        expect(yield* settle(lease, settlements[tag])).toEqual({ _tag: "Lost", reason: "superseded" })
      }
      yield* store.retry(lease.jobId)
      expect(yield* settle(lease, settlements.Complete)).toEqual({ _tag: "Lost", reason: "superseded" })
      const next = yield* takeOne()
      expect(yield* settle(lease, settlements.Bury)).toEqual({ _tag: "Lost", reason: "superseded" })
      expect(yield* record(lease.jobId)).toMatchObject({ state: "running", token: next.lease.token })
    })
  )

  it.effect("a settlement after a cancel that found its holder gone is lost for that reason", () =>
    Effect.gen(function* () {
      const { elapse, hold, settle, store, take } = yield* scene
      const lease = yield* hold()
      yield* store.cancel(lease.jobId)
      yield* elapse(pastLease)
      expect((yield* take(1)).ended).toHaveLength(1)
      for (const tag of tags) {
        expect(yield* settle(lease, settlements[tag])).toEqual({ _tag: "Lost", reason: "canceled" })
      }
    })
  )

  it.effect("the worker's name alone does not open the fence", () =>
    Effect.gen(function* () {
      const { elapse, hold, settle, takeOne } = yield* scene
      const lost = yield* hold()
      yield* elapse(pastLease)
      // The same worker claims its own job again: its first lease stays lost.
      const held = yield* takeOne()
      expect(held.lease.worker).toBe(lost.worker)
      expect(yield* settle(lost, settlements.Complete)).toEqual({ _tag: "Lost", reason: "superseded" })
      expect(yield* settle(held.lease, settlements.Complete)).toEqual({ _tag: "Recorded", state: "succeeded" })
    })
  )

  it.effect("of two different settlements at once one is recorded, and the other is told so", () =>
    Effect.gen(function* () {
      const { hold, record, settle } = yield* scene
      for (let turn = 0; turn < 5; turn++) {
        const lease = yield* hold()
        const verdicts = yield* Effect.all([settle(lease, settlements.Complete), settle(lease, settlements.Bury)], {
          concurrency: "unbounded"
        })
        const [complete, bury] = verdicts.map(({ _tag }) => _tag)
        // A store may answer Busy to the one that met the other's lock: nothing was written then.
        expect([complete, bury].filter((tag) => tag === "Recorded")).toHaveLength(1)
        expect((yield* record(lease.jobId)).state).toBe(complete === "Recorded" ? "succeeded" : "dead")
      }
    })
  )
}
