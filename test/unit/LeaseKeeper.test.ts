import { describe, expect, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Exit, Fiber, Option, TestClock } from "effect"
import { JobId } from "../../src/JobRecord.js"
import type { JobStore, Renewal } from "../../src/JobStore.js"
import * as Lease from "../../src/Lease.js"
import * as LeaseKeeper from "../../src/LeaseKeeper.js"
import { StoreUnavailable } from "../../src/QueueError.js"

type Renew = JobStore["Type"]["renew"]

const leaseTime = Duration.seconds(30)
const renewed: Renewal = { _tag: "Renewed", cancelRequested: false }
const down = new StoreUnavailable({ verb: "renew", reason: "connection", code: "ECONNRESET" })

const leaseOf = (id: number): Lease.Lease => ({ jobId: JobId.make(String(id)), token: 1, attempt: 1, worker: "w" })

/** A keeper over a store that only renews, and a log of what its holders are told. */
const setUp = (renew: Renew, lease = leaseTime) =>
  Effect.gen(function* () {
    const calls: Array<ReadonlyArray<string>> = []
    const told: Array<string> = []
    const store = {
      detached: (effect) => effect,
      renew: (leases, duration) => {
        calls.push(leases.map(({ jobId }) => jobId))
        return renew(leases, duration)
      }
    } as Pick<JobStore["Type"], "detached" | "renew"> as JobStore["Type"]
    const keeper = yield* LeaseKeeper.make(store, lease)
    const hold = (id: number, openedAt?: Lease.Instant) =>
      Effect.gen(function* () {
        const at = openedAt ?? (yield* Lease.now)
        return keeper.hold(leaseOf(id), Lease.trustFrom(at, lease), {
          cancelRequested: Effect.sync(() => void told.push(`${id} canceled`)),
          lost: (reason) => Effect.sync(() => void told.push(`${id} ${reason}`))
        })
      })
    return { keeper, hold, calls, told }
  })

const all =
  (renewal: Renewal): Renew =>
  (leases) =>
    Effect.succeed(leases.map(() => renewal))
const trusted = (held: LeaseKeeper.Held) => Effect.map(Lease.now, (at) => held.distrust(at))

describe("a lease keeper", () => {
  it.scoped("renews all leases by one call at every third of their duration", () =>
    Effect.gen(function* () {
      const { calls, hold, told } = yield* setUp(all(renewed))
      yield* Effect.forEach([1, 2, 3], (id) => hold(id))
      yield* TestClock.adjust("31 seconds")
      expect(calls).toEqual([
        ["1", "2", "3"],
        ["1", "2", "3"],
        ["1", "2", "3"]
      ])
      expect(told).toEqual([])
    })
  )

  it.scoped("asks nothing while it holds nothing, and nothing for a lease that was forgotten", () =>
    Effect.gen(function* () {
      const { calls, hold } = yield* setUp(all(renewed))
      yield* TestClock.adjust("5 minutes")
      const held = yield* hold(1)
      held.forget()
      yield* TestClock.adjust("5 minutes")
      expect(calls).toEqual([])
    })
  )

  it.scoped("tells the holder of a lease that another has taken, and only that one", () =>
    Effect.gen(function* () {
      const { calls, hold, told } = yield* setUp((leases) =>
        Effect.succeed(
          leases.map(({ jobId }): Renewal => (jobId === "2" ? { _tag: "Lost", reason: "superseded" } : renewed))
        )
      )
      const [one, two] = yield* Effect.all([hold(1), hold(2)])
      yield* TestClock.adjust("21 seconds")
      expect(told).toEqual(["2 superseded"])
      expect([yield* trusted(one), yield* trusted(two)]).toEqual([undefined, "superseded"])
      expect(calls).toEqual([["1", "2"], ["1"]])
    })
  )

  it.scoped("tells the holder once that a cancel was requested, and goes on renewing", () =>
    Effect.gen(function* () {
      const { calls, hold, told } = yield* setUp(all({ _tag: "Renewed", cancelRequested: true }))
      yield* hold(1)
      yield* TestClock.adjust("31 seconds")
      expect(told).toEqual(["1 canceled"])
      expect(calls.length).toBe(3)
    })
  )

  it.scoped("tells the holder before the lease ends while a renewal hangs", () =>
    Effect.gen(function* () {
      const { calls, hold, told } = yield* setUp(() => Effect.uninterruptible(Effect.never))
      yield* hold(1)
      yield* TestClock.adjust("28999 millis")
      expect(told).toEqual([])
      yield* TestClock.adjust("1 millis")
      expect(told).toEqual(["1 expired"])
      // It did not wait for the first call: each third it tried another connection.
      expect(calls.length).toBe(2)
    })
  )

  it.scoped("drops the answer of a renewal that comes after the loss", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      const { hold, told } = yield* setUp((leases) =>
        Effect.as(
          Deferred.await(gate),
          leases.map(() => renewed)
        )
      )
      const held = yield* hold(1)
      yield* TestClock.adjust("29 seconds")
      yield* Deferred.succeed(gate, void 0)
      yield* TestClock.adjust("1 second")
      expect(told).toEqual(["1 expired"])
      expect(yield* trusted(held)).toBe("expired")
    })
  )

  it.scoped("tries a renewal that failed again soon, and keeps the lease when it then succeeds", () =>
    Effect.gen(function* () {
      let failures = 3
      const { calls, hold, told } = yield* setUp((leases) =>
        failures-- > 0 ? Effect.fail(down) : Effect.succeed(leases.map(() => renewed))
      )
      yield* hold(1)
      yield* TestClock.adjust("16 seconds")
      expect(calls.length).toBe(4)
      yield* TestClock.adjust("2 minutes")
      expect(told).toEqual([])
    })
  )

  it.scoped("counts the window from before the renewal was sent", () =>
    Effect.gen(function* () {
      let slow = true
      const { hold, told } = yield* setUp((leases) => {
        if (!slow) return Effect.uninterruptible(Effect.never)
        slow = false
        return Effect.delay(Effect.succeed(leases.map(() => renewed)), "6 seconds")
      })
      yield* hold(1)
      // Sent at 10 s, answered at 16 s: trusted until 39 s, not 45 s.
      yield* TestClock.adjust("38 seconds")
      expect(told).toEqual([])
      yield* TestClock.adjust("1 second")
      expect(told).toEqual(["1 expired"])
    })
  )

  it.scoped("asks alone for a row that is locked, and does not trust it for longer", () =>
    Effect.gen(function* () {
      const { calls, hold, told } = yield* setUp((leases) =>
        Effect.succeed(leases.map(({ jobId }): Renewal => (jobId === "1" ? { _tag: "Busy" } : renewed)))
      )
      yield* Effect.all([hold(1), hold(2)])
      yield* TestClock.adjust("10 seconds")
      expect(calls).toEqual([["1", "2"], ["1"]])
      yield* TestClock.adjust("19 seconds")
      expect(told).toEqual(["1 expired"])
      // Those that were renewed are not asked for again with it.
      expect(calls.filter((ids) => ids.includes("2")).length).toBe(2)
    })
  )

  it.scoped("trusts nothing once the wall clock says that the lease is over, and asks whether the host slept", () =>
    Effect.gen(function* () {
      for (const answer of [renewed, { _tag: "Lost", reason: "superseded" }] as const) {
        const { calls, hold, told } = yield* setUp(all(answer))
        const at = yield* Lease.now
        const held = yield* hold(1, { monotonic: at.monotonic, wall: at.wall - 3_600_000 })
        expect(yield* trusted(held)).toBe("expired")
        yield* TestClock.adjust("3 seconds")
        expect(calls.length).toBe(1)
        expect(told).toEqual(answer === renewed ? [] : ["1 superseded"])
        expect(yield* trusted(held)).toBe(answer === renewed ? undefined : "superseded")
      }
    })
  )

  it.scoped("goes by the monotonic clock when the wall clock is set back", () =>
    Effect.gen(function* () {
      const { hold } = yield* setUp(all(renewed))
      const at = yield* Lease.now
      const held = yield* hold(1)
      expect(held.distrust({ monotonic: at.monotonic + 1, wall: at.wall - 3_600_000 })).toBe(undefined)
      expect(held.distrust({ monotonic: at.monotonic + 29_000, wall: at.wall - 3_600_000 })).toBe("expired")
    })
  )

  it.scoped("tells at once of a lease whose claim was answered late", () =>
    Effect.gen(function* () {
      const { hold, told } = yield* setUp(all(renewed))
      yield* hold(1)
      yield* TestClock.adjust("1 second")
      yield* hold(2, { monotonic: -27_500, wall: -27_500 })
      yield* TestClock.adjust("500 millis")
      expect(told).toEqual(["2 expired"])
    })
  )

  it.scoped("leaves a lease out of renewals while its row is locked by the holder", () =>
    Effect.gen(function* () {
      const { calls, hold } = yield* setUp(all(renewed))
      const held = yield* hold(1)
      const completing = yield* Effect.fork(held.whileLocked(Effect.delay(Effect.fail("rolled back"), "15 seconds")))
      yield* TestClock.adjust("14 seconds")
      expect(calls).toEqual([])
      yield* TestClock.adjust("7 seconds")
      expect(yield* Fiber.await(completing)).toEqual(Exit.fail("rolled back"))
      expect(calls).toEqual([["1"]])
    })
  )

  it.scoped("does not take the answer that crossed a settlement for a loss", () =>
    Effect.gen(function* () {
      const { hold, told } = yield* setUp(all({ _tag: "Lost", reason: "superseded" }))
      const held = yield* hold(1)
      held.conclude()
      yield* TestClock.adjust("10 seconds")
      expect(told).toEqual([])
    })
  )

  it.scoped("renews by hand, and says when the job is to be canceled or is lost", () =>
    Effect.gen(function* () {
      let answer: Renewal = renewed
      const { hold } = yield* setUp((leases) => Effect.succeed(leases.map(() => answer)))
      const held = yield* hold(1)
      yield* held.renew
      answer = { _tag: "Renewed", cancelRequested: true }
      expect(yield* Effect.flip(held.renew)).toMatchObject({ _tag: "LeaseLost", reason: "canceled" })
      answer = { _tag: "Lost", reason: "superseded" }
      expect(yield* Effect.flip(held.renew)).toMatchObject({ _tag: "LeaseLost", reason: "superseded" })
      expect(yield* Effect.flip(held.renew)).toMatchObject({ _tag: "LeaseLost", reason: "superseded" })
    })
  )

  it.scoped("renews by hand past a lock that is held for a moment, and says so when it is held for longer", () =>
    Effect.gen(function* () {
      let locked = 3
      const { calls, hold } = yield* setUp((leases) =>
        Effect.sync(() => leases.map((): Renewal => (locked-- > 0 ? { _tag: "Busy" } : renewed)))
      )
      const held = yield* hold(1)
      const short = yield* Effect.fork(held.renew)
      yield* TestClock.adjust("70 millis")
      expect(yield* Fiber.poll(short)).toEqual(Option.some(Exit.void))
      expect(calls).toHaveLength(4)
      locked = Number.POSITIVE_INFINITY
      const long = yield* Effect.fork(Effect.flip(held.renew))
      yield* TestClock.adjust("630 millis")
      expect(yield* Fiber.join(long)).toMatchObject({ _tag: "StoreUnavailable", reason: "lock_wait" })
    })
  )

  it.scoped("loses all leases and says so when the renewal dies of a mistake", () =>
    Effect.gen(function* () {
      const { hold, keeper, told } = yield* setUp(() => Effect.die("a mistake"))
      yield* Effect.all([hold(1), hold(2)])
      yield* TestClock.adjust("10 seconds")
      expect(told).toEqual(["1 expired", "2 expired"])
      expect(yield* Effect.exit(keeper.failure)).toEqual(Exit.die("a mistake"))
    })
  )

  it.scoped("splits more than a thousand leases into calls of a thousand", () =>
    Effect.gen(function* () {
      const { calls, hold } = yield* setUp(all(renewed))
      yield* Effect.forEach(
        Array.from({ length: 2_500 }, (_, id) => id + 1),
        (id) => hold(id)
      )
      yield* TestClock.adjust("10 seconds")
      expect(calls.map((ids) => ids.length)).toEqual([1_000, 1_000, 500])
    })
  )

  it.scoped("keeps a lease of 300 ms", () =>
    Effect.gen(function* () {
      const { calls, hold, told } = yield* setUp(all(renewed), Duration.millis(300))
      yield* hold(1)
      yield* TestClock.adjust("2 seconds")
      expect(told).toEqual([])
      expect(calls.length).toBeGreaterThanOrEqual(19)
    })
  )

  it.scoped("keeps a lease of a day for weeks", () =>
    Effect.gen(function* () {
      const { calls, hold, told } = yield* setUp(all(renewed), Duration.days(1))
      yield* hold(1)
      yield* TestClock.adjust("30 days")
      expect(told).toEqual([])
      expect(calls.length).toBe(90)
    })
  )
})
