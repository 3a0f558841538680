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

/** What a second settlement under one token hears, which may be the first one again after its answer was lost. */
export const replay = (it: It): void => {
  for (const first of tags) {
    for (const second of tags) {
      // The ledger does not tell a burial from a failure without budget: both say `dead`, which either wanted.
      const same = first === second || (first === "Bury" && second === "RetryLater")
      it.effect(
        `${second} after ${first} under one token is ${same ? "recorded already" : "refused"} and changes nothing`,
        () =>
          Effect.gen(function* () {
            const { hold, record, settle } = yield* scene
            const lease = yield* hold({ maxAttempts: Option.some(5) })
            yield* settle(lease, settlements[first])
            const settled = yield* record(lease.jobId)
            expect(yield* settle(lease, settlements[second])).toEqual(
              same ? { _tag: "Recorded", state: leadsTo[first] } : { _tag: "AlreadySettled" }
            )
            expect(yield* record(lease.jobId)).toEqual(settled)
          })
      )
    }
  }

  for (const tag of ["RetryLater", "Snooze", "Release"] as const) {
    it.effect(`a ${tag} whose answer was lost is recorded although another worker has the job since`, () =>
      Effect.gen(function* () {
        const { elapse, hold, record, settle, takeOne } = yield* scene
        const lease = yield* hold({ maxAttempts: Option.some(5) })
        yield* settle(lease, settlements[tag])
        yield* elapse(pastLease)
        const next = yield* takeOne({ worker: "worker-b" })
        const held = yield* record(lease.jobId)
        expect(yield* settle(lease, settlements[tag])).toEqual({ _tag: "Recorded", state: "pending" })
        expect(yield* settle(lease, settlements.Complete)).toEqual({ _tag: "AlreadySettled" })
        expect(yield* record(lease.jobId)).toEqual(held)
        yield* settle(next.lease, settlements.Complete)
        expect(yield* settle(lease, settlements[tag])).toEqual({ _tag: "Recorded", state: "pending" })
      })
    )
  }

  it.effect("a failure without budget whose answer was lost is recorded as dead", () =>
    Effect.gen(function* () {
      const { hold, settle, store } = yield* scene
      const lease = yield* hold({ maxAttempts: Option.some(1) })
      yield* settle(lease, settlements.RetryLater)
      expect(yield* settle(lease, settlements.RetryLater)).toEqual({ _tag: "Recorded", state: "dead" })
      yield* store.retry(lease.jobId)
      expect(yield* settle(lease, settlements.RetryLater)).toEqual({ _tag: "Recorded", state: "dead" })
      expect(yield* settle(lease, settlements.Complete)).toEqual({ _tag: "AlreadySettled" })
    })
  )

  it.effect("a settlement that became canceled and whose answer was lost is recorded as canceled", () =>
    Effect.gen(function* () {
      const { hold, record, settle, store } = yield* scene
      for (const tag of tags) {
        const lease = yield* hold()
        yield* store.cancel(lease.jobId)
        yield* settle(lease, settlements[tag])
        const settled = yield* record(lease.jobId)
        expect(yield* settle(lease, settlements[tag])).toEqual({ _tag: "Recorded", state: "canceled" })
        expect(yield* record(lease.jobId)).toEqual(settled)
      }
    })
  )

  it.effect("what became of a settlement is unknown once its job was cleaned away", () =>
    Effect.gen(function* () {
      const { elapse, hold, settle, store } = yield* scene
      const lease = yield* hold()
      yield* settle(lease, settlements.Complete)
      yield* elapse(pastLease)
      yield* store.clean({ succeeded: Duration.seconds(1) }, before(lease.jobId), 1)
      expect(yield* settle(lease, settlements.Complete)).toEqual({ _tag: "Unknown" })
    })
  )

  it.effect("what became of a settlement is unknown once the ledger has forgotten its attempt", () =>
    Effect.gen(function* () {
      const { hold, record, settle, takeOne } = yield* scene
      const lease = yield* hold()
      yield* settle(lease, settlements.Release)
      for (let turn = 0; turn < 50; turn++) {
        expect(yield* settle(lease, settlements.Release)).toEqual({ _tag: "Recorded", state: "pending" })
        yield* settle((yield* takeOne()).lease, settlements.Release)
      }
      const settled = yield* record(lease.jobId)
      expect(yield* settle(lease, settlements.Release)).toEqual({ _tag: "Unknown" })
      expect(yield* record(lease.jobId)).toEqual(settled)
    })
  )
}
