import { describe, expect, it } from "@effect/vitest"
import { Context, DateTime, Effect, Layer, Ref, Schema, TestClock } from "effect"
import * as Job from "../../../src/Job.js"
import { Permanent, Retryable } from "../../../src/JobFailure.js"
import * as Queue from "../../../src/Queue.js"
import * as RetryPolicy from "../../../src/RetryPolicy.js"
import { MemoryQueue, Rehearsal, TestQueue } from "../../../src/testing/index.js"
import "../../../src/testing/vitest.js"

const Export = Job.make("export", {
  payload: { at: Schema.Date, secret: Schema.String },
  success: Schema.Struct({ size: Schema.BigInt }),
  retry: RetryPolicy.fixed({ delay: "10 seconds", maxAttempts: 2, jitter: 0 })
})
const Mail = Job.make("mail", { payload: { to: Schema.String }, idempotencyKey: ({ to }) => `to:${to}` })
const Ping = Job.make("ping", { payload: Schema.Void })

const payload = { at: new Date(0), secret: "hunter2" }

/** What an assertion that fails says. */
const messageOf = (assertion: () => void): string => {
  try {
    assertion()
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
  return "the assertion holds"
}

const lines = (...all: ReadonlyArray<string>) => all.join("\n  ")
const hidden = "payloads and results are told where the test takes TestQueue.snapshot({ showPayloads: true })"

describe("toHaveEnqueued", () => {
  it.effect("holds for a job with this payload, a part of it, or any", () =>
    Effect.gen(function* () {
      yield* Queue.enqueue(Export, payload)
      yield* Queue.enqueue(Ping, undefined)
      const queue = yield* TestQueue.snapshot()
      expect(queue).toHaveEnqueued(Export)
      expect(queue).toHaveEnqueued(Export, { at: new Date(0), secret: "hunter2" })
      expect(queue).toHaveEnqueued(Export, { at: new Date(0), secret: expect.stringMatching(/^hunter/) })
      expect(queue).toHaveEnqueued(Export, expect.objectContaining({ secret: "hunter2" }))
      expect(queue).toHaveEnqueued(Ping)
      expect(queue).not.toHaveEnqueued(Mail)
      expect(queue).not.toHaveEnqueued(Export, { at: new Date(1), secret: "hunter2" })
    }).pipe(Effect.provide(MemoryQueue.layer))
  )

  it.effect("holds for the options of the enqueue", () =>
    Effect.gen(function* () {
      yield* Queue.enqueue(Mail, { to: "Ada" }, { delay: "10 seconds", priority: 2 })
      yield* Queue.enqueue(Mail, { to: "Bob" }, { idempotency: { scope: "tenant", key: "k" } })
      const at = DateTime.unsafeMake(60_000)
      yield* Queue.enqueue(Mail, { to: "Eve" }, { runAt: at })
      const queue = yield* TestQueue.snapshot()
      expect(queue).toHaveEnqueued(Mail, { to: "Ada" }, { delay: "10 seconds", priority: 2 })
      expect(queue).toHaveEnqueued(Mail, undefined, { idempotency: { key: "to:Ada" } })
      expect(queue).toHaveEnqueued(Mail, { to: "Bob" }, { delay: 0, idempotency: { scope: "tenant", key: "k" } })
      expect(queue).toHaveEnqueued(Mail, { to: "Eve" }, { runAt: at })
      expect(queue).not.toHaveEnqueued(Mail, undefined, { idempotency: { key: "k" } })
    }).pipe(Effect.provide(MemoryQueue.layer))
  )

  it.effect("holds for a time in the past, as it was asked for", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(1_000_000)
      const past = DateTime.unsafeMake(1_000)
      yield* Queue.enqueue(Mail, { to: "Ada" }, { runAt: past })
      expect(yield* TestQueue.snapshot()).toHaveEnqueued(Mail, { to: "Ada" }, { runAt: past })
    }).pipe(Effect.provide(MemoryQueue.layer))
  )

  it.effect("stays as it was: a snapshot is of one moment", () =>
    Effect.gen(function* () {
      const before = yield* TestQueue.snapshot()
      yield* Queue.enqueue(Mail, { to: "Ada" })
      expect(before).not.toHaveEnqueued(Mail)
      expect(yield* TestQueue.snapshot()).toHaveEnqueued(Mail)
    }).pipe(Effect.provide(MemoryQueue.layer))
  )

  it.effect("says of each job of the type what differs, and counts the others, without a payload", () =>
    Effect.gen(function* () {
      yield* Queue.enqueue(Export, payload, { delay: "5 seconds" })
      yield* Queue.enqueue(Export, { ...payload, secret: "other" }, { priority: 1, idempotency: { key: "hidden" } })
      yield* Queue.enqueue(Mail, { to: "Ada" })
      yield* Queue.enqueue(Mail, { to: "Bob" })
      const queue = yield* TestQueue.snapshot()
      const asked = { delay: "1 minute", priority: 5, idempotency: { key: "k" } } as const
      expect(messageOf(() => expect(queue).toHaveEnqueued(Export, payload, asked))).toBe(
        lines(
          'expected a job "export" in the queue as described, but there is none:',
          "job 1 is pending, its delay is 5s, it has no key",
          "job 2 is pending, its payload differs, its delay is 0, its priority is 1, its scope or key differs",
          hidden,
          'of other types: 2 × "mail"'
        )
      )
      expect(messageOf(() => expect(queue).toHaveEnqueued(Export, payload, { runAt: DateTime.unsafeMake(1) }))).toBe(
        lines(
          'expected a job "export" in the queue as described, but there is none:',
          "job 1 is pending, it was first due at 1970-01-01T00:00:05.000Z",
          "job 2 is pending, its payload differs, it was first due at 1970-01-01T00:00:00.000Z",
          hidden,
          'of other types: 2 × "mail"'
        )
      )
    }).pipe(Effect.provide(MemoryQueue.layer))
  )

  it.effect("shows payloads where it is asked to", () =>
    Effect.gen(function* () {
      yield* Queue.enqueue(Export, payload)
      const queue = yield* TestQueue.snapshot({ showPayloads: true })
      const message = messageOf(() => expect(queue).toHaveEnqueued(Export, { at: new Date(0), secret: "other" }))
      expect(message).toBe(
        lines(
          'expected a job "export" in the queue as described, but there is none:',
          "job 1 is pending, its payload differs",
          '  payload {"at":"1970-01-01T00:00:00.000Z","secret":"hunter2"}'
        )
      )
    }).pipe(Effect.provide(MemoryQueue.layer))
  )

  it.effect("says what is there in its place, or that nothing is", () =>
    Effect.gen(function* () {
      const empty = yield* TestQueue.snapshot()
      expect(messageOf(() => expect(empty).toHaveEnqueued(Export))).toBe(
        lines('expected a job "export" in the queue, but there is none:', "the queue is empty")
      )
      yield* Queue.enqueue(Mail, { to: "Ada" })
      const queue = yield* TestQueue.snapshot()
      expect(messageOf(() => expect(queue).toHaveEnqueued(Export))).toBe(
        lines('expected a job "export" in the queue, but there is none:', 'of other types: 1 × "mail"')
      )
    }).pipe(Effect.provide(MemoryQueue.layer))
  )

  it.effect("with not, says which jobs are there", () =>
    Effect.gen(function* () {
      yield* Queue.enqueue(Mail, { to: "Ada" })
      const one = yield* TestQueue.snapshot()
      expect(messageOf(() => expect(one).not.toHaveEnqueued(Mail, { to: "Ada" }))).toBe(
        lines('expected no job "mail" in the queue as described, but there is one:', "job 1 is pending", hidden)
      )
      yield* Queue.enqueue(Mail, { to: "Bob" })
      const two = yield* TestQueue.snapshot()
      expect(messageOf(() => expect(two).not.toHaveEnqueued(Mail))).toBe(
        lines('expected no job "mail" in the queue, but there are 2:', "job 1 is pending", "job 2 is pending", hidden)
      )
    }).pipe(Effect.provide(MemoryQueue.layer))
  )

  it.effect("tells twenty jobs, and counts the rest", () =>
    Effect.gen(function* () {
      yield* Queue.enqueueAll(Ping, Array.from({ length: 23 }))
      const queue = yield* TestQueue.snapshot()
      const message = messageOf(() => expect(queue).not.toHaveEnqueued(Ping)).split("\n")
      expect(message.filter((line) => line.includes("is pending"))).toHaveLength(20)
      expect(message).toContain("  and 3 more of this type")
    }).pipe(Effect.provide(MemoryQueue.layer))
  )

  it("refuses what is no snapshot, with and without not", () => {
    const wrong = "toHaveEnqueued looks at a snapshot: expect(yield* TestQueue.snapshot()).toHaveEnqueued(…)"
    // @ts-expect-error an effect is no snapshot: the `yield*` is missing
    expect(messageOf(() => expect(TestQueue.snapshot()).toHaveEnqueued(Mail))).toBe(wrong)
    // @ts-expect-error nor is a list
    expect(messageOf(() => expect([]).not.toHaveEnqueued(Mail))).toBe(wrong)
  })
})

describe("toHaveSucceeded and toHaveDied", () => {
  const handlers = Layer.mergeAll(
    Export.toLayer(({ secret }) => {
      if (secret === "later") return new Retryable({ code: "busy", message: "try later" })
      return secret === "never" ? new Permanent({ code: "gone", message: "for good" }) : Effect.succeed({ size: 7n })
    }),
    Mail.toLayer(() => Effect.void)
  )
  const drained = Effect.gen(function* () {
    for (const secret of ["fine", "later", "never"]) yield* Queue.enqueue(Export, { ...payload, secret })
    yield* Queue.enqueue(Mail, { to: "Ada" })
    yield* TestQueue.drain([Export, Mail])
  })

  it.effect("hold for the jobs that ended so, with this result or this error", () =>
    Effect.gen(function* () {
      yield* drained
      const queue = yield* TestQueue.snapshot()
      expect(queue).toHaveSucceeded(Export)
      expect(queue).toHaveSucceeded(Export, { size: 7n })
      expect(queue).toHaveSucceeded(Mail)
      expect(queue).toHaveDied(Export)
      expect(queue).toHaveDied(Export, "gone")
      expect(queue).not.toHaveSucceeded(Export, { size: 8n })
      expect(queue).not.toHaveDied(Export, "busy")
      expect(queue).not.toHaveDied(Mail)
      expect(queue).not.toHaveSucceeded(Ping)
    }).pipe(Effect.provide(handlers.pipe(Layer.provideMerge(MemoryQueue.layer))))
  )

  it.effect("say how each job of the type stands", () =>
    Effect.gen(function* () {
      yield* drained
      const queue = yield* TestQueue.snapshot()
      expect(messageOf(() => expect(queue).toHaveSucceeded(Export, { size: 8n }))).toBe(
        lines(
          'expected a job "export" to have succeeded with this result, but there is none:',
          "job 1 is succeeded, its result differs",
          "job 2 is pending after 1 attempt (busy: try later)",
          "job 3 is dead after 1 attempt (gone: for good)",
          hidden,
          'of other types: 1 × "mail"'
        )
      )
      expect(messageOf(() => expect(queue).toHaveDied(Export, "busy"))).toBe(
        lines(
          'expected a job "export" to be dead of "busy", but there is none:',
          "job 1 is succeeded",
          "job 2 is pending after 1 attempt (busy: try later)",
          "job 3 is dead after 1 attempt (gone: for good), its error differs",
          hidden,
          'of other types: 1 × "mail"'
        )
      )
      expect(messageOf(() => expect(queue).toHaveDied(Mail))).toBe(
        lines(
          'expected a job "mail" to be dead, but there is none:',
          "job 4 is succeeded",
          hidden,
          'of other types: 3 × "export"'
        )
      )
    }).pipe(Effect.provide(handlers.pipe(Layer.provideMerge(MemoryQueue.layer))))
  )

  it.effect("show results where they are asked to", () =>
    Effect.gen(function* () {
      yield* drained
      const queue = yield* TestQueue.snapshot({ showPayloads: true })
      expect(messageOf(() => expect(queue).not.toHaveSucceeded(Export))).toBe(
        lines(
          'expected no job "export" to have succeeded, but there is one:',
          "job 1 is succeeded",
          '  payload {"at":"1970-01-01T00:00:00.000Z","secret":"fine"}',
          '  result {"size":"7"}',
          'of other types: 1 × "mail"'
        )
      )
    }).pipe(Effect.provide(handlers.pipe(Layer.provideMerge(MemoryQueue.layer))))
  )
})

describe("toBeIdempotent", () => {
  class Book extends Context.Tag("test/Book")<Book, Ref.Ref<ReadonlyArray<string>>>() {}
  const world = Layer.effect(Book, Ref.make<ReadonlyArray<string>>([]))
  const observe = Effect.flatMap(Book, Ref.get)
  const write = (to: string) => Effect.flatMap(Book, (book) => Ref.update(book, (all) => [...all, to]))
  const writeOnce = (to: string) =>
    Effect.flatMap(Book, (book) => Ref.update(book, (all) => (all.includes(to) ? all : [...all, to])))
  const rehearsed = (act: (to: string) => Effect.Effect<void, never, Book>) =>
    Rehearsal.duplicate(Mail, { to: "Ada" }, { world, handler: Mail.toLayer(({ to }) => act(to)), observe })

  it.effect("holds for a handler that looks first, and not for one that does it again", () =>
    Effect.gen(function* () {
      expect(yield* rehearsed(writeOnce)).toBeIdempotent()
      expect(yield* rehearsed(write)).not.toBeIdempotent()
    })
  )

  it.effect("says after which points the world was another one, and shows it where it is asked to", () =>
    Effect.gen(function* () {
      const report = yield* rehearsed(write)
      const [point] = report.failures.map((failure) => failure.point)
      const head = [
        `expected a fault at any of ${report.points} points to leave the same world as none, but 1 left another:`,
        `after point ${point}; the job ended succeeded`
      ]
      expect(messageOf(() => expect(report).toBeIdempotent())).toBe(
        lines(...head, "what was observed is told by toBeIdempotent({ showObserved: true })")
      )
      expect(messageOf(() => expect(report).toBeIdempotent({ showObserved: true }))).toBe(
        lines(
          ...head,
          "without a fault: [ 'Ada' ]",
          `at point ${point}, when it stopped: [ 'Ada' ]`,
          `at point ${point}, when the job had ended: [ 'Ada', 'Ada' ]`
        )
      )
    })
  )

  it("tells points in a row as a range, and each end with its count", () => {
    const failure = (point: number, state: "succeeded" | "dead") => ({ point, state, left: 0, observed: 1 })
    const failures = [failure(2, "dead"), failure(4, "succeeded"), failure(5, "succeeded"), failure(6, "succeeded")]
    expect(messageOf(() => expect({ points: 9, clean: 0, failures }).toBeIdempotent())).toBe(
      lines(
        "expected a fault at any of 9 points to leave the same world as none, but 4 left another:",
        "after points 2, 4-6; the job ended dead 1 time, succeeded 3 times",
        "what was observed is told by toBeIdempotent({ showObserved: true })"
      )
    )
    expect(messageOf(() => expect({ points: 9, clean: 0, failures }).toBeIdempotent({ showObserved: true }))).toBe(
      lines(
        "expected a fault at any of 9 points to leave the same world as none, but 4 left another:",
        "after points 2, 4-6; the job ended dead 1 time, succeeded 3 times",
        "without a fault: 0",
        "at point 2, when it stopped: 0",
        "at point 2, when the job had ended: 1"
      )
    )
  })

  it("with not, says that no fault made a difference", () => {
    expect(messageOf(() => expect({ points: 9, clean: 0, failures: [] }).not.toBeIdempotent())).toBe(
      "expected a fault at one of 9 points to leave another world than none, but all left the same"
    )
  })

  it("refuses what is no report", () => {
    const wrong = "toBeIdempotent looks at a report: expect(yield* Rehearsal.crash(…)).toBeIdempotent()"
    // @ts-expect-error a text is no report
    expect(messageOf(() => expect("report").toBeIdempotent())).toBe(wrong)
  })
})
