import { expect, it } from "@effect/vitest"
import { Effect, Fiber, Option, TestClock } from "effect"
import { Slots, type Ticket } from "../../src/worker/Slots.js"

const ticket: Ticket = { since: 0, begin: () => {}, turnAway: () => {} }

it.effect("slots that are closed while they have room let nobody wait for room without end", () =>
  Effect.gen(function* () {
    const slots = new Slots("slots", 2, 0, [])
    slots.enter(ticket)
    expect(slots.room).toBe(1)
    slots.close()
    expect(slots.room).toBe(0)
    // Whoever finds the latch open and no room asks again at once: a claim loop would keep the event loop for itself.
    const waiting = yield* Effect.fork(slots.roomy.await)
    yield* TestClock.adjust("1 minute")
    expect(Option.isNone(yield* Fiber.poll(waiting))).toBe(true)
    yield* Fiber.interrupt(waiting)
  })
)
