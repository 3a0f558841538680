import { describe, expect, it } from "@effect/vitest"
import {
  Deferred,
  Effect,
  Fiber,
  Layer,
  Logger,
  LogLevel,
  Metric,
  Option,
  Ref,
  Schema,
  TestClock,
  Tracer
} from "effect"
import * as Job from "../../src/Job.js"
import { LeaseLost, Permanent, Retryable, Snooze } from "../../src/JobFailure.js"
import { JobStore } from "../../src/JobStore.js"
import * as Metrics from "../../src/Metrics.js"
import * as Queue from "../../src/Queue.js"
import { StoreUnavailable } from "../../src/QueueError.js"
import * as RetryPolicy from "../../src/RetryPolicy.js"
import * as Worker from "../../src/Worker.js"
import { services } from "../support/Services.js"

const Task = Job.make("task", {
  payload: { n: Schema.Number },
  success: Schema.Number,
  timeout: "20 seconds",
  retry: RetryPolicy.fixed({ delay: "10 seconds", maxAttempts: 3, jitter: 0 })
})

type Handler = Job.Handler<{ readonly n: number }, number, never, never>

/** A worker of `Task` in the background, for as long as the test. */
const work = (handler: Handler, options: Omit<Worker.Options, "jobs"> = {}) =>
  Worker.run({ maintenance: false, ...options, jobs: [Task] }).pipe(
    Effect.provide(Task.toLayer(handler)),
    Effect.forkScoped
  )

/** Runs one job to its end, or for `time`; answers how it stands and how its last attempt ended. */
const lifeOf = (handler: Handler, time: string = "1 second") =>
  Effect.gen(function* () {
    const { id } = yield* Queue.enqueue(Task, { n: 21 })
    yield* work(handler)
    yield* TestClock.adjust(time as "1 second")
    const record = yield* Queue.get(id)
    return {
      state: record.state,
      code: Option.getOrUndefined(record.errorCode),
      attempts: record.attempts.map(({ outcome }) => Option.getOrUndefined(outcome)),
      left: Option.getOrUndefined(record.attemptsLeft)
    }
  }).pipe(Effect.scoped, Effect.provide(services()))

describe("the life of an attempt", () => {
  it.effect("a success is stored as the job's output", () =>
    Effect.gen(function* () {
      const { id } = yield* Queue.enqueue(Task, { n: 21 })
      yield* work(({ n }) => Effect.succeed(n * 2))
      yield* TestClock.adjust("1 second")
      expect(yield* Queue.result(Task, id)).toBe(42)
    }).pipe(Effect.scoped, Effect.provide(services()))
  )

  it.effect("a failure is tried again after the delay of the policy, until the budget is spent", () =>
    Effect.gen(function* () {
      const fail = () => Effect.fail(new Retryable({ code: "no", message: "not yet" }))
      const first = yield* lifeOf(fail, "9 seconds")
      expect(first).toEqual({ state: "pending", code: "no", attempts: ["retry"], left: 2 })
      const last = yield* lifeOf(fail, "25 seconds")
      expect(last).toEqual({ state: "dead", code: "no", attempts: ["retry", "retry", "dead"], left: 0 })
    })
  )

  it.effect("a permanent failure makes it dead at once", () =>
    Effect.gen(function* () {
      const life = yield* lifeOf(() => Effect.fail(new Permanent({ code: "gone", message: "no such order" })))
      expect(life).toEqual({ state: "dead", code: "gone", attempts: ["dead"], left: 2 })
    })
  )

  it.effect("a snooze costs nothing of the budget", () =>
    Effect.gen(function* () {
      const life = yield* lifeOf(() => Effect.fail(new Snooze({ for: "1 hour" })))
      expect(life).toEqual({ state: "pending", code: undefined, attempts: ["snoozed"], left: 3 })
    })
  )

  it.effect("a defect, a rejected promise and an interruption of itself are tried again", () =>
    Effect.gen(function* () {
      const codes = yield* Effect.forEach(
        [Effect.die(null), Effect.promise(() => Promise.reject(Symbol("no"))), Effect.interrupt],
        (end) =>
          Effect.map(
            lifeOf(() => end),
            ({ code, state }) => `${state} ${code}`
          )
      )
      expect(codes).toEqual(["pending defect", "pending defect", "pending interrupted"])
    })
  )

  it.effect("a payload that does not decode is dead, and its batch mates run", () =>
    Effect.gen(function* () {
      const store = yield* JobStore
      const good = yield* Queue.request(Task, { n: 1 })
      const enqueued = yield* store.enqueue([{ ...good, payload: '{"n":"x"}' }, { ...good, payload: "{" }, good])
      yield* work(({ n }) => Effect.succeed(n))
      yield* TestClock.adjust("1 second")
      const records = yield* Effect.forEach(enqueued, ({ id }) => Queue.get(id))
      expect(records.map(({ errorCode, state }) => [state, Option.getOrNull(errorCode)])).toEqual([
        ["dead", "payload_invalid"],
        ["dead", "payload_invalid"],
        ["succeeded", null]
      ])
    }).pipe(Effect.scoped, Effect.provide(services()))
  )

  it.effect("a handler that ran into its timeout is interrupted and tried again", () =>
    Effect.gen(function* () {
      const life = yield* lifeOf(() => Effect.never, "21 seconds")
      expect(life).toEqual({ state: "pending", code: "timeout", attempts: ["retry"], left: 2 })
    })
  )

  it.effect("a handler that fails with LeaseLost has nothing written for it", () =>
    Effect.gen(function* () {
      const life = yield* lifeOf((_, { jobId, token }) =>
        Effect.fail(new LeaseLost({ jobId, token, during: "work", reason: "superseded" }))
      )
      expect(life).toEqual({ state: "running", code: undefined, attempts: [undefined], left: 2 })
    })
  )

  it.effect("completeWith completes the job with its effect's success, and the worker settles nothing more", () =>
    Effect.gen(function* () {
      const { id } = yield* Queue.enqueue(Task, { n: 21 })
      yield* work(({ n }, lease) =>
        Effect.zipRight(
          Effect.orDie(lease.completeWith(Effect.succeed(n * 2))),
          Effect.fail(new Retryable({ code: "late", message: "after the completion" }))
        )
      )
      yield* TestClock.adjust("1 second")
      expect(yield* Queue.result(Task, id)).toBe(42)
    }).pipe(Effect.scoped, Effect.provide(services()))
  )
})

describe("a handler that ignores its interruption", () => {
  it.effect("is recorded once as timed out, gives its slot back, and its late result is dropped", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      const stuck = Metric.value(Metric.tagged(Metrics.stuckHandlers, "queue", "default"))
      const before = (yield* stuck).value
      const { id } = yield* Queue.enqueue(Task, { n: 0 })
      const others = yield* Queue.enqueueAll(Task, [{ n: 1 }, { n: 2 }])
      yield* work(
        ({ n }, { attempt }) =>
          n === 0 && attempt === 1 ? Effect.uninterruptible(Effect.as(Deferred.await(gate), 1)) : Effect.succeed(n),
        { queues: { default: { concurrency: 1 } } }
      )
      yield* TestClock.adjust("24 seconds")
      expect((yield* Queue.get(id)).state).toBe("running")
      yield* TestClock.adjust("2 seconds")
      const timedOut = yield* Queue.get(id)
      expect([timedOut.state, Option.getOrNull(timedOut.errorCode)]).toEqual(["pending", "timeout"])
      expect((yield* stuck).value - before).toBe(1)
      const states = yield* Effect.forEach(others, (job) => Effect.map(Queue.get(job.id), ({ state }) => state))
      expect(states).toEqual(["succeeded", "succeeded"])
      yield* Deferred.succeed(gate, void 0)
      yield* TestClock.adjust("11 seconds")
      // The second attempt's result, not the late one of the first.
      expect(yield* Queue.result(Task, id)).toBe(0)
      expect((yield* stuck).value - before).toBe(0)
      expect((yield* Queue.get(id)).attempts.length).toBe(2)
    }).pipe(Effect.scoped, Effect.provide(services()))
  )
})

describe("a worker", () => {
  it.effect("starts a job that was enqueued in its process at once", () =>
    Effect.gen(function* () {
      const ran = yield* Ref.make(0)
      yield* work(() => Ref.updateAndGet(ran, (n) => n + 1), { poll: "1 hour" })
      yield* TestClock.adjust("1 second")
      yield* Queue.enqueue(Task, { n: 1 })
      yield* TestClock.adjust(0)
      expect(yield* Ref.get(ran)).toBe(1)
      yield* Queue.enqueue(Task, { n: 1 }, { delay: "1 minute" })
      yield* TestClock.adjust("2 minutes")
      expect(yield* Ref.get(ran)).toBe(1)
      yield* TestClock.adjust("1 hour")
      expect(yield* Ref.get(ran)).toBe(2)
    }).pipe(Effect.scoped, Effect.provide(services()))
  )

  it.effect("polls within its bound, and once per poll where nothing is due", () =>
    Effect.gen(function* () {
      let claims = 0
      yield* work(() => Effect.succeed(1), { poll: "10 seconds" }).pipe(
        Effect.provide(
          services((store) => ({
            claim: (request) =>
              Effect.zipRight(
                Effect.sync(() => claims++),
                store.claim(request)
              )
          }))
        )
      )
      yield* TestClock.adjust("100 seconds")
      expect(claims).toBeGreaterThanOrEqual(11)
      expect(claims).toBeLessThanOrEqual(14)
    }).pipe(Effect.scoped)
  )

  it.effect("leaves jobs of types that it does not know alone", () =>
    Effect.gen(function* () {
      const Other = Job.make("other", { payload: Schema.Void })
      const { id } = yield* Queue.enqueue(Other, undefined)
      yield* work(({ n }) => Effect.succeed(n))
      yield* TestClock.adjust("10 seconds")
      expect(yield* Queue.get(id)).toMatchObject({ state: "pending", attempt: 0, token: 0 })
    }).pipe(Effect.scoped, Effect.provide(services()))
  )

  it.effect("never runs more handlers at once than its concurrency", () =>
    Effect.gen(function* () {
      let now = 0
      let most = 0
      yield* Queue.enqueueAll(
        Task,
        Array.from({ length: 50 }, (_, n) => ({ n }))
      )
      yield* work(
        ({ n }) =>
          Effect.acquireUseRelease(
            Effect.sync(() => (most = Math.max(most, ++now))),
            () => Effect.as(Effect.sleep("50 millis"), n),
            () => Effect.sync(() => now--)
          ),
        { queues: { default: { concurrency: 4 } } }
      )
      yield* TestClock.adjust("2 seconds")
      expect(most).toBe(4)
      expect(yield* Queue.counts).toEqual([{ queue: "default", state: "succeeded", count: 50 }])
    }).pipe(Effect.scoped, Effect.provide(services()))
  )

  it.effect("links the run's span to the trace of the enqueue", () =>
    Effect.gen(function* () {
      const spans: Array<Tracer.Span> = []
      const tracer = yield* Effect.tracer
      const enqueue = Effect.withSpan(Queue.enqueue(Task, { n: 1 }), "request")
      const recording = Tracer.make({
        context: (f, fiber) => tracer.context(f, fiber),
        span: (...given) => {
          const span = tracer.span(...given)
          spans.push(span)
          return span
        }
      })
      yield* Effect.withTracer(
        Effect.gen(function* () {
          yield* enqueue
          yield* work(({ n }) => Effect.succeed(n))
          yield* TestClock.adjust("1 second")
        }),
        recording
      )
      const run = spans.find(({ name }) => name === "leasehold.run")
      const origin = spans.find(({ name }) => name === "leasehold.enqueue")
      expect(run?.links.map(({ span }) => span.spanId)).toEqual([origin?.spanId])
      expect(run?.parent).toEqual(Option.none())
      // One claim found the job; the empty ones leave no span.
      expect(spans.filter(({ name }) => name === "leasehold.claim").length).toBe(1)
      expect(spans.filter(({ name }) => name === "leasehold.settle").length).toBe(1)
    }).pipe(Effect.scoped, Effect.provide(services()))
  )

  it.effect("logs attempts with stable annotations, and never a payload or an output", () =>
    Effect.gen(function* () {
      const lines: Array<string> = []
      const logger = Logger.make(({ annotations, logLevel, message }) => {
        lines.push(JSON.stringify([logLevel.label, message, Object.fromEntries(annotations)]))
      })
      const Secret = Job.make("secret", {
        payload: { text: Schema.String },
        success: Schema.String,
        retry: RetryPolicy.fixed({ delay: "1 second", maxAttempts: 1 })
      })
      yield* Effect.gen(function* () {
        yield* Queue.enqueue(Secret, { text: "canary" }, { idempotency: { scope: "canary", key: "canary" } })
        yield* Queue.enqueue(Secret, { text: "canary, failing" })
        yield* Worker.run({ jobs: [Secret], maintenance: false }).pipe(
          Effect.provide(
            Secret.toLayer(({ text }) =>
              text === "canary" ? Effect.succeed("canary") : Effect.fail(new Retryable({ code: "c", message: "m" }))
            )
          ),
          Effect.forkScoped
        )
        yield* TestClock.adjust("5 seconds")
      }).pipe(Effect.provide(Logger.replace(Logger.defaultLogger, logger)), Logger.withMinimumLogLevel(LogLevel.All))
      expect(lines.join("\n")).not.toContain("canary")
      const completed = lines.find((line) => line.includes("Job completed")) ?? ""
      for (const key of [
        "job_id",
        "job_type",
        "queue",
        "attempt",
        "max_attempts",
        "lease_token",
        "worker_id",
        "duration_ms"
      ]) {
        expect(completed).toContain(`"${key}"`)
      }
      expect(lines.find((line) => line.includes("Job is dead"))).toMatch(/^\["WARN".*"error_code":"c"/)
    }).pipe(Effect.scoped, Effect.provide(services()))
  )
})

describe("a worker whose database fails", () => {
  it.effect("ends with the defect of a loop instead of standing still", () =>
    Effect.gen(function* () {
      const worker = yield* work(({ n }) => Effect.succeed(n)).pipe(
        Effect.provide(services(() => ({ claim: () => Effect.die("a mistake") })))
      )
      yield* TestClock.adjust("1 minute")
      expect(yield* Fiber.poll(worker)).toMatchObject({ value: { _tag: "Failure" } })
    }).pipe(Effect.scoped)
  )

  it.effect("starts again in a layer, and its health says so", () =>
    Effect.gen(function* () {
      let broken = true
      const live = Worker.layer({ jobs: [Task], maintenance: false }).pipe(
        Layer.provide(Task.toLayer(({ n }) => Effect.succeed(n))),
        Layer.provideMerge(
          services((store) => ({
            claim: (request) => (broken ? Effect.die("a mistake") : store.claim(request))
          }))
        )
      )
      yield* Effect.gen(function* () {
        const { id } = yield* Queue.enqueue(Task, { n: 1 })
        yield* TestClock.adjust("500 millis")
        expect((yield* Worker.health).status).toBe("bad")
        broken = false
        yield* TestClock.adjust("2 minutes")
        expect((yield* Worker.health).status).toBe("good")
        expect(yield* Queue.result(Task, id)).toBe(1)
      }).pipe(Effect.provide(live))
    })
  )

  it.effect("is in bad health while results can not be written, also where their slots leave no room for a claim", () =>
    Effect.gen(function* () {
      let broken = true
      const refused = new StoreUnavailable({ verb: "settle", reason: "connection", code: "ECONNREFUSED" })
      const options = {
        jobs: [Task],
        queues: { default: { concurrency: 2 } },
        lease: "1 hour",
        maintenance: false
      } as const
      const live = Worker.layer(options).pipe(
        Layer.provide(Task.toLayer(({ n }) => Effect.as(Effect.sleep("1 second"), n))),
        Layer.provideMerge(
          services((store) => ({ settle: (batch) => (broken ? Effect.fail(refused) : store.settle(batch)) }))
        )
      )
      yield* Effect.gen(function* () {
        const jobs = yield* Queue.enqueueAll(
          Task,
          [1, 2, 3, 4, 5, 6].map((n) => ({ n }))
        )
        yield* TestClock.adjust("5 seconds")
        expect(yield* Worker.health).toMatchObject({
          status: "good",
          queues: [{ running: 0, unwritten: 4, stalled: false, fault: refused }]
        })
        yield* TestClock.adjust("10 seconds")
        expect(yield* Worker.health).toMatchObject({ status: "bad", queues: [{ unwritten: 4, stalled: true }] })
        broken = false
        yield* TestClock.adjust("5 seconds")
        expect(yield* Worker.health).toMatchObject({
          status: "good",
          queues: [{ unwritten: 0, stalled: false, fault: undefined }]
        })
        yield* Effect.forEach(jobs, ({ id }) => Queue.result(Task, id))
      }).pipe(Effect.provide(live))
    })
  )

  it.effect("shows what the renewals of running handlers fail with", () =>
    Effect.gen(function* () {
      let broken = true
      const refused = new StoreUnavailable({ verb: "renew", reason: "connection", code: "ECONNREFUSED" })
      const live = Worker.layer({ jobs: [Task], queues: { default: { concurrency: 1 } }, maintenance: false }).pipe(
        Layer.provide(Task.toLayer(({ n }) => Effect.as(Effect.sleep("19 seconds"), n))),
        Layer.provideMerge(
          services((store) => ({ renew: (...given) => (broken ? Effect.fail(refused) : store.renew(...given)) }))
        )
      )
      yield* Effect.gen(function* () {
        const { id } = yield* Queue.enqueue(Task, { n: 1 })
        yield* TestClock.adjust("12 seconds")
        expect(yield* Worker.health).toMatchObject({ status: "good", queues: [{ running: 1, fault: refused }] })
        broken = false
        yield* TestClock.adjust("5 seconds")
        expect(yield* Worker.health).toMatchObject({ status: "good", queues: [{ running: 1, fault: undefined }] })
        yield* TestClock.adjust("5 seconds")
        expect(yield* Queue.result(Task, id)).toBe(1)
      }).pipe(Effect.provide(live))
    })
  )
})
