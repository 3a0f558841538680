import { describe, expect, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Option, Ref, Schema, TestClock } from "effect"
import * as Job from "../../src/Job.js"
import { Retryable } from "../../src/JobFailure.js"
import { layer as MemoryJobStore } from "../../src/memory/MemoryJobStore.js"
import * as Queue from "../../src/Queue.js"
import * as RetryPolicy from "../../src/RetryPolicy.js"
import * as Wakeup from "../../src/Wakeup.js"
import * as Worker from "../../src/Worker.js"

const Live = Queue.layer.pipe(Layer.provideMerge(Layer.mergeAll(MemoryJobStore, Wakeup.layer)))

const Double = Job.make("double", {
  payload: { n: Schema.Number },
  success: Schema.Number,
  retry: RetryPolicy.fixed({ delay: "10 seconds", maxAttempts: 3, jitter: 0 })
})

describe("a worker", () => {
  it.effect("runs a job that was enqueued before and settles it", () =>
    Effect.gen(function*() {
      const { id } = yield* Queue.enqueue(Double, { n: 21 })
      const worker = yield* Worker.run({ jobs: [Double] }).pipe(
        Effect.provide(Double.toLayer(({ n }) => Effect.succeed(n * 2))),
        Effect.fork
      )
      yield* TestClock.adjust("1 second")
      expect(yield* Queue.result(Double, id)).toBe(42)
      yield* Fiber.interrupt(worker)
    }).pipe(Effect.provide(Live)))

  it.scoped("tries a failed job again after the delay of its policy", () =>
    Effect.gen(function*() {
      const runs = yield* Ref.make(0)
      const { id } = yield* Queue.enqueue(Double, { n: 21 })
      yield* Worker.run({ jobs: [Double] }).pipe(
        Effect.provide(Double.toLayer(({ n }) =>
          Effect.flatMap(Ref.updateAndGet(runs, (n) => n + 1), (run) =>
            run < 3 ? Effect.fail(new Retryable({ code: "no", message: "not yet" })) : Effect.succeed(n * 2)))),
        Effect.forkScoped
      )
      yield* TestClock.adjust("9 seconds")
      expect(yield* Ref.get(runs)).toBe(1)
      const record = yield* Queue.get(id)
      expect([record.state, Option.getOrNull(record.errorCode)]).toEqual(["pending", "no"])
      yield* TestClock.adjust("20 seconds")
      expect(yield* Queue.result(Double, id)).toBe(42)
      expect(yield* Ref.get(runs)).toBe(3)
    }).pipe(Effect.provide(Live)))
})
