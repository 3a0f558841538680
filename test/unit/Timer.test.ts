import { describe, expect, it } from "@effect/vitest"
import { Duration, Effect, Fiber, Option, TestClock } from "effect"
import * as Timer from "../../src/Timer.js"

describe("a sleep", () => {
  it.effect("lasts for years where a timer can not, and ends then", () =>
    Effect.gen(function* () {
      const fiber = yield* Effect.fork(Timer.sleep(Duration.days(3_650)))
      yield* TestClock.adjust("3649 days")
      expect(yield* Fiber.poll(fiber)).toEqual(Option.none())
      yield* TestClock.adjust("1 day")
      expect(Option.isSome(yield* Fiber.poll(fiber))).toBe(true)
    })
  )

  it.effect("never ends early by a fraction of a millisecond", () =>
    Effect.gen(function* () {
      const fiber = yield* Effect.fork(Timer.sleep(Duration.millis(1.2)))
      yield* TestClock.adjust("1 millis")
      expect(yield* Fiber.poll(fiber)).toEqual(Option.none())
      yield* TestClock.adjust("1 millis")
      expect(Option.isSome(yield* Fiber.poll(fiber))).toBe(true)
    })
  )
})
