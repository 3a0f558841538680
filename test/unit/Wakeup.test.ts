import { describe, expect, it } from "@effect/vitest"
import { Clock, Duration, Effect, Layer, Random, TestClock } from "effect"
import * as Wakeup from "../../src/Wakeup.js"

const spread = Duration.millis(10)

/** Times of the signals of queue "q" while `act` runs and for a minute after it. */
const heard = (
  act: (notify: Effect.Effect<void>) => Effect.Effect<unknown>,
  queues: Iterable<string> | "every queue" = ["q"]
) =>
  Effect.gen(function* () {
    const { notifyCommitted, subscribe } = yield* Wakeup.Wakeup
    // As the tailer does, which is made before the worker.
    const notify = notifyCommitted(queues, spread)
    const signals: Array<number> = []
    const { wait } = yield* subscribe("q")
    yield* Effect.forkScoped(
      Effect.forever(
        Effect.zipRight(
          wait,
          Effect.map(Clock.currentTimeMillis, (now) => signals.push(now))
        )
      )
    )
    yield* act(notify)
    yield* TestClock.adjust("1 minute")
    return signals
  }).pipe(Effect.scoped, Effect.provide(Layer.fresh(Wakeup.layer)), Effect.withRandom(Random.make("a seed")))

describe("the signal of a commit elsewhere", () => {
  it.effect("comes within its spread, and once more 100 ms later", () =>
    Effect.gen(function* () {
      const [first = -1, second = -1, ...more] = yield* heard((notify) => notify)
      expect(first).toBeGreaterThanOrEqual(0)
      expect(first).toBeLessThanOrEqual(10)
      expect(second - first).toBe(100)
      expect(more).toEqual([])
      expect(yield* heard((notify) => notify, "every queue")).toHaveLength(2)
      expect(yield* heard((notify) => notify, ["other"])).toEqual([])
    })
  )

  it.effect("is one for all that come together, and at most one in 20 ms for a steady stream", () =>
    Effect.gen(function* () {
      expect(yield* heard((notify) => Effect.replicateEffect(notify, 10_000, { discard: true }))).toHaveLength(2)
      const stream = yield* heard((notify) =>
        Effect.replicateEffect(Effect.zipRight(notify, TestClock.adjust("1 millis")), 1_000, { discard: true })
      )
      const gaps = stream.slice(1).map((at, index) => at - (stream[index] ?? 0))
      expect(Math.min(...gaps)).toBeGreaterThanOrEqual(20)
      expect(stream.length).toBeGreaterThan(1_000 / 31)
      // The last one of the stream is followed by its own two signals.
      expect(stream.at(-2)).toBeGreaterThanOrEqual(999)
    })
  )

  it.effect("comes anew for what is committed while the repetition is awaited, and just after it", () =>
    Effect.gen(function* () {
      const twice = (after: Duration.DurationInput) =>
        heard((notify) => Effect.zipRight(notify, Effect.zipRight(TestClock.adjust(after), notify)))
      const during = yield* twice("60 millis")
      expect(during).toHaveLength(3)
      expect(during[1]).toBeGreaterThanOrEqual(60)
      expect(during[1]).toBeLessThanOrEqual(70)
      expect(yield* twice("200 millis")).toHaveLength(4)
    })
  )
})
