import { describe, expect, it } from "@effect/vitest"
import { DateTime, Effect, Fiber, Layer, Option, Schema, TestClock, Tracer } from "effect"
import * as Job from "../../src/Job.js"
import { Retryable } from "../../src/JobFailure.js"
import type { JobState } from "../../src/JobRecord.js"
import type { NewJob } from "../../src/JobStore.js"
import * as Payload from "../../src/Payload.js"
import * as Queue from "../../src/Queue.js"
import { InTransaction, StoreUnavailable } from "../../src/QueueError.js"
import * as RetryPolicy from "../../src/RetryPolicy.js"
import * as Wakeup from "../../src/Wakeup.js"
import { services } from "../support/Services.js"

const Task = Job.make("task", { payload: { n: Schema.Number }, success: Schema.Number, priority: 3 })
const Keyed = Job.make("keyed", { payload: { n: Schema.Number }, idempotencyKey: ({ n }) => `n:${n}` })

/** A store that keeps what it was asked to enqueue. */
const recording = () => {
  const asked: Array<NewJob> = []
  const live = services((store) => ({
    enqueue: (jobs) =>
      Effect.zipRight(
        Effect.sync(() => asked.push(...jobs)),
        store.enqueue(jobs)
      )
  }))
  return { asked, live }
}

describe("an enqueue", () => {
  it.effect("writes the encoded payload with the options of the job", () => {
    const { asked, live } = recording()
    return Effect.gen(function* () {
      expect(yield* Queue.enqueue(Task, { n: 1 })).toEqual({ id: "1", created: true })
      yield* Queue.enqueue(Task, { n: 2 }, { priority: 9, delay: "10 seconds" })
      yield* Queue.enqueue(Task, { n: 3 }, { runAt: DateTime.unsafeMake("2500-01-01T00:00:00Z") })
      expect(asked.map(({ due, payload, priority }) => [payload, priority, Option.getOrNull(due) !== null])).toEqual([
        ['{"n":1}', 3, false],
        ['{"n":2}', 9, true],
        ['{"n":3}', 3, true]
      ])
    }).pipe(Effect.provide(live))
  })

  it.effect(
    "carries the trace that it is in: its own span's where spans are collected, else that of who asked, or none",
    () => {
      const { asked, live } = recording()
      const each = Effect.gen(function* () {
        yield* Queue.enqueue(Task, { n: 1 })
        yield* Queue.enqueueAll(Task, [{ n: 2 }])
        yield* Queue.enqueueMany([Queue.request(Task, { n: 3 })])
      })
      const traces = Effect.sync(() => asked.splice(0).map(({ traceContext }) => Option.getOrNull(traceContext)))
      const contextOf = (span: Tracer.AnySpan) => `00-${span.traceId}-${span.spanId}-01`
      return Effect.gen(function* () {
        yield* each
        expect(yield* traces).toEqual([null, null, null])
        const around = yield* Effect.withSpan(Effect.zipLeft(Effect.currentSpan, each), "request")
        expect(yield* traces).toEqual(Array.from({ length: 3 }, () => contextOf(around)))
        const spans: Array<Tracer.Span> = []
        const native = yield* Effect.tracer
        const collecting = Tracer.make({
          span: (...made) => {
            const span = native.span(...made)
            spans.push(span)
            return span
          },
          context: (run) => run()
        })
        yield* Effect.withTracer(each, collecting)
        expect(spans.map(({ name }) => name)).toEqual(Array.from({ length: 3 }, () => "leasehold.enqueue"))
        expect(yield* traces).toEqual(spans.map(contextOf))
      }).pipe(Effect.provide(live))
    }
  )

  it.effect("is refused before any SQL where an option is out of range", () => {
    const { asked, live } = recording()
    const enqueue = (options: Queue.EnqueueOptions) => Effect.flip(Queue.enqueue(Task, { n: 1 }, options))
    const tag = (options: object) => Effect.map(enqueue(options as Queue.EnqueueOptions), (error) => error._tag)
    return Effect.gen(function* () {
      const after9999 = DateTime.unsafeMake(253_402_300_800_000)
      expect(
        yield* Effect.forEach([-1, Number.NaN, Number.POSITIVE_INFINITY, "1e12 seconds", "-1 seconds", 1e15], (delay) =>
          tag({ delay })
        )
      ).toEqual(Array.from({ length: 6 }, () => "TimeInvalid"))
      expect(yield* Effect.forEach([-5n, [-1, 0], [0, -1], [Number.NaN, 0]], (delay) => tag({ delay }))).toEqual(
        Array.from({ length: 4 }, () => "TimeInvalid")
      )
      const Keyless = Job.make("keyless", { payload: {}, idempotencyKey: () => undefined as unknown as string })
      expect((yield* Effect.flip(Queue.enqueue(Keyless, {})))._tag).toBe("KeyInvalid")
      expect(
        yield* Effect.forEach([after9999, new Date(Number.NaN), "2020-01-01", null], (runAt) => tag({ runAt }))
      ).toEqual(Array.from({ length: 4 }, () => "TimeInvalid"))
      expect(yield* tag({ delay: 1, runAt: DateTime.unsafeMake(1) })).toBe("InvalidOption")
      expect(yield* Effect.forEach([-1, 10, 1.5, Number.NaN, 2 ** 31], (priority) => tag({ priority }))).toEqual(
        Array.from({ length: 5 }, () => "InvalidOption")
      )
      const keys = ["", "k".repeat(256), "é".repeat(128), "\uD800", undefined, 5, null]
      expect(yield* Effect.forEach(keys, (key) => tag({ idempotency: { key } }))).toEqual(keys.map(() => "KeyInvalid"))
      expect(yield* tag({ idempotency: { scope: "s".repeat(256), key: "k" } })).toBe("KeyInvalid")
      expect(yield* tag({ requireTransaction: true })).toBe("NotInTransaction")
      expect(asked).toEqual([])
    }).pipe(Effect.provide(live))
  })

  it.effect("takes what is in the past, and the ends of the ranges", () => {
    const { asked, live } = recording()
    return Effect.gen(function* () {
      const times = ["1970-01-01T00:00:00Z", "1969-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]
      yield* Effect.forEach(times, (time) => Queue.enqueue(Task, { n: 1 }, { runAt: DateTime.unsafeMake(time) }))
      yield* Queue.enqueue(Task, { n: 1 }, { idempotency: { scope: "s".repeat(255), key: "k".repeat(255) } })
      yield* Queue.enqueue(Task, { n: 1 }, { delay: 0, priority: 0 })
      expect(asked.map(({ due }) => Option.isSome(due))).toEqual([false, false, false, true, false, false])
    }).pipe(Effect.provide(live))
  })

  it.effect("refuses a payload that is too large or no JSON, and says where, not what", () =>
    Effect.gen(function* () {
      const Text = Job.make("text", { payload: { text: Schema.Unknown } })
      const large = yield* Effect.flip(Queue.enqueue(Text, { text: "x".repeat(200) }))
      expect(large).toMatchObject({ _tag: "PayloadTooLarge", limit: 100, size: 211 })
      const invalid = yield* Effect.flip(Queue.enqueue(Text, { text: 5n }))
      expect(invalid.message).toContain("it.text is a bigint")
    }).pipe(Effect.provide(Layer.merge(services(), Layer.succeed(Payload.Limit, 100))))
  )

  it.effect("replays by the job's key or by an explicit one, which wins", () =>
    Effect.gen(function* () {
      const first = yield* Queue.enqueue(Keyed, { n: 1 })
      expect(yield* Queue.enqueue(Keyed, { n: 1 })).toEqual({ id: first.id, created: false })
      const other = yield* Queue.enqueue(Keyed, { n: 1 }, { idempotency: { key: "mine" } })
      expect(other.created).toBe(true)
      const scoped = yield* Queue.enqueue(Keyed, { n: 1 }, { idempotency: { scope: "a", key: "mine" } })
      expect(scoped.created).toBe(true)
      const conflict = yield* Effect.flip(Queue.enqueue(Keyed, { n: 2 }, { idempotency: { key: "mine" } }))
      expect(conflict._tag).toBe("IdempotencyConflict")
      const found = yield* Queue.find({ scope: "a", key: "mine" })
      expect(Option.map(found, ({ id }) => id)).toEqual(Option.some(scoped.id))
      expect(yield* Queue.find({ key: "nobody's" })).toEqual(Option.none())
    }).pipe(Effect.provide(services()))
  )

  it.effect("of very many lets timers and answers have their turn: a lease could not be renewed meanwhile", () => {
    const enqueues = {
      enqueueAll: (payloads: ReadonlyArray<{ readonly n: number }>) => Queue.enqueueAll(Task, payloads),
      enqueueMany: (payloads: ReadonlyArray<{ readonly n: number }>) =>
        Queue.enqueueMany(payloads.map((payload) => Queue.request(Task, payload)))
    }
    return Effect.forEach(Object.values(enqueues), (enqueue) =>
      Effect.gen(function* () {
        let turned = false
        const seen: Array<boolean> = []
        const payloads = Array.from({ length: 10_000 }, () => ({
          get n() {
            return seen.push(turned)
          }
        }))
        setImmediate(() => {
          turned = true
        })
        const enqueued = yield* enqueue(payloads)
        expect(enqueued.length).toBe(10_000)
        expect(seen.filter((before) => !before).length).toBeLessThan(5_000)
      })
    ).pipe(Effect.provide(services()))
  })

  it.effect("of many is one call, in order, of several types if wanted", () => {
    const { asked, live } = recording()
    return Effect.gen(function* () {
      const all = yield* Queue.enqueueAll(Task, [{ n: 1 }, { n: 2 }], { delay: "1 minute" })
      expect(all.map(({ id }) => id)).toEqual(["1", "2"])
      const mixed = yield* Queue.enqueueMany([Queue.request(Keyed, { n: 3 }), Queue.request(Task, { n: 4 })])
      expect(mixed.length).toBe(2)
      expect(asked.map(({ type }) => type)).toEqual(["task", "task", "keyed", "task"])
      expect(yield* Queue.enqueueAll(Task, [])).toEqual([])
      const none = yield* Effect.flip(
        Queue.enqueueMany([Queue.request(Task, { n: 5 }), Queue.request(Task, { n: Number.NaN })])
      )
      expect(none._tag).toBe("PayloadInvalid")
      expect(asked.length).toBe(4)
    }).pipe(Effect.provide(live))
  })

  it.effect("N5: takes priorities from 0 to 9 and refuses every other number, in its options and in the job's", () =>
    Effect.gen(function* () {
      for (const priority of [0, 9]) {
        const { id } = yield* Queue.enqueue(Task, { n: 1 }, { priority })
        expect((yield* Queue.get(id)).priority).toBe(priority)
      }
      for (const priority of [-(2 ** 31), -1, 10, 2 ** 31 - 1, 2 ** 31, 1.5, Number.NaN, Number.POSITIVE_INFINITY]) {
        const refusal = { _tag: "InvalidOption", option: "priority", accepted: "a whole number from 0 (first) to 9" }
        expect(yield* Effect.flip(Queue.enqueue(Task, { n: 1 }, { priority })), `${priority}`).toMatchObject(refusal)
        const Defined = Job.make("defined", { payload: Schema.Void, priority })
        expect(yield* Effect.flip(Queue.enqueue(Defined, undefined)), `${priority}`).toMatchObject(refusal)
      }
      expect(yield* Queue.counts).toEqual([{ queue: "default", state: "pending", count: 2 }])
    }).pipe(Effect.provide(services()))
  )

  it.effect("reports a job that was defined out of range", () =>
    Effect.gen(function* () {
      const Bad = Job.make("bad type", { payload: Schema.Void })
      expect(yield* Effect.flip(Queue.enqueue(Bad, undefined))).toMatchObject({ _tag: "InvalidName", name: "bad type" })
    }).pipe(Effect.provide(services()))
  )
})

describe("a wake-up", () => {
  const listening = (
    live: Layer.Layer<Queue.Queue | Wakeup.Wakeup>,
    act: Effect.Effect<unknown, unknown, Queue.Queue>
  ) =>
    Effect.gen(function* () {
      const heard: Array<number> = []
      const { subscribe } = yield* Wakeup.Wakeup
      const signal = yield* subscribe("default")
      const now = Effect.clockWith((clock) => clock.currentTimeMillis)
      const start = yield* now
      yield* Effect.forkScoped(
        Effect.forever(
          Effect.zipRight(
            signal.wait,
            Effect.map(now, (at) => heard.push(at - start))
          )
        )
      )
      yield* act
      yield* TestClock.adjust("1 minute")
      return heard
    }).pipe(Effect.scoped, Effect.provide(live))

  it.effect("follows an enqueue of a job that is due, at once", () =>
    Effect.gen(function* () {
      expect(yield* listening(services(), Queue.enqueue(Task, { n: 1 }))).toEqual([0])
      expect(yield* listening(services(), Queue.enqueue(Task, { n: 1 }, { delay: "1 second" }))).toEqual([])
    })
  )

  it.effect("follows an enqueue in a transaction again and again for a second, since nobody reports the commit", () =>
    Effect.gen(function* () {
      const inTransaction = services(() => ({ refuseTransaction: (verb) => Effect.fail(new InTransaction({ verb })) }))
      expect(yield* listening(inTransaction, Queue.enqueue(Task, { n: 1 }))).toEqual([10, 30, 70, 150, 310, 630, 1_270])
    })
  )

  it.effect("follows a retry, of one or of many, at once, and in a transaction when it has committed", () => {
    const canceled = Effect.tap(Queue.enqueue(Task, { n: 1 }, { delay: "1 hour" }), ({ id }) => Queue.cancel(id))
    const one = Effect.flatMap(canceled, ({ id }) => Queue.retry(id))
    const inTransaction = services(() => ({ refuseTransaction: (verb) => Effect.fail(new InTransaction({ verb })) }))
    return Effect.gen(function* () {
      expect(yield* listening(services(), canceled)).toEqual([])
      expect(yield* listening(services(), one)).toEqual([0])
      expect(yield* listening(services(), Effect.zipRight(canceled, Queue.retryAll()))).toEqual([0])
      expect(yield* listening(services(), Effect.zipRight(canceled, Queue.retryAll({ state: "dead" })))).toEqual([])
      const committed = Queue.withTransaction(Effect.zipLeft(one, Effect.sleep("1 second")))
      const later = Effect.flatMap(Effect.fork(committed), (fiber) =>
        Effect.zipRight(TestClock.adjust("1 second"), Fiber.join(fiber))
      )
      expect(yield* listening(services(), later)).toEqual([1_000])
      const undone = Effect.exit(Queue.withTransaction(Effect.zipRight(one, Effect.fail("no"))))
      expect(yield* listening(services(), undone)).toEqual([])
      expect(yield* listening(inTransaction, one)).toEqual([10, 30, 70, 150, 310, 630, 1_270])
    })
  })

  it.effect("is not lost between a claim and the wait after it", () =>
    Effect.gen(function* () {
      const { notify, subscribe } = yield* Wakeup.Wakeup
      const signal = yield* subscribe("q")
      yield* signal.clear
      yield* Effect.all([notify("q"), notify("q"), notify("other")])
      yield* signal.wait
      const second = yield* Effect.fork(signal.wait)
      yield* TestClock.adjust("1 second")
      expect(yield* Fiber.poll(second)).toEqual(Option.none())
      yield* notify("q")
      yield* Fiber.join(second)
    }).pipe(Effect.scoped, Effect.provide(Wakeup.layer))
  )

  it.effect("comes within 10 ms of a new transaction also while the back-off of an older one is far on", () =>
    Effect.gen(function* () {
      const { notifyLater, subscribe } = yield* Wakeup.Wakeup
      const signal = yield* subscribe("q")
      yield* notifyLater("q")
      yield* TestClock.adjust("700 millis")
      yield* signal.clear
      yield* notifyLater("q")
      const woken = yield* Effect.fork(signal.wait)
      yield* TestClock.adjust("10 millis")
      expect(Option.isSome(yield* Fiber.poll(woken))).toBe(true)
    }).pipe(Effect.scoped, Effect.provide(Wakeup.layer))
  )
})

describe("a job's id", () => {
  it.effect("that is none names no job, and is never sent", () =>
    Effect.gen(function* () {
      yield* Queue.enqueueAll(
        Task,
        Array.from({ length: 12 }, (_, n) => ({ n }))
      )
      const ids: ReadonlyArray<unknown> = [
        "12abc",
        " 12",
        "12 ",
        "12.0",
        "1e1",
        "0x0c",
        "012",
        "",
        "null",
        "-1",
        "0",
        String(2n ** 64n),
        12,
        null,
        ["12"],
        {}
      ]
      for (const id of ids as ReadonlyArray<string>) {
        for (const verb of [
          Queue.get,
          Queue.cancel,
          Queue.retry,
          Queue.why,
          (text: string) => Queue.result(Task, text)
        ]) {
          expect((yield* Effect.flip<unknown, { readonly _tag: string }, Queue.Queue>(verb(id)))._tag).toBe(
            "JobNotFound"
          )
        }
      }
      expect(yield* Queue.counts).toEqual([{ queue: "default", state: "pending", count: 12 }])
      expect((yield* Effect.flip(Queue.get(String(2n ** 64n - 1n))))._tag).toBe("JobNotFound")
    }).pipe(Effect.provide(services()))
  )
})

describe("a wait for a result", () => {
  it.effect("answers the decoded success once the job has ended", () =>
    Effect.gen(function* () {
      const { id } = yield* Queue.enqueue(Task, { n: 1 })
      const waiting = yield* Effect.fork(Queue.result(Task, id))
      yield* TestClock.adjust("3 seconds")
      yield* Effect.scoped(Effect.flatMap(Queue.claim(Task), (lease) => lease.complete(7)))
      yield* TestClock.adjust("1 second")
      expect(yield* Fiber.join(waiting)).toBe(7)
    }).pipe(Effect.provide(services()))
  )

  it.effect("says that the job is dead, canceled, or has not ended in time", () =>
    Effect.gen(function* () {
      const Once = Job.make("once", { payload: Schema.Void, retry: RetryPolicy.fixed({ delay: 1, maxAttempts: 1 }) })
      const dead = yield* Queue.enqueue(Once, undefined)
      yield* Effect.scoped(
        Effect.flatMap(Queue.claim(Once), (lease) => lease.fail(new Retryable({ code: "a", message: "b" })))
      )
      expect(yield* Effect.flip(Queue.result(Once, dead.id))).toMatchObject({ _tag: "JobDead", code: "a", reason: "b" })
      const canceled = yield* Queue.enqueue(Once, undefined)
      yield* Queue.cancel(canceled.id)
      expect(yield* Effect.flip(Queue.result(Once, canceled.id))).toMatchObject({ _tag: "JobCanceled" })
      const open = yield* Queue.enqueue(Once, undefined)
      const waiting = yield* Effect.fork(Effect.flip(Queue.result(Once, open.id, { timeout: "5 seconds" })))
      yield* TestClock.adjust("5 seconds")
      expect(yield* Fiber.join(waiting)).toMatchObject({ _tag: "ResultTimeout", state: "pending" })
      expect((yield* Effect.flip(Queue.result(Task, open.id)))._tag).toBe("PayloadInvalid")
      expect((yield* Effect.flip(Queue.result(Once, open.id, { timeout: Number.NaN })))._tag).toBe("InvalidOption")
    }).pipe(Effect.provide(services()))
  )

  it.effect("waits out a database that is away, and refuses an open transaction", () =>
    Effect.gen(function* () {
      let away = 3
      const down = new StoreUnavailable({ verb: "get", reason: "connection", code: "x" })
      const live = services((store) => ({
        get: (id) => Effect.suspend(() => (away-- > 0 ? Effect.fail(down) : store.get(id)))
      }))
      const waiting = yield* Effect.fork(
        Effect.flip(
          Effect.flatMap(Queue.enqueue(Task, { n: 1 }), ({ id }) => Queue.result(Task, id, { timeout: "2 seconds" }))
        ).pipe(Effect.provide(live))
      )
      yield* TestClock.adjust("3 seconds")
      expect((yield* Fiber.join(waiting))._tag).toBe("ResultTimeout")
      const inTransaction = services(() => ({ refuseTransaction: (verb) => Effect.fail(new InTransaction({ verb })) }))
      expect((yield* Effect.flip(Queue.result(Task, "1")).pipe(Effect.provide(inTransaction)))._tag).toBe(
        "InTransaction"
      )
    })
  )
})

describe("operators", () => {
  it.effect("pause and resume a queue, list, count, and bring back what ended badly", () =>
    Effect.gen(function* () {
      const jobs = yield* Queue.enqueueAll(
        Task,
        Array.from({ length: 5 }, (_, n) => ({ n }))
      )
      yield* Queue.pause("default")
      expect(yield* Queue.paused).toEqual(["default"])
      expect((yield* Effect.scoped(Effect.flip(Queue.claim(Task))))._tag).toBe("NothingDue")
      yield* Queue.resume("default")
      yield* Effect.scoped(Effect.flatMap(Queue.claim(Task), (lease) => lease.complete(1)))
      yield* Effect.forEach(jobs.slice(1, 4), ({ id }) => Queue.cancel(id))
      expect((yield* Queue.list({ state: "canceled", limit: 2 })).map(({ id }) => id)).toEqual(["2", "3"])
      expect((yield* Queue.list({ state: "canceled", after: "3" })).map(({ id }) => id)).toEqual(["4"])
      yield* Queue.retry("2")
      expect((yield* Effect.flip(Queue.retry("2")))._tag).toBe("JobNotEnded")
      expect(yield* Queue.retryAll({ queue: "default" })).toBe(2)
      expect(yield* Queue.counts).toContainEqual({ queue: "default", state: "pending", count: 4 })
      expect((yield* Effect.flip(Queue.pause("no such name")))._tag).toBe("InvalidName")
      expect((yield* Effect.flip(Queue.list({ limit: 0 })))._tag).toBe("InvalidOption")
      const unchecked: string = "done"
      expect(yield* Effect.flip(Queue.list({ state: unchecked as JobState }))).toMatchObject({
        _tag: "InvalidOption",
        option: "state",
        value: "done"
      })
    }).pipe(Effect.provide(services()))
  )

  it.effect("are told the story of a job in order, with late writes that were refused", () =>
    Effect.gen(function* () {
      const { id } = yield* Queue.enqueue(Task, { n: 1 })
      yield* Effect.scoped(
        Effect.gen(function* () {
          const stale = yield* Queue.claim(Task, { lease: "1 second" })
          yield* Effect.scoped(
            Effect.gen(function* () {
              yield* TestClock.adjust("5 seconds")
              const lease = yield* Queue.claim(Task)
              yield* TestClock.adjust("1 second")
              yield* Effect.flip(stale.complete(1))
              yield* TestClock.adjust("1 second")
              yield* lease.complete(2)
            })
          )
        })
      )
      const story = yield* Queue.why(id)
      expect(story.now).toBe("Succeeded")
      expect(story.events.map(({ kind, token }) => [kind, Option.getOrNull(token)])).toEqual([
        ["enqueued", null],
        ["started", 1],
        ["ended", 1],
        ["started", 2],
        ["refused", 1],
        ["ended", 2],
        ["finished", null]
      ])
    }).pipe(
      Effect.provide(
        services(() => ({
          // The first holder hears nothing of its loss but from its own write.
          renew: (leases) => Effect.succeed(leases.map(() => ({ _tag: "Renewed", cancelRequested: false })))
        }))
      )
    )
  )
})
