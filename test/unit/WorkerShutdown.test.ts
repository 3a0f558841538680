import { describe, expect, it } from "@effect/vitest"
import { Cause, Chunk, Deferred, Effect, Exit, Fiber, Layer, Option, Ref, Schema, Scope, TestClock } from "effect"
import * as Job from "../../src/Job.js"
import * as Queue from "../../src/Queue.js"
import * as Worker from "../../src/Worker.js"
import { services } from "../support/Services.js"

const Task = Job.make("task", { payload: { n: Schema.Number }, success: Schema.Number })

type Handler = Job.Handler<{ readonly n: number }, number, never, never>

const work = (handler: Handler, options: Omit<Worker.Options, "jobs"> = {}) =>
  Worker.run({ maintenance: false, poll: "5 seconds", ...options, jobs: [Task] }).pipe(
    Effect.provide(Task.toLayer(handler)),
    Effect.fork
  )

/** Interrupts a worker while time goes on; answers how it ended. */
const stopped = <A, E>(worker: Fiber.Fiber<A, E>, time: "1 second" | "1 minute" = "1 minute") =>
  Effect.gen(function* () {
    const stopping = yield* Effect.fork(Fiber.interrupt(worker))
    yield* TestClock.adjust(time)
    return yield* Fiber.join(stopping)
  })

/** The jobs that a worker said it had left. */
const leftBy = (exit: Exit.Exit<unknown, unknown>) =>
  Exit.isFailure(exit)
    ? Chunk.toArray(Cause.failures(exit.cause)).flatMap((error) =>
        error instanceof Object && "unfinished" in error ? [error.unfinished] : []
      )
    : []

describe("a stop", () => {
  it.effect("lets a handler finish within the grace, renews its lease meanwhile, and starts nothing new", () =>
    Effect.gen(function* () {
      const ran = yield* Ref.make(0)
      const enqueued = yield* Queue.enqueueAll(
        Task,
        Array.from({ length: 20 }, (_, n) => ({ n }))
      )
      const worker = yield* work(
        ({ n }) =>
          Effect.zipRight(
            Ref.update(ran, (count) => count + 1),
            Effect.delay(Effect.succeed(n), "20 seconds")
          ),
        { lease: "3 seconds", queues: { default: { concurrency: 2 } } }
      )
      yield* TestClock.adjust("1 second")
      const exit = yield* stopped(worker)
      expect(Exit.isInterrupted(exit)).toBe(true)
      expect(leftBy(exit)).toEqual([])
      expect(yield* Ref.get(ran)).toBe(2)
      const states = yield* Effect.forEach(enqueued, ({ id }) => Effect.map(Queue.get(id), ({ state }) => state))
      expect(states.filter((state) => state === "succeeded").length).toBe(2)
      expect(states.filter((state) => state === "pending").length).toBe(18)
    }).pipe(Effect.provide(services()))
  )

  it.effect("gives back a job whose handler did not finish in time, without cost to its budget", () =>
    Effect.gen(function* () {
      const { id } = yield* Queue.enqueue(Task, { n: 1 })
      const worker = yield* work(() => Effect.never)
      yield* TestClock.adjust("1 second")
      const exit = yield* stopped(worker)
      expect(leftBy(exit)).toEqual([])
      const record = yield* Queue.get(id)
      expect(record).toMatchObject({ state: "pending", attemptsLeft: Option.some(10) })
      expect(record.attempts.map(({ outcome }) => outcome)).toEqual([Option.some("released")])
    }).pipe(Effect.provide(services()))
  )

  it.effect("leaves it to the end of its lease where that was asked for, and says so", () =>
    Effect.gen(function* () {
      const { id } = yield* Queue.enqueue(Task, { n: 1 })
      const worker = yield* work(() => Effect.never, { shutdown: { grace: 0, unfinished: "expire" } })
      yield* TestClock.adjust("1 second")
      expect(leftBy(yield* stopped(worker))).toEqual([[id]])
      expect((yield* Queue.get(id)).state).toBe("running")
    }).pipe(Effect.provide(services()))
  )

  it.effect("ends though a handler ignores its interruption, and never gives its job away", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      const { id } = yield* Queue.enqueue(Task, { n: 1 })
      const worker = yield* work(() => Effect.uninterruptible(Effect.as(Deferred.await(gate), 1)))
      yield* TestClock.adjust("1 second")
      const exit = yield* stopped(worker)
      expect(leftBy(exit)).toEqual([[id]])
      expect((yield* Queue.get(id)).state).toBe("running")
      // Its late result is not written: the lease has lapsed by now.
      yield* Deferred.succeed(gate, void 0)
      yield* TestClock.adjust("1 second")
      expect((yield* Queue.get(id)).state).toBe("running")
    }).pipe(Effect.provide(services()))
  )

  it.effect("ends though the database does not answer any more", () =>
    Effect.gen(function* () {
      const hung = yield* Ref.make(false)
      const unlessHung = <A, E>(effect: Effect.Effect<A, E>) =>
        Effect.flatMap(Ref.get(hung), (is) => (is ? Effect.uninterruptible(Effect.never) : effect))
      yield* Effect.gen(function* () {
        const { id } = yield* Queue.enqueue(Task, { n: 1 })
        const worker = yield* work(({ n }) => Effect.delay(Effect.succeed(n), "2 seconds"))
        yield* TestClock.adjust("1 second")
        yield* Ref.set(hung, true)
        expect(leftBy(yield* stopped(worker))).toEqual([[id]])
      }).pipe(
        Effect.provide(
          services((store) => ({
            claim: (request) => unlessHung(store.claim(request)),
            renew: (leases, lease) => unlessHung(store.renew(leases, lease)),
            settle: (settlements) => unlessHung(store.settle(settlements))
          }))
        )
      )
    })
  )

  it.effect("gives back the jobs of a claim that was under way", () =>
    Effect.gen(function* () {
      const ran = yield* Ref.make(0)
      yield* Effect.gen(function* () {
        const { id } = yield* Queue.enqueue(Task, { n: 1 })
        const worker = yield* work(() => Ref.updateAndGet(ran, (n) => n + 1))
        yield* TestClock.adjust("1 second")
        const exit = yield* stopped(worker)
        expect(leftBy(exit)).toEqual([])
        expect(yield* Ref.get(ran)).toBe(0)
        expect(yield* Queue.get(id)).toMatchObject({ state: "pending", attemptsLeft: Option.some(10) })
      }).pipe(
        Effect.provide(
          services((store) => ({
            claim: (request) => Effect.delay(store.claim(request), "2 seconds")
          }))
        )
      )
    })
  )

  it.effect("twice, or before the start, ends all the same", () =>
    Effect.gen(function* () {
      const worker = yield* work(() => Effect.never)
      expect(Exit.isInterrupted(yield* stopped(worker, "1 second"))).toBe(true)
      expect(Exit.isInterrupted(yield* stopped(worker, "1 second"))).toBe(true)

      yield* Queue.enqueue(Task, { n: 1 })
      const busy = yield* work(() => Effect.never)
      yield* TestClock.adjust("1 second")
      const first = yield* Effect.fork(Fiber.interrupt(busy))
      yield* TestClock.adjust("50 millis")
      const second = yield* Effect.fork(Fiber.interrupt(busy))
      yield* TestClock.adjust("1 minute")
      expect(Exit.isInterrupted(yield* Fiber.join(first))).toBe(true)
      expect(Exit.isInterrupted(yield* Fiber.join(second))).toBe(true)
    }).pipe(Effect.provide(services()))
  )

  it.effect("of a layer, also one that is closed while it starts, leaves nothing running", () =>
    Effect.gen(function* () {
      const live = Worker.layer({ jobs: [Task], maintenance: false }).pipe(
        Layer.provide(Task.toLayer(({ n }) => Effect.succeed(n))),
        Layer.provide(services())
      )
      const scope = yield* Scope.make()
      const building = yield* Effect.fork(Layer.buildWithScope(live, scope))
      yield* Scope.close(scope, Exit.void)
      yield* Fiber.interrupt(building)
      yield* Effect.scoped(Layer.build(live))
      // A claim loop that was left behind would wait for its poll here.
      expect(Chunk.size(Chunk.fromIterable(yield* TestClock.sleeps()))).toBe(0)
    })
  )
})
