import { describe, expect, it } from "@effect/vitest"
import { Context, Deferred, Effect, Layer, Ref, Schema } from "effect"
import * as Job from "../../../src/Job.js"
import { Retryable } from "../../../src/JobFailure.js"
import * as Queue from "../../../src/Queue.js"
import * as RetryPolicy from "../../../src/RetryPolicy.js"
import { MemoryQueue, Rehearsal, TestQueue } from "../../../src/testing/index.js"

const Charge = Job.make("charge", {
  payload: { orderId: Schema.String },
  success: Schema.Number,
  retry: RetryPolicy.fixed({ delay: "1 minute", maxAttempts: 5, jitter: 0 })
})
const Mail = Job.make("mail", { payload: { orderId: Schema.String }, idempotencyKey: ({ orderId }) => orderId })

/** Another system: it books what it is told, and may look at what it has booked. */
class Bank extends Context.Tag("test/Bank")<Bank, { readonly charges: Ref.Ref<ReadonlyArray<string>> }>() {}

const bank = Layer.effect(Bank, Effect.all({ charges: Ref.make<ReadonlyArray<string>>([]) }))
const charges = Effect.flatMap(Bank, ({ charges }) => Ref.get(charges))
const book = (orderId: string) => Effect.flatMap(Bank, ({ charges }) => Ref.update(charges, (all) => [...all, orderId]))
const bookOnce = (orderId: string) =>
  Effect.flatMap(Bank, ({ charges }) => Ref.update(charges, (all) => (all.includes(orderId) ? all : [...all, orderId])))

type Handler = Job.Handler<{ readonly orderId: string }, number, never, Bank | Queue.Queue>

const rehearsalOf = (handler: Handler) => ({ world: bank, handler: Charge.toLayer(handler), observe: charges }) as const
const order = { orderId: "a" }

describe("a rehearsal of completeWith", () => {
  const completing =
    (write: (orderId: string) => Effect.Effect<void, never, Bank>): Handler =>
    ({ orderId }, lease) =>
      write(orderId).pipe(
        Effect.zipRight(Effect.sleep("1 second")),
        Effect.as(1),
        (effect) => lease.completeWith(effect),
        Effect.catchIf((error) => error._tag !== "LeaseLost", Effect.die)
      )
  /** In the same database, so that it is undone together with the completion. */
  const inDatabase = (orderId: string) =>
    Effect.flatMap(Bank, ({ charges }) => MemoryQueue.update(charges, (all) => [...all, orderId]))

  it.effect("a process that dies within it has written nothing, and one that dies after it has written once", () =>
    Effect.gen(function* () {
      const report = yield* Rehearsal.crash(Charge, order, rehearsalOf(completing(inDatabase)))
      expect(report).toMatchObject({ clean: ["a"], failures: [] })
    })
  )

  it.effect("a process that stalls within it keeps the job, and nobody does it twice", () =>
    Effect.gen(function* () {
      const report = yield* Rehearsal.stall(Charge, order, rehearsalOf(completing(inDatabase)))
      expect(report).toMatchObject({ clean: ["a"], failures: [] })
    })
  )

  it.effect("catches a write to another system within it, which no rollback undoes", () =>
    Effect.gen(function* () {
      const { failures, points } = yield* Rehearsal.crash(Charge, order, rehearsalOf(completing(book)))
      expect(failures.length).toBeGreaterThan(0)
      for (const { left, observed } of failures) expect([left, observed]).toEqual([["a"], ["a", "a"]])
      // After its commit nothing is done again: the last points are without a fault.
      expect(failures.at(-1)?.point).toBeLessThan(points)
    })
  )
})

describe("a rehearsal of crashes", () => {
  it.effect("finds no fault with a handler whose effect bears a key", () =>
    Effect.gen(function* () {
      const handler: Handler = ({ orderId }) => Effect.as(Effect.delay(bookOnce(orderId), "1 second"), 1)
      const report = yield* Rehearsal.crash(Charge, order, rehearsalOf(handler))
      expect(report).toMatchObject({ clean: ["a"], failures: [] })
      expect(report.points).toBeGreaterThan(10)
    })
  )

  it.effect("catches a handler that does its work twice, at every point after the work and at none before", () =>
    Effect.gen(function* () {
      const report = yield* Rehearsal.crash(
        Charge,
        order,
        rehearsalOf(({ orderId }) => Effect.as(book(orderId), 1))
      )
      expect(report.failures.length).toBeGreaterThan(0)
      for (const failure of report.failures) {
        expect(failure).toMatchObject({ left: ["a"], observed: ["a", "a"], state: "succeeded" })
      }
      // Without a gap, up to the last point: once the work is done, every crash repeats it.
      const [first] = report.failures
      expect(report.failures.map(({ point }) => point)).toEqual(
        Array.from({ length: report.failures.length }, (_, index) => (first?.point ?? 0) + index)
      )
      expect(report.failures.at(-1)?.point).toBe(report.points)
    })
  )

  it.effect("stops at each suspension: every prefix of a chain of waits is seen", () =>
    Effect.gen(function* () {
      const seen = new Set<number>()
      const waits = 7
      const handler: Handler = () =>
        Effect.as(
          Effect.forEach(Array.from({ length: waits }), () => Effect.zipRight(Effect.sleep("1 second"), book("x"))),
          1
        )
      const report = yield* Rehearsal.crash(Charge, order, rehearsalOf(handler))
      for (const { left } of report.failures) seen.add(left.length)
      // 0 is no failure: there the rerun does all of it, once.
      expect([...seen].sort((a, b) => a - b)).toEqual(Array.from({ length: waits }, (_, index) => index + 1))
      expect(report.clean.length).toBe(waits)
    })
  )

  it.effect("stops while an answer is under way: work that has begun outlives the process", () =>
    Effect.gen(function* () {
      const handler: Handler = ({ orderId }) =>
        Effect.flatMap(Effect.context<Bank>(), (context) =>
          Effect.as(
            Effect.promise(async () => {
              await new Promise((resume) => setTimeout(resume, 5))
              Effect.runSync(Effect.provide(book(orderId), context))
            }),
            1
          )
        )
      const { failures } = yield* Rehearsal.crash(Charge, order, rehearsalOf(handler))
      expect(failures.some(({ left }) => left.length === 0)).toBe(true)
      expect(failures.map(({ observed }) => observed.length)).toEqual(failures.map(() => 2))
    })
  )

  it.effect("runs no finalizer of the process that dies", () =>
    Effect.gen(function* () {
      const handler: Handler = ({ orderId }) =>
        Effect.acquireUseRelease(
          book(orderId),
          () => Effect.sleep("1 second"),
          () => Effect.flatMap(Bank, ({ charges }) => Ref.set(charges, []))
        ).pipe(Effect.as(1))
      const { clean, failures } = yield* Rehearsal.crash(Charge, order, rehearsalOf(handler))
      expect(clean).toEqual([])
      expect(failures).toEqual([])
      const kept = yield* Rehearsal.crash(Charge, order, {
        ...rehearsalOf(handler),
        observe: Effect.flatMap(charges, (all) => Effect.succeed(all.length)),
        same: (cleanCount, count) => cleanCount === count
      })
      expect(kept.failures).toEqual([])
    })
  )

  it.effect("sees the jobs that a handler enqueues, and its retries", () =>
    Effect.gen(function* () {
      const handler: Handler = ({ orderId }, { attempt }) =>
        Effect.gen(function* () {
          yield* Effect.orDie(Queue.enqueue(Mail, { orderId }))
          if (attempt === 1) return yield* new Retryable({ code: "later", message: "not yet" })
          return attempt
        })
      const report = yield* Rehearsal.crash(Charge, order, {
        ...rehearsalOf(handler),
        observe: Effect.map(TestQueue.enqueued(Mail), (mails) => mails.map(({ payload }) => payload))
      })
      expect(report).toMatchObject({ clean: [{ orderId: "a" }], failures: [] })
    })
  )

  it.effect("an hour of sleep in a handler costs no time", () =>
    Effect.gen(function* () {
      const handler: Handler = ({ orderId }) => Effect.as(Effect.delay(bookOnce(orderId), "1 hour"), 1)
      expect((yield* Rehearsal.crash(Charge, order, rehearsalOf(handler))).failures).toEqual([])
    })
  )
})

describe("a rehearsal of a duplicate delivery", () => {
  it.effect("catches what does its work twice, and passes what looks first", () =>
    Effect.gen(function* () {
      const twice = yield* Rehearsal.duplicate(
        Charge,
        order,
        rehearsalOf(({ orderId }) => Effect.as(book(orderId), 1))
      )
      expect(twice.failures).toMatchObject([{ point: twice.points, left: ["a"], observed: ["a", "a"] }])
      const once = yield* Rehearsal.duplicate(
        Charge,
        order,
        rehearsalOf(({ orderId }) => Effect.as(bookOnce(orderId), 1))
      )
      expect(once.failures).toEqual([])
    })
  )
})

describe("a rehearsal of stalls", () => {
  /** The last writer wins, so a process that goes on late overwrites what came after it. */
  const overwrite = (token: number, fenced: boolean) =>
    Effect.flatMap(Bank, ({ charges }) =>
      // In one step: between a look and a write that are two, a process can stall as well, as this rehearsal finds out.
      Ref.update(charges, (all) => (fenced && token < tokenOf(all) ? all : [`by attempt ${token}`]))
    )
  const tokenOf = (all: ReadonlyArray<string>) => Number(all[0]?.slice("by attempt ".length) ?? 0)

  it.effect("catches a process that goes on after its lease, and passes it where the token is looked at", () =>
    Effect.gen(function* () {
      const handlerOf =
        (fenced: boolean): Handler =>
        (_, { token }) =>
          Effect.as(Effect.zipRight(Effect.void, overwrite(token, fenced)), 1)
      const last = { same: (_: ReadonlyArray<string>, observed: ReadonlyArray<string>) => !stale(observed) }
      // Whoever ran last must be the last to have written: the second process, or the first where it stalled after its end.
      const stale = (observed: ReadonlyArray<string>) => observed[0] === "by attempt 1"
      const naive = yield* Rehearsal.stall(Charge, order, { ...rehearsalOf(handlerOf(false)), ...last })
      expect(naive.failures.length).toBeGreaterThan(0)
      const fenced = yield* Rehearsal.stall(Charge, order, { ...rehearsalOf(handlerOf(true)), ...last })
      expect(fenced.failures).toEqual([])
    })
  )
})

describe("what can not be rehearsed is said", () => {
  it.effect("a handler that waits for ever", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(
        Rehearsal.crash(
          Charge,
          order,
          rehearsalOf(() => Effect.never)
        )
      )
      expect(error).toMatchObject({ _tag: "RehearsalStuck", point: 0, reason: "unending" })
    })
  )

  it.effect("one that takes other steps each time", () =>
    Effect.gen(function* () {
      let runs = 0
      const handler: Handler = () =>
        Effect.suspend(() => (runs++ === 0 ? Effect.delay(Effect.succeed(1), "1 second") : Effect.succeed(1)))
      const error = yield* Effect.flip(Rehearsal.crash(Charge, order, rehearsalOf(handler)))
      expect(error).toMatchObject({ _tag: "RehearsalStuck", reason: "unreached" })
    })
  )

  it.effect("one with more points than the limit", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(
        Rehearsal.crash(Charge, order, { ...rehearsalOf(() => Effect.succeed(1)), limit: 3 })
      )
      expect(error).toMatchObject({ _tag: "TooManyPoints", limit: 3 })
    })
  )

  it.effect("and a failure of the world passes through", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<never, string>()
      yield* Deferred.fail(gate, "no world")
      const error = yield* Effect.flip(
        Rehearsal.crash(Charge, order, { ...rehearsalOf(() => Effect.succeed(1)), observe: Deferred.await(gate) })
      )
      expect(error).toBe("no world")
    })
  )
})
