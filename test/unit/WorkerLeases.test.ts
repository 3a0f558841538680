import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, Logger, LogLevel, Metric, Option, Ref, Schema, TestClock } from "effect"
import * as Job from "../../src/Job.js"
import * as Metrics from "../../src/Metrics.js"
import * as Queue from "../../src/Queue.js"
import { StoreUnavailable } from "../../src/QueueError.js"
import * as Worker from "../../src/Worker.js"
import { services } from "../support/Services.js"

const Task = Job.make("task", { payload: { n: Schema.Number }, success: Schema.Number })

type Handler = Job.Handler<{ readonly n: number }, number, never, never>

const work = (handler: Handler, options: Omit<Worker.Options, "jobs"> = {}) =>
  Worker.run({ maintenance: false, poll: "5 seconds", shutdown: { grace: 0 }, ...options, jobs: [Task] }).pipe(
    Effect.provide(Task.toLayer(handler)),
    Effect.forkScoped
  )

const down = new StoreUnavailable({ verb: "renew", reason: "connection", code: "ECONNRESET" })

/** A handler that goes on until it is interrupted, and says when that was. */
const untilInterrupted = Effect.gen(function* () {
  const at = yield* Ref.make(Option.none<number>())
  const handler: Handler = () =>
    Effect.never.pipe(
      Effect.onInterrupt(() =>
        Effect.flatMap(
          Effect.clockWith((clock) => clock.currentTimeMillis),
          (now) => Ref.set(at, Option.some(now))
        )
      )
    )
  return { at: Ref.get(at), handler }
})

describe("a lease of a worker", () => {
  it.effect("is renewed for as long as its handler runs, and the job starts once", () =>
    Effect.gen(function* () {
      const ran = yield* Ref.make(0)
      const { id } = yield* Queue.enqueue(Task, { n: 1 })
      yield* work(() =>
        Effect.delay(
          Ref.updateAndGet(ran, (n) => n + 1),
          "5 minutes"
        )
      )
      yield* TestClock.adjust("6 minutes")
      expect(yield* Queue.result(Task, id)).toBe(1)
      expect((yield* Queue.get(id)).attempts.length).toBe(1)
    }).pipe(Effect.scoped, Effect.provide(services()))
  )

  it.effect("that was superseded interrupts its handler within a renewal, and the job is left to its new owner", () =>
    Effect.gen(function* () {
      const lost = Metric.value(Metric.tagged(Metric.tagged(Metrics.leasesLost, "queue", "default"), "type", "task"))
      const before = (yield* lost).count
      const { at, handler } = yield* untilInterrupted
      const { id } = yield* Queue.enqueue(Task, { n: 1 })
      yield* work(handler)
      yield* TestClock.adjust("11 seconds")
      expect(yield* at).toEqual(Option.some(10_000))
      expect(yield* Queue.get(id)).toMatchObject({ state: "running", errorCode: Option.none() })
      expect((yield* lost).count - before).toBe(1)
    }).pipe(
      Effect.scoped,
      Effect.provide(
        services(() => ({
          renew: (leases) => Effect.succeed(leases.map(() => ({ _tag: "Lost", reason: "superseded" })))
        }))
      )
    )
  )

  it.effect("whose renewals hang interrupts its handler before it ends, and its late result is not sent", () =>
    Effect.gen(function* () {
      const settled = yield* Ref.make(0)
      const { at, handler } = yield* untilInterrupted
      yield* Effect.gen(function* () {
        const { id } = yield* Queue.enqueue(Task, { n: 1 })
        yield* work(handler, { poll: "1 hour" })
        yield* TestClock.adjust("29 seconds")
        expect(yield* at).toEqual(Option.some(29_000))
        yield* TestClock.adjust("10 seconds")
        expect(yield* Ref.get(settled)).toBe(0)
        expect((yield* Queue.get(id)).state).toBe("running")
      }).pipe(
        Effect.provide(
          services((store) => ({
            renew: () => Effect.never,
            settle: (settlements) =>
              Effect.zipRight(
                Ref.update(settled, (n) => n + 1),
                store.settle(settlements)
              )
          }))
        )
      )
    }).pipe(Effect.scoped)
  )

  it.effect("outlives an outage that is shorter than itself", () =>
    Effect.gen(function* () {
      const away = yield* Ref.make(false)
      const unless = <A, E>(effect: Effect.Effect<A, E>) =>
        Effect.flatMap(Ref.get(away), (is): Effect.Effect<A, E | StoreUnavailable> => (is ? Effect.fail(down) : effect))
      yield* Effect.gen(function* () {
        const { id } = yield* Queue.enqueue(Task, { n: 7 })
        yield* work(({ n }) => Effect.delay(Effect.succeed(n), "15 seconds"))
        yield* TestClock.adjust("9 seconds")
        yield* Ref.set(away, true)
        yield* TestClock.adjust("15 seconds")
        yield* Ref.set(away, false)
        yield* TestClock.adjust("2 seconds")
        expect(yield* Queue.result(Task, id)).toBe(7)
        expect((yield* Queue.get(id)).attempts.length).toBe(1)
      }).pipe(
        Effect.provide(
          services((store) => ({
            claim: (request) => unless(store.claim(request)),
            renew: (leases, lease) => unless(store.renew(leases, lease)),
            settle: (settlements) => unless(store.settle(settlements))
          }))
        )
      )
    }).pipe(Effect.scoped)
  )

  it.effect("whose claim was answered after its end is not worked on", () =>
    Effect.gen(function* () {
      const ran = yield* Ref.make(0)
      let slow = true
      yield* Effect.gen(function* () {
        yield* Queue.enqueue(Task, { n: 1 })
        yield* work(() => Ref.updateAndGet(ran, (n) => n + 1))
        yield* TestClock.adjust("29500 millis")
        expect(yield* Ref.get(ran)).toBe(0)
        yield* TestClock.adjust("5 seconds")
        expect(yield* Ref.get(ran)).toBe(1)
      }).pipe(
        Effect.provide(
          services((store) => ({
            claim: (request) => {
              if (!slow) return store.claim(request)
              slow = false
              return Effect.zipLeft(store.claim(request), Effect.sleep("29500 millis"))
            }
          }))
        )
      )
    }).pipe(Effect.scoped)
  )
})

describe("a cancel of a running job", () => {
  it.effect("interrupts the handler within a renewal, lets its finalizers run under the lease, and ends the job", () =>
    Effect.gen(function* () {
      const { id } = yield* Queue.enqueue(Task, { n: 1 })
      const cleaned = yield* Ref.make(0)
      yield* work(() => Effect.ensuring(Effect.never, Effect.zipRight(Effect.sleep("4 seconds"), Ref.set(cleaned, 1))))
      yield* TestClock.adjust("1 second")
      expect(yield* Queue.cancel(id)).toEqual({ _tag: "requested" })
      yield* TestClock.adjust("11 seconds")
      expect((yield* Queue.get(id)).state).toBe("running")
      yield* TestClock.adjust("3 seconds")
      expect(yield* Ref.get(cleaned)).toBe(1)
      expect((yield* Queue.get(id)).state).toBe("canceled")
    }).pipe(Effect.scoped, Effect.provide(services()))
  )

  it.effect("wins over whatever the handler then answers", () =>
    Effect.gen(function* () {
      const { id } = yield* Queue.enqueue(Task, { n: 1 })
      yield* work(() => Effect.catchAllCause(Effect.never, () => Effect.succeed(1)))
      yield* TestClock.adjust("1 second")
      yield* Queue.cancel(id)
      yield* TestClock.adjust("11 seconds")
      expect(yield* Queue.get(id)).toMatchObject({ state: "canceled", output: Option.none() })
      expect(yield* Queue.cancel(id)).toEqual({ _tag: "ended", state: "canceled" })
    }).pipe(Effect.scoped, Effect.provide(services()))
  )

  it.effect("reaches a handler that races its work against the loss of its lease, and the job ends canceled", () =>
    Effect.gen(function* () {
      const { id } = yield* Queue.enqueue(Task, { n: 1 })
      yield* work((_, lease) => Effect.raceFirst(Effect.never, lease.lost))
      yield* TestClock.adjust("1 second")
      yield* Queue.cancel(id)
      yield* TestClock.adjust("11 seconds")
      expect((yield* Queue.get(id)).state).toBe("canceled")
    }).pipe(Effect.scoped, Effect.provide(services()))
  )

  it.effect("stops an attempt that waits for its slot", () =>
    Effect.gen(function* () {
      const ran = yield* Ref.make<ReadonlyArray<number>>([])
      const first = yield* Queue.enqueueAll(
        Task,
        Array.from({ length: 6 }, () => ({ n: 0 }))
      )
      const waiting = yield* Queue.enqueue(Task, { n: 1 })
      expect(first.length).toBe(6)
      yield* work(({ n }) =>
        Effect.as(
          Ref.update(ran, (all) => [...all, n]),
          n
        )
      )
      yield* Queue.cancel(waiting.id)
      yield* TestClock.adjust("2 seconds")
      expect((yield* Queue.get(waiting.id)).state).toBe("canceled")
      expect((yield* Ref.get(ran)).includes(1)).toBe(false)
    }).pipe(Effect.scoped, Effect.provide(services()))
  )
})

describe("jobs that are claimed ahead of a free slot", () => {
  const claimedAhead = (queue: string) =>
    Effect.map(Queue.list({ queue, state: "running" }), (running) => running.length)

  it.effect("are none while run times are long, so that other workers can have them", () =>
    Effect.gen(function* () {
      yield* Queue.enqueueAll(
        Task,
        Array.from({ length: 10 }, (_, n) => ({ n }))
      )
      yield* work(({ n }) => Effect.delay(Effect.succeed(n), "18 seconds"), {
        queues: { default: { concurrency: 1 } }
      })
      for (let run = 0; run < 3; run++) {
        yield* TestClock.adjust("20 seconds")
        expect(yield* claimedAhead("default")).toBeLessThanOrEqual(1)
      }
    }).pipe(Effect.scoped, Effect.provide(services()))
  )

  it.effect("are as many as start soon where most slots are taken for long: none is given back", () => {
    let released = 0
    let settled = 0
    const live = services((store) => ({
      settle: (settlements) =>
        Effect.suspend(() => {
          for (const [, { _tag }] of settlements) {
            if (_tag === "Release") released++
            else settled++
          }
          return store.settle(settlements)
        })
    }))
    return Effect.gen(function* () {
      yield* Queue.enqueueAll(
        Task,
        Array.from({ length: 900 }, (_, n) => ({ n }))
      )
      yield* work(({ n }) => Effect.as(n < 30 ? Effect.sleep("1 minute") : Effect.sleep("8 millis"), n), {
        queues: { default: { concurrency: 32 } }
      })
      for (let step = 0; step < 200; step++) yield* TestClock.adjust("8 millis")
      expect(released).toBe(0)
      expect(settled).toBeGreaterThan(300)
    }).pipe(Effect.scoped, Effect.provide(live))
  })

  it.effect("are fewer where a claim fails, until its answer gets through", () => {
    const asked: Array<number> = []
    const live = services((store) => ({
      claim: (request) =>
        Effect.suspend(() => {
          asked.push(request.limit)
          return request.limit > 5 ? Effect.fail(down) : store.claim(request)
        })
    }))
    return Effect.gen(function* () {
      yield* Queue.enqueueAll(
        Task,
        Array.from({ length: 5 }, (_, n) => ({ n }))
      )
      yield* work(({ n }) => Effect.succeed(n), { queues: { default: { concurrency: 32 } } })
      yield* TestClock.adjust("1 minute")
      expect(asked.slice(0, 4)).toEqual([32, 16, 8, 4])
      expect(yield* Queue.counts).toContainEqual({ queue: "default", state: "succeeded", count: 5 })
    }).pipe(Effect.scoped, Effect.provide(live), Logger.withMinimumLogLevel(LogLevel.None))
  })

  it.effect("are renewed while they wait, and given back after a second when the slots do not get free", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      const enqueued = yield* Queue.enqueueAll(
        Task,
        Array.from({ length: 40 }, (_, n) => ({ n }))
      )
      yield* work(({ n }) => Effect.as(n < 20 ? Effect.sleep("1 millis") : Deferred.await(gate), n), {
        queues: { default: { concurrency: 5 } }
      })
      yield* TestClock.adjust("500 millis")
      expect(yield* claimedAhead("default")).toBeGreaterThan(7)
      yield* TestClock.adjust("2 seconds")
      expect(yield* claimedAhead("default")).toBe(5)
      yield* TestClock.adjust("40 seconds")
      yield* Deferred.succeed(gate, void 0)
      yield* TestClock.adjust("5 seconds")
      const records = yield* Effect.forEach(enqueued, ({ id }) => Queue.get(id))
      expect(records.every(({ state }) => state === "succeeded")).toBe(true)
      // Given back is given back: no budget was spent on waiting.
      expect(
        records.every(
          ({ attempts }) => attempts.filter(({ outcome }) => !Option.contains(outcome, "released")).length === 1
        )
      ).toBe(true)
    }).pipe(Effect.scoped, Effect.provide(services()))
  )
})

describe("a logger that throws", () => {
  it.effect("H9: ends neither the worker nor a handler that logs", () => {
    const said: Array<unknown> = []
    const throwing = Logger.replace(
      Logger.defaultLogger,
      Logger.make(({ message }) => {
        said.push(message)
        throw new Error("The sink of the logs is full")
      })
    )
    return Effect.gen(function* () {
      yield* work(({ n }) =>
        Effect.zipRight(Effect.logInfo("At work"), n === 2 ? Effect.die("a defect") : Effect.succeed(n))
      )
      for (const n of [1, 2, 3]) {
        const { id } = yield* Queue.enqueue(Task, { n })
        yield* TestClock.adjust("2 seconds")
        expect((yield* Queue.get(id)).state).toBe(n === 2 ? "pending" : "succeeded")
      }
      expect(said.flat()).toContain("At work")
    }).pipe(Effect.scoped, Effect.provide(services()), Effect.provide(throwing))
  })
})
