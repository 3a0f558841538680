import { expect, it } from "@effect/vitest"
import { Effect, Fiber, Option, TestClock } from "effect"
import { Slots, type Ticket } from "../../src/worker/Slots.js"

const ticket: Ticket = { since: 0, inLine: undefined, begin: () => {}, turnAway: () => {} }

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

it("jobs that end at once are begun one after the other, not within each other", () => {
  const slots = new Slots("slots", 3, 10_000, [])
  let begun = 0
  let depth = 0
  let deepest = 0
  const endsAtOnce: Ticket = {
    inLine: undefined,
    since: 0,
    begin: () => {
      begun++
      deepest = Math.max(deepest, ++depth)
      slots.handlerEnded(0)
      slots.resultGone(0)
      depth--
    },
    turnAway: () => {}
  }
  // All slots are taken by jobs that end by and by, so that the others line up.
  for (let place = 0; place < 3; place++) slots.enter({ ...ticket })
  for (let job = 0; job < 10_000; job++) slots.enter({ ...endsAtOnce })
  expect(begun).toBe(0)
  slots.handlerEnded(0)
  expect(begun).toBe(10_000)
  expect(deepest).toBe(1)
})

it("jobs are claimed ahead as far as they should start soon, by handlers and by results that wait to be durable", () => {
  const ahead = (times: ReadonlyArray<readonly [ran: number, after: number]>) => {
    const slots = new Slots("slots", 32, 200, [])
    for (const [ran, after] of times) {
      slots.enter({ ...ticket })
      slots.handlerEnded(ran)
      slots.resultGone(after)
    }
    return slots.room - 32
  }
  const always = (ran: number, after: number) => ahead(Array.from({ length: 100 }, () => [ran, after]))
  // Nothing is known.
  expect(ahead([])).toBe(0)
  expect(always(0, 8)).toBe(200)
  // 32 slots, each free again after 100 ms; 64 places for results, each after two seconds.
  expect(always(100, 105)).toBe(64)
  expect(always(0, 2_000)).toBe(6)
  // They were quick, and the database has become slow.
  const quick = Array.from({ length: 100 }, () => [0, 8] as const)
  expect(ahead([...quick, ...Array.from({ length: 30 }, () => [0, 2_000] as const)])).toBeLessThan(10)
})

/** Slots whose handlers have ended at once so many times. */
const quick = (times: number) => {
  const slots = new Slots("slots", 32, 600, [])
  for (let job = 0; job < times; job++) {
    slots.enter({ ...ticket })
    slots.handlerEnded(0)
    slots.resultGone(8)
  }
  return slots
}

it("of jobs with large payloads fewer are claimed ahead, and more again only some claims after the last of them", () => {
  const slots = quick(300)
  expect(slots.room).toBe(32 + 600)
  slots.noteClaim(4, 4 * 1024 * 1024)
  expect(slots.room).toBe(32 + 16)
  slots.noteClaim(0, 0)
  expect(slots.room).toBe(32 + 16)
  slots.noteClaim(1, 256)
  expect(slots.room).toBe(32 + 17)
  for (let claim = 0; claim < 50; claim++) slots.noteClaim(500, 500 * 256)
  expect(slots.room).toBe(32 + 600)
})

it("no more are claimed ahead than twice as many as were begun of late, and as there are slots", () => {
  const slots = quick(300)
  slots.withdrawStale(0)
  slots.withdrawStale(100)
  expect(slots.room).toBe(32 + 32)
  for (let job = 0; job < 40; job++) {
    slots.enter({ ...ticket })
    slots.handlerEnded(0)
    slots.resultGone(8)
  }
  expect(slots.room).toBe(32 + 32 + 80)
  // Twenty in 200 milliseconds.
  slots.withdrawStale(400)
  expect(slots.room).toBe(32 + 32 + 40)
  // A clock that was set back begins anew.
  slots.withdrawStale(0)
  expect(slots.room).toBe(32 + 32)
})

it("no job is claimed ahead before the first results are durable", () => {
  const slots = new Slots("slots", 32, 200, [])
  for (let job = 0; job < 32; job++) slots.enter({ ...ticket })
  for (let job = 0; job < 32; job++) slots.handlerEnded(0)
  expect(slots.room).toBe(32)
})
