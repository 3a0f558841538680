import { expect } from "@effect/vitest"
import { Deferred, Duration, Effect, Exit, Fiber, Option } from "effect"
import { before, type It, only, pastLease, scene, settlements } from "../../support/Scene.js"

/** An effect that must not run. */
const mustNotRun = Effect.die("the effect ran although the lease was not held")

export const completeWith = (it: It): void => {
  it.effect("completeWith runs the effect, stores its output and answers its value", () =>
    Effect.gen(function* () {
      const { hold, record, store } = yield* scene
      const lease = yield* hold()
      const seen = Effect.map(record(lease.jobId), ({ state }) => ["[7]", state] as const)
      const during = yield* store.completeWith(lease, seen)
      expect(during).toBe("running")
      const job = yield* record(lease.jobId)
      expect(job).toMatchObject({
        state: "succeeded",
        token: lease.token,
        output: Option.some("[7]"),
        worker: Option.none(),
        dueAt: Option.none(),
        finishedAt: only(job.attempts).endedAt
      })
      expect(only(job.attempts).outcome).toEqual(Option.some("completed"))
    })
  )

  it.effect("an effect that fails passes its error on, and the lease is held as before", () =>
    Effect.gen(function* () {
      const { hold, record, settle, store } = yield* scene
      const lease = yield* hold()
      const held = yield* record(lease.jobId)
      expect(yield* Effect.flip(store.completeWith(lease, Effect.fail("no")))).toBe("no")
      expect(yield* record(lease.jobId)).toEqual(held)
      expect(yield* settle(lease, settlements.RetryLater)).toEqual({ _tag: "Recorded", state: "pending" })
    })
  )

  it.effect("an effect that dies, or is interrupted, leaves the lease held", () =>
    Effect.gen(function* () {
      const { hold, record, renew, store } = yield* scene
      const lease = yield* hold()
      const held = yield* record(lease.jobId)
      const died = yield* Effect.exit(store.completeWith(lease, Effect.die("defect")))
      expect(Exit.isFailure(died)).toBe(true)
      const started = yield* Deferred.make<void>()
      const fiber = yield* Effect.fork(
        store.completeWith(lease, Effect.zipRight(Deferred.succeed(started, undefined), Effect.never))
      )
      yield* Deferred.await(started)
      expect(Exit.isInterrupted(yield* Fiber.interrupt(fiber))).toBe(true)
      expect(yield* record(lease.jobId)).toEqual(held)
      expect((yield* renew(lease))._tag).toBe("Renewed")
    })
  )

  it.effect("completeWith under a token that was taken over is lost, and its effect leaves nothing of the job", () =>
    Effect.gen(function* () {
      const { elapse, hold, record, store, takeOne } = yield* scene
      const lease = yield* hold()
      yield* elapse(pastLease)
      yield* takeOne({ worker: "worker-b" })
      const held = yield* record(lease.jobId)
      const error = yield* Effect.flip(store.completeWith(lease, mustNotRun))
      expect(error).toMatchObject({ _tag: "LeaseLost", jobId: lease.jobId, token: lease.token, reason: "superseded" })
      expect(yield* record(lease.jobId)).toEqual(held)
    })
  )

  it.effect("completeWith of a job that is to be canceled is lost for that reason, and the holder can settle it", () =>
    Effect.gen(function* () {
      const { hold, record, settle, store } = yield* scene
      const lease = yield* hold()
      yield* store.cancel(lease.jobId)
      const error = yield* Effect.flip(store.completeWith(lease, mustNotRun))
      expect(error).toMatchObject({ _tag: "LeaseLost", reason: "canceled" })
      expect((yield* record(lease.jobId)).state).toBe("running")
      expect(yield* settle(lease, settlements.Cancel)).toEqual({ _tag: "Recorded", state: "canceled" })
    })
  )

  for (const tag of ["Complete", "RetryLater", "Bury", "Snooze", "Release"] as const) {
    it.effect(`completeWith after ${tag} is refused, since that settlement stands`, () =>
      Effect.gen(function* () {
        const { hold, record, settle, store } = yield* scene
        const lease = yield* hold()
        yield* settle(lease, settlements[tag])
        const settled = yield* record(lease.jobId)
        const error = yield* Effect.flip(store.completeWith(lease, mustNotRun))
        expect(error).toMatchObject({ _tag: "AlreadySettled", jobId: lease.jobId, token: lease.token })
        expect(yield* record(lease.jobId)).toEqual(settled)
      })
    )
  }

  it.effect("a second completeWith is refused, and a settlement as completed is recorded already", () =>
    Effect.gen(function* () {
      const { hold, record, settle, store } = yield* scene
      const lease = yield* hold()
      yield* store.completeWith(lease, Effect.succeed(["[1]", undefined]))
      expect((yield* Effect.flip(store.completeWith(lease, mustNotRun)))._tag).toBe("AlreadySettled")
      const replayed = yield* settle(lease, { _tag: "Complete", output: "[2]" })
      expect(replayed).toEqual({ _tag: "Recorded", state: "succeeded" })
      expect(yield* settle(lease, settlements.Bury)).toEqual({ _tag: "AlreadySettled" })
      expect((yield* record(lease.jobId)).output).toEqual(Option.some("[1]"))
    })
  )

  it.effect("completeWith of a job that was cleaned away is unknown", () =>
    Effect.gen(function* () {
      const { elapse, hold, settle, store } = yield* scene
      const lease = yield* hold()
      yield* settle(lease, settlements.Complete)
      yield* elapse(pastLease)
      yield* store.clean({ succeeded: Duration.seconds(1) }, before(lease.jobId), 1)
      const error = yield* Effect.flip(store.completeWith(lease, mustNotRun))
      expect(error).toMatchObject({ _tag: "OutcomeUnknown", jobId: lease.jobId })
    })
  )

  it.effect("while the effect runs nobody takes, renews, settles or ends the job, and other jobs are not held up", () =>
    Effect.gen(function* () {
      const { elapse, enqueueMany, expectNothingDue, record, store, take } = yield* scene
      yield* enqueueMany(2, { maxAttempts: Option.some(1) })
      const { jobs } = yield* take(2)
      const [locked, other] = jobs.map(({ lease }) => lease)
      if (!locked || !other) throw new Error("two jobs were taken")
      yield* elapse(pastLease)
      yield* store.renew([other], Duration.hours(1))
      const started = yield* Deferred.make<void>()
      const finish = yield* Deferred.make<void>()
      const fiber = yield* Effect.fork(
        store.completeWith(
          locked,
          Deferred.succeed(started, undefined).pipe(
            Effect.zipRight(Deferred.await(finish)),
            Effect.as(["[1]", "value"] as const)
          )
        )
      )
      yield* Deferred.await(started)
      yield* expectNothingDue()
      expect((yield* store.reap(before(locked.jobId), 1)).ended).toEqual([])
      expect(yield* store.renew([locked, other], Duration.hours(1))).toEqual([
        { _tag: "Busy" },
        { _tag: "Renewed", cancelRequested: false }
      ])
      expect(
        yield* store.settle([
          [other, settlements.Snooze],
          [locked, settlements.Bury]
        ])
      ).toEqual([{ _tag: "Recorded", state: "pending" }, { _tag: "Busy" }])
      yield* Deferred.succeed(finish, undefined)
      expect(yield* Fiber.join(fiber)).toBe("value")
      expect(yield* record(locked.jobId)).toMatchObject({ state: "succeeded", token: locked.token })
    })
  )

  it.effect("a cancel that comes while the effect runs waits, and finds the job succeeded", () =>
    Effect.gen(function* () {
      const { hold, record, store } = yield* scene
      const lease = yield* hold()
      const started = yield* Deferred.make<void>()
      const finish = yield* Deferred.make<void>()
      const holder = yield* Effect.fork(
        store.completeWith(
          lease,
          Deferred.succeed(started, undefined).pipe(
            Effect.zipRight(Deferred.await(finish)),
            Effect.as([null, undefined] as const)
          )
        )
      )
      yield* Deferred.await(started)
      const canceler = yield* Effect.fork(store.cancel(lease.jobId))
      yield* Effect.yieldNow()
      expect(yield* record(lease.jobId)).toMatchObject({ state: "running", cancelRequested: false })
      yield* Deferred.succeed(finish, undefined)
      yield* Fiber.join(holder)
      expect(yield* Fiber.join(canceler)).toEqual({ _tag: "ended", state: "succeeded" })
    })
  )

  it.effect("an expired lease that nobody took over still completes with its effect", () =>
    Effect.gen(function* () {
      const { elapse, hold, record, store } = yield* scene
      const lease = yield* hold()
      yield* elapse(pastLease)
      yield* store.completeWith(lease, Effect.succeed([null, undefined]))
      expect((yield* record(lease.jobId)).state).toBe("succeeded")
    })
  )
}
