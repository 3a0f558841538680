import { describe, expect, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Fiber, Layer, Option, Ref, Schema, TestClock } from "effect"
import * as Job from "../../../src/Job.js"
import { Permanent, Retryable, Snooze } from "../../../src/JobFailure.js"
import type { JobId } from "../../../src/JobRecord.js"
import * as Queue from "../../../src/Queue.js"
import * as RetryPolicy from "../../../src/RetryPolicy.js"
import { MemoryQueue, TestQueue } from "../../../src/testing/index.js"

const Export = Job.make("export", {
  payload: { n: Schema.NumberFromString },
  success: Schema.Struct({ at: Schema.DateFromString }),
  retry: RetryPolicy.fixed({ delay: "10 seconds", maxAttempts: 3, jitter: 0 }),
  timeout: "1 minute"
})
const Mail = Job.make("mail", { payload: { to: Schema.String }, queue: "mail" })

type Handler = Job.Handler<{ readonly n: number }, { readonly at: Date }, never, Queue.Queue>

const at = new Date(0)
const live = (handler: Handler) =>
  Layer.mergeAll(
    Export.toLayer(handler),
    Mail.toLayer(() => Effect.void)
  ).pipe(Layer.provideMerge(MemoryQueue.layer))

describe("drain", () => {
  it.effect("runs what is due and what that enqueues, and answers each run with its decoded output", () =>
    Effect.gen(function* () {
      const first = yield* Queue.enqueue(Export, { n: 1 })
      yield* Queue.enqueue(Export, { n: 2 }, { delay: "1 hour" })
      const runs = yield* TestQueue.drain([Export, Mail])
      expect(runs).toEqual([
        { type: "export", id: first.id, attempt: 1, outcome: "completed", output: { at } },
        { type: "mail", id: expect.any(String), attempt: 1, outcome: "completed", output: undefined }
      ])
      const [run] = runs
      if (run?.type === "export" && run.outcome === "completed") expect(run.output.at.getTime()).toBe(0)
      expect(yield* TestQueue.drain([Export, Mail])).toEqual([])
    }).pipe(Effect.provide(live(() => Effect.as(Effect.orDie(Queue.enqueue(Mail, { to: "Ada" })), { at }))))
  )

  it.effect("answers how each attempt ended, and leaves other types alone", () =>
    Effect.gen(function* () {
      for (const n of [1, 2, 3, 4]) yield* Queue.enqueue(Export, { n })
      yield* Queue.enqueue(Mail, { to: "Ada" })
      const runs = yield* TestQueue.drain([Export])
      expect(runs.map(({ type: _, id: __, ...run }) => run)).toEqual([
        { attempt: 1, outcome: "retry", errorCode: "later", errorMessage: "not yet" },
        { attempt: 1, outcome: "dead", errorCode: "gone", errorMessage: "for good" },
        { attempt: 1, outcome: "snoozed" },
        { attempt: 1, outcome: "retry", errorCode: "defect", errorMessage: "Error: bug" }
      ])
      expect(yield* TestQueue.enqueued(Mail)).toMatchObject([{ state: "pending" }])
    }).pipe(
      Effect.provide(
        live(({ n }) => {
          if (n === 1) return new Retryable({ code: "later", message: "not yet" })
          if (n === 2) return new Permanent({ code: "gone", message: "for good" })
          return n === 3 ? new Snooze({ for: "1 minute" }) : Effect.die(new Error("bug"))
        })
      )
    )
  )

  it.effect("within a time, moves the clock from retry to retry until the budget is spent", () =>
    Effect.gen(function* () {
      const { id } = yield* Queue.enqueue(Export, { n: 1 })
      const runs = yield* TestQueue.drain([Export], { within: "1 hour" })
      expect(runs.map(({ attempt, outcome }) => `${attempt} ${outcome}`)).toEqual(["1 retry", "2 retry", "3 dead"])
      expect((yield* Queue.get(id)).state).toBe("dead")
      expect(yield* TestClock.currentTimeMillis).toBe(20_000)
    }).pipe(Effect.provide(live(() => new Retryable({ code: "later", message: "not yet" }))))
  )

  it.effect("a handler that sleeps waits for the clock, and its timeout counts", () =>
    Effect.gen(function* () {
      yield* Queue.enqueue(Export, { n: 1 })
      const draining = yield* Effect.fork(TestQueue.drain([Export]))
      yield* TestClock.adjust("1 minute")
      expect(yield* Fiber.join(draining)).toMatchObject([{ outcome: "retry", errorCode: "timeout" }])
    }).pipe(Effect.provide(live(() => Effect.never)))
  )

  it.effect("says that there is no end to it", () =>
    Effect.gen(function* () {
      yield* Queue.enqueue(Export, { n: 1 })
      const error = yield* Effect.flip(TestQueue.drain([Export], { limit: 20 }))
      expect(error).toMatchObject({ _tag: "DrainEndless", limit: 20 })
    }).pipe(Effect.provide(live(() => new Snooze({ for: 0 }))))
  )

  it.effect("that is interrupted gives its job back", () =>
    Effect.gen(function* () {
      const { id } = yield* Queue.enqueue(Export, { n: 1 })
      const draining = yield* Effect.fork(TestQueue.drain([Export]))
      yield* TestClock.adjust("1 second")
      expect((yield* Queue.get(id)).state).toBe("running")
      yield* Fiber.interrupt(draining)
      const { attempts, state } = yield* Queue.get(id)
      expect([state, attempts.map(({ outcome }) => outcome)]).toEqual(["pending", [Option.some("released")]])
    }).pipe(Effect.provide(live(() => Effect.never)))
  )

  it.effect("answers a job whose workers vanished until its budget was spent", () =>
    Effect.gen(function* () {
      const Once = Job.make("once", { payload: {}, retry: RetryPolicy.fixed({ delay: 0, maxAttempts: 1 }) })
      const { id } = yield* Queue.enqueue(Once, {})
      yield* Effect.scoped(Queue.claim(Once))
      yield* TestQueue.advance(id)
      const runs = yield* TestQueue.drain([Once]).pipe(Effect.provide(Once.toLayer(() => Effect.die("must not run"))))
      expect(runs).toMatchObject([{ attempt: 1, outcome: "dead", errorCode: "lease_expired" }])
    }).pipe(Effect.provide(MemoryQueue.layer))
  )
})

describe("enqueued", () => {
  it.effect("answers payloads decoded, and the options of each enqueue; a replay adds nothing", () =>
    Effect.gen(function* () {
      const options = { delay: "10 seconds", priority: 2, idempotency: { scope: "s", key: "k" } } as const
      yield* Queue.enqueue(Export, { n: 7 }, options)
      yield* Queue.enqueue(Export, { n: 7 }, options)
      yield* Queue.enqueue(Mail, { to: "Ada" })
      expect(yield* TestQueue.enqueued(Export)).toEqual([
        {
          id: "1",
          payload: { n: 7 },
          queue: "default",
          priority: 2,
          delay: Duration.seconds(10),
          idempotency: Option.some({ scope: "s", key: "k" }),
          maxAttempts: Option.some(3),
          state: "pending"
        }
      ])
      expect(yield* TestQueue.enqueued(Mail)).toMatchObject([{ payload: { to: "Ada" }, delay: Duration.zero }])
    }).pipe(Effect.provide(MemoryQueue.layer))
  )

  it.effect("a transaction that does not commit leaves neither its jobs nor what its fakes undo", () =>
    Effect.gen(function* () {
      const rows = yield* Ref.make(0)
      const insert = MemoryQueue.update(rows, (n) => n + 1)
      const kept = yield* Queue.enqueue(Mail, { to: "Ada" })
      const refused = Queue.withTransaction(
        Effect.all([
          insert,
          Queue.enqueue(Mail, { to: "Bob" }, { requireTransaction: true }),
          Queue.cancel(kept.id),
          Effect.fail("refused")
        ])
      )
      expect(yield* Effect.flip(refused)).toBe("refused")
      expect(yield* TestQueue.enqueued(Mail)).toMatchObject([{ payload: { to: "Ada" }, state: "pending" }])
      expect(yield* Ref.get(rows)).toBe(0)
      yield* Queue.withTransaction(Effect.all([insert, Queue.enqueue(Mail, { to: "Bob" })]))
      expect(yield* Effect.all([TestQueue.enqueued(Mail), Ref.get(rows)])).toMatchObject([{ length: 2 }, 1])
    }).pipe(Effect.provide(MemoryQueue.layer))
  )
})

describe("advance", () => {
  it.effect("stops at a whole millisecond: TestClock can not tell the nanoseconds of other times", () =>
    Effect.gen(function* () {
      // As a jitter makes them: in nanoseconds it is 108661700355.00002.
      const { id } = yield* Queue.enqueue(Export, { n: 1 }, { delay: Duration.millis(108_661.700355) })
      expect(yield* TestQueue.advance(id)).toEqual(Duration.millis(108_662))
      expect(yield* TestQueue.drain([Export])).toMatchObject([{ id, outcome: "completed" }])
    }).pipe(Effect.provide(live(() => Effect.succeed({ at }))))
  )

  it.effect("moves the clock to the due time, and to the end of a lease", () =>
    Effect.gen(function* () {
      const { id } = yield* Queue.enqueue(Export, { n: 1 }, { delay: "1 hour" })
      expect(yield* TestQueue.advance(id)).toEqual(Duration.hours(1))
      expect(yield* TestQueue.advance(id)).toEqual(Duration.zero)
      yield* Effect.scoped(Queue.claim(Export))
      expect(yield* TestQueue.advance(id)).toEqual(Duration.seconds(30))
      yield* Queue.cancel((yield* Queue.enqueue(Mail, { to: "Ada" })).id)
      expect(yield* Effect.flip(TestQueue.advance("2"))).toMatchObject({ _tag: "NeverDue", state: "canceled" })
      expect(yield* Effect.flip(TestQueue.advance("99"))).toMatchObject({ _tag: "JobNotFound" })
    }).pipe(Effect.provide(MemoryQueue.layer))
  )
})

describe("loseLease", () => {
  it.effect("at a chosen moment: the handler is interrupted at its next renewal, and nothing is written for it", () =>
    Effect.gen(function* () {
      const reached = yield* Deferred.make<JobId>()
      const interrupted = yield* Ref.make(false)
      const handler: Handler = (_, { jobId }) =>
        Effect.zipRight(Deferred.succeed(reached, jobId), Effect.never).pipe(
          Effect.onInterrupt(() => Ref.set(interrupted, true))
        )
      yield* Effect.gen(function* () {
        yield* Queue.enqueue(Export, { n: 1 })
        const draining = yield* Effect.fork(TestQueue.drain([Export]))
        yield* TestQueue.loseLease(yield* Deferred.await(reached))
        yield* TestClock.adjust("10 seconds")
        expect(yield* Fiber.join(draining)).toMatchObject([{ attempt: 1, outcome: "lost" }])
        expect(yield* Ref.get(interrupted)).toBe(true)
        expect(yield* Queue.get(yield* Deferred.await(reached))).toMatchObject({
          state: "running",
          worker: Option.some("test/usurper"),
          token: 2
        })
      }).pipe(Effect.provide(live(handler)))
    })
  )

  it.effect(
    "a handler that ends after it has its result refused, and the job runs again when the other lease ends",
    () =>
      Effect.gen(function* () {
        const { id } = yield* Queue.enqueue(Export, { n: 1 })
        expect(yield* TestQueue.drain([Export])).toMatchObject([{ attempt: 1, outcome: "lost" }])
        yield* TestQueue.advance(id)
        expect(yield* TestQueue.drain([Export])).toMatchObject([{ attempt: 3, outcome: "completed" }])
      }).pipe(
        Effect.provide(
          Layer.unwrapEffect(
            Effect.map(Effect.context<MemoryQueue.MemoryTable>(), (table) =>
              Export.toLayer((_, { attempt, jobId }) =>
                Effect.as(
                  attempt === 1 ? Effect.orDie(Effect.provide(TestQueue.loseLease(jobId), table)) : Effect.void,
                  { at }
                )
              )
            )
          ).pipe(Layer.provideMerge(MemoryQueue.layer))
        )
      )
  )

  it.effect("is refused where nobody holds one", () =>
    Effect.gen(function* () {
      const { id } = yield* Queue.enqueue(Export, { n: 1 })
      expect(yield* Effect.flip(TestQueue.loseLease(id))).toMatchObject({ _tag: "NotRunning", state: "pending" })
    }).pipe(Effect.provide(MemoryQueue.layer))
  )
})
