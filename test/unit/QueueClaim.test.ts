import { describe, expect, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Option, Schema, TestClock } from "effect"
import * as Job from "../../src/Job.js"
import { Permanent, Retryable } from "../../src/JobFailure.js"
import { JobStore } from "../../src/JobStore.js"
import * as Queue from "../../src/Queue.js"
import { InTransaction, StoreUnavailable } from "../../src/QueueError.js"
import * as RetryPolicy from "../../src/RetryPolicy.js"
import { services } from "../support/Services.js"

const Task = Job.make("task", {
  payload: { n: Schema.Number },
  success: Schema.Number,
  retry: RetryPolicy.fixed({ delay: "10 seconds", maxAttempts: 3, jitter: 0 })
})

const enqueued = Effect.map(Queue.enqueue(Task, { n: 21 }), ({ id }) => id)

/** The state, error code and attempts of a job. */
const standing = (id: string) =>
  Effect.map(Queue.get(id), ({ attempts, attemptsLeft, errorCode, state }) => ({
    state,
    code: Option.getOrUndefined(errorCode),
    attempts: attempts.map(({ outcome }) => Option.getOrUndefined(outcome)),
    left: Option.getOrUndefined(attemptsLeft)
  }))

describe("a lease that is held by hand", () => {
  it.effect("carries the payload, the token and the budget, and is renewed for as long as its scope is open", () =>
    Effect.gen(function* () {
      const id = yield* enqueued
      yield* Effect.scoped(
        Effect.gen(function* () {
          const lease = yield* Queue.claim(Task, { lease: "3 seconds" })
          expect(lease).toMatchObject({ jobId: id, token: 1, attempt: 1, payload: { n: 21 }, jobType: "task" })
          expect(lease.attemptsLeft).toEqual(Option.some(2))
          yield* TestClock.adjust("30 seconds")
          expect(Option.isNone(yield* Effect.scoped(Queue.claimOption(Task)))).toBe(true)
          yield* lease.complete(lease.payload.n * 2)
        })
      )
      expect(yield* Queue.result(Task, id)).toBe(42)
    }).pipe(Effect.provide(services()))
  )

  it.effect("settles by complete, fail, snooze and release", () =>
    Effect.gen(function* () {
      const settle = <A, E>(verb: (lease: Effect.Effect.Success<ReturnType<typeof claim>>) => Effect.Effect<A, E>) =>
        Effect.gen(function* () {
          const id = yield* enqueued
          yield* Effect.scoped(Effect.flatMap(claim(), verb))
          return yield* standing(id)
        }).pipe(Effect.provide(services()))
      const claim = () => Queue.claim(Task)
      const retryable = new Retryable({ code: "a", message: "b" })
      expect(yield* settle((lease) => lease.complete(1))).toMatchObject({ state: "succeeded", attempts: ["completed"] })
      expect(yield* settle((lease) => lease.fail(retryable))).toEqual({
        state: "pending",
        code: "a",
        attempts: ["retry"],
        left: 2
      })
      expect(yield* settle((lease) => lease.fail(new Permanent({ code: "p", message: "b" })))).toEqual({
        state: "dead",
        code: "p",
        attempts: ["dead"],
        left: 2
      })
      expect(yield* settle((lease) => lease.snooze("1 hour"))).toMatchObject({
        state: "pending",
        attempts: ["snoozed"],
        left: 3
      })
      expect(yield* settle((lease) => lease.release)).toMatchObject({
        state: "pending",
        attempts: ["released"],
        left: 3
      })
      expect(yield* settle((lease) => lease.completeWith(Effect.succeed(1)))).toMatchObject({ state: "succeeded" })
    })
  )

  it.effect("settles once: a second settlement is AlreadySettled", () =>
    Effect.gen(function* () {
      const id = yield* enqueued
      yield* Effect.scoped(
        Effect.gen(function* () {
          const lease = yield* Queue.claim(Task, { onClose: "release" })
          const exits = yield* Effect.all([lease.complete(1), lease.complete(2), lease.release].map(Effect.either), {
            concurrency: "unbounded"
          })
          expect(exits.map((exit) => (exit._tag === "Left" ? exit.left._tag : "settled"))).toEqual([
            "settled",
            "AlreadySettled",
            "AlreadySettled"
          ])
        })
      )
      expect(yield* Queue.result(Task, id)).toBe(1)
    }).pipe(Effect.provide(services()))
  )

  it.effect("can still be settled after a settlement that was refused before any SQL", () =>
    Effect.gen(function* () {
      const id = yield* enqueued
      yield* Effect.scoped(
        Effect.gen(function* () {
          const lease = yield* Queue.claim(Task)
          expect((yield* Effect.flip(lease.complete(Number.NaN)))._tag).toBe("PayloadInvalid")
          expect(yield* Effect.flip(lease.completeWith(Effect.fail("no")))).toBe("no")
          expect((yield* Effect.flip(lease.completeWith(Effect.succeed(Number.NaN))))._tag).toBe("PayloadInvalid")
          yield* lease.complete(3)
        })
      )
      expect(yield* Queue.result(Task, id)).toBe(3)
    }).pipe(Effect.provide(services()))
  )

  it.effect(
    "lapses by itself when its scope closes without a settlement, or is given back where that was asked for",
    () =>
      Effect.gen(function* () {
        const id = yield* enqueued
        yield* Effect.scoped(Queue.claim(Task, { lease: "3 seconds" }))
        expect((yield* standing(id)).state).toBe("running")
        yield* TestClock.adjust("4 seconds")
        yield* Effect.scoped(Queue.claim(Task, { onClose: "release" }))
        expect(yield* standing(id)).toMatchObject({ state: "pending", attempts: ["expired", "released"], left: 2 })
      }).pipe(Effect.provide(services()))
  )

  it.effect("that another has taken fails with LeaseLost in each verb, and lost fails", () =>
    Effect.gen(function* () {
      const id = yield* enqueued
      yield* Effect.scoped(
        Effect.gen(function* () {
          const lease = yield* Queue.claim(Task, { lease: "3 seconds" })
          const racing = yield* Effect.fork(Effect.raceFirst(Effect.never, lease.lost))
          yield* TestClock.adjust("1 second")
          expect(yield* Fiber.await(racing)).toMatchObject({
            cause: { error: { _tag: "LeaseLost", reason: "superseded" } }
          })
          const verbs: ReadonlyArray<Effect.Effect<unknown, { readonly _tag: string }>> = [
            lease.renew,
            lease.complete(1),
            lease.completeWith(Effect.succeed(1)),
            lease.fail(new Retryable({ code: "a", message: "b" })),
            lease.snooze("1 second"),
            lease.release
          ]
          for (const verb of verbs) expect((yield* Effect.flip(verb))._tag).toBe("LeaseLost")
        })
      )
      expect((yield* standing(id)).state).toBe("running")
    }).pipe(
      Effect.provide(
        services(() => ({
          renew: (leases) => Effect.succeed(leases.map(() => ({ _tag: "Lost", reason: "superseded" })))
        }))
      )
    )
  )

  it.effect("whose job is canceled fails lost, and the job ends canceled however the holder settles or leaves", () =>
    Effect.gen(function* () {
      for (const leave of ["settle", "close"]) {
        const id = yield* enqueued
        yield* Effect.scoped(
          Effect.gen(function* () {
            const lease = yield* Queue.claim(Task, { lease: "3 seconds" })
            yield* Queue.cancel(id)
            yield* TestClock.adjust("1 second")
            expect(yield* Effect.flip(lease.lost)).toMatchObject({ reason: "canceled" })
            if (leave === "settle") expect(yield* Effect.flip(lease.complete(1))).toMatchObject({ reason: "canceled" })
          })
        )
        expect((yield* standing(id)).state).toBe("canceled")
      }
    }).pipe(Effect.provide(services()))
  )

  it.effect("is settled through faults that pass, for as long as it is trusted", () =>
    Effect.gen(function* () {
      let away = 5
      const down = new StoreUnavailable({ verb: "settle", reason: "connection", code: "x" })
      const live = services((store) => ({
        settle: (settlements) => Effect.suspend(() => (away-- > 0 ? Effect.fail(down) : store.settle(settlements)))
      }))
      yield* Effect.gen(function* () {
        const id = yield* enqueued
        const settling = yield* Effect.fork(
          Effect.scoped(Effect.flatMap(Queue.claim(Task), (lease) => lease.complete(1)))
        )
        yield* TestClock.adjust("2 seconds")
        expect(Exit.isSuccess(yield* Fiber.await(settling))).toBe(true)
        expect((yield* standing(id)).state).toBe("succeeded")
      }).pipe(Effect.provide(live))
    })
  )

  it.effect("ends the scope in time though the database does not answer", () =>
    Effect.gen(function* () {
      const live = services(() => ({ settle: () => Effect.uninterruptible(Effect.never) }))
      yield* Effect.gen(function* () {
        yield* enqueued
        const holding = yield* Effect.fork(Effect.scoped(Queue.claim(Task, { onClose: "release" })))
        yield* TestClock.adjust("6 seconds")
        expect(Option.isSome(yield* Fiber.poll(holding))).toBe(true)
      }).pipe(Effect.provide(live))
    })
  )
})

describe("a claim by hand", () => {
  it.effect("answers none, or fails with NothingDue, where no job of the type is due", () =>
    Effect.gen(function* () {
      yield* Queue.enqueue(Task, { n: 1 }, { delay: "1 hour" })
      expect(yield* Queue.claimOption(Task)).toEqual(Option.none())
      expect(yield* Effect.flip(Queue.claim(Task))).toMatchObject({ _tag: "NothingDue", jobType: "task" })
    }).pipe(Effect.scoped, Effect.provide(services()))
  )

  it.effect("ends a job whose payload does not decode, and takes the next", () =>
    Effect.gen(function* () {
      const store = yield* JobStore
      const good = yield* Queue.request(Task, { n: 1 })
      const [bad] = yield* store.enqueue([{ ...good, payload: '{"n":"x"}' }, good])
      const lease = yield* Queue.claim(Task)
      expect(lease.payload).toEqual({ n: 1 })
      expect(yield* standing(bad?.id ?? "")).toMatchObject({ state: "dead", code: "payload_invalid" })
    }).pipe(Effect.scoped, Effect.provide(services()))
  )

  it.effect("is refused with options out of range and in an open transaction", () =>
    Effect.gen(function* () {
      yield* enqueued
      expect(yield* Effect.flip(Queue.claim(Task, { lease: 0 }))).toMatchObject({
        _tag: "InvalidOption",
        option: "lease"
      })
      expect(yield* Effect.flip(Queue.claim(Task, { onClose: "keep" as "expire" }))).toMatchObject({
        option: "onClose"
      })
      const inTransaction = services(() => ({ refuseTransaction: (verb) => Effect.fail(new InTransaction({ verb })) }))
      expect((yield* Effect.flip(Queue.claim(Task)).pipe(Effect.provide(inTransaction)))._tag).toBe("InTransaction")
    }).pipe(Effect.scoped, Effect.provide(services()))
  )
})
