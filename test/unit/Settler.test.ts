import { describe, expect, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Exit, Fiber, Option, TestClock } from "effect"
import { JobId } from "../../src/JobRecord.js"
import type { JobStore, Settlement, SettleVerdict } from "../../src/JobStore.js"
import type { Lease } from "../../src/Lease.js"
import type { Held, LossReason } from "../../src/LeaseKeeper.js"
import * as Outcome from "../../src/Outcome.js"
import { OutcomeUnknown, StoreRejected, StoreUnavailable } from "../../src/QueueError.js"
import * as RetryPolicy from "../../src/RetryPolicy.js"
import * as Settler from "../../src/Settler.js"

type Settle = JobStore["Type"]["settle"]

const recorded: SettleVerdict = { _tag: "Recorded", state: "succeeded" }
const down = new StoreUnavailable({ verb: "settle", reason: "connection", code: "ECONNRESET" })
const refused = new StoreRejected({ verb: "settle", code: "1406", hint: "" })
const complete = (output = "1"): Settlement => ({ _tag: "Complete", output })

/** A lease that is trusted until a test says otherwise. */
const holding = (id: number) => {
  let reason: LossReason | undefined
  const held: Held = {
    lease: { jobId: JobId.make(String(id)), token: 1, attempt: 1, worker: "w" },
    distrust: () => reason,
    renew: Effect.void,
    whileLocked: (effect) => effect,
    conclude: () => undefined,
    forget: () => undefined
  }
  const lose = (why: LossReason) => {
    reason = why
  }
  return { ...held, lose }
}

/** A settler over a store that only settles, with what it was sent, in `id:tag` each. */
const setUp = (settle: Settle) =>
  Effect.gen(function* () {
    const calls: Array<ReadonlyArray<string>> = []
    const refusals: Array<string> = []
    const store: Pick<JobStore["Type"], "detached" | "settle" | "recordRefusals"> = {
      detached: (effect) => effect,
      settle: (settlements) => {
        calls.push(settlements.map(([{ jobId }, { _tag }]) => `${jobId}:${_tag}`))
        return settle(settlements)
      },
      recordRefusals: (late) =>
        Effect.sync(() => {
          refusals.push(...late.map(({ lease, verb }) => `${lease.jobId}:${verb}`))
        })
    }
    const settler = yield* Settler.make(store as JobStore["Type"])
    const settleOne = (held: Held, settlement = complete()) => settler.settle(held, settlement, "complete")
    return { calls, refusals, settle: settleOne }
  })

type Settlements = Parameters<Settle>[0]
const all =
  (verdict: SettleVerdict): Settle =>
  (settlements) =>
    Effect.succeed(settlements.map(() => verdict))
const idsOf = (settlements: Settlements) => settlements.map(([{ jobId }]: readonly [Lease, Settlement]) => jobId)
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => from + index)

describe("a settler", () => {
  it.scoped("sends a lone settlement at once, and together what comes while its call is under way", () =>
    Effect.gen(function* () {
      const { calls, settle } = yield* setUp((settlements) => Effect.delay(all(recorded)(settlements), "10 millis"))
      const fibers: Array<Fiber.Fiber<unknown, unknown>> = []
      for (const id of range(1, 6)) {
        fibers.push(yield* Effect.fork(settle(holding(id))))
        yield* TestClock.adjust(0)
      }
      expect(calls).toEqual([["1:Complete"]])
      yield* TestClock.adjust("10 millis")
      expect(calls[1]).toEqual(range(2, 6).map((id) => `${id}:Complete`))
      yield* TestClock.adjust("10 millis")
      expect(yield* Fiber.await(Fiber.all(fibers))).toMatchObject({ _tag: "Success" })
    })
  )

  it.scoped("goes on beside one call that takes long, but not beside two", () =>
    Effect.gen(function* () {
      const { calls, settle } = yield* setUp((settlements) => Effect.delay(all(recorded)(settlements), "1 second"))
      for (const id of range(1, 3)) {
        yield* Effect.fork(settle(holding(id)))
        yield* TestClock.adjust("20 millis")
      }
      expect(calls).toEqual([["1:Complete"], ["2:Complete"]])
      yield* TestClock.adjust("900 millis")
      expect(calls).toHaveLength(2)
      yield* TestClock.adjust("100 millis")
      expect(calls[2]).toEqual(["3:Complete"])
    })
  )

  it.scoped("goes on beside a call that hangs with what did not fit into it", () =>
    Effect.gen(function* () {
      const { calls, settle } = yield* setUp((settlements) =>
        settlements.some(([{ jobId }]) => jobId === "1") ? Effect.never : all(recorded)(settlements)
      )
      const fibers = yield* Effect.forEach(range(1, 250), (id) => Effect.fork(settle(holding(id))))
      yield* TestClock.adjust(0)
      expect(calls.map(({ length }) => length)).toEqual([100])
      yield* TestClock.adjust("20 millis")
      expect(calls.map(({ length }) => length)).toEqual([100, 100, 50])
      expect(yield* Effect.forEach(fibers.slice(100), Fiber.join)).toHaveLength(150)
    })
  )

  it.scoped("sends a lone settlement at once also soon after others had gathered", () =>
    Effect.gen(function* () {
      const { calls, settle } = yield* setUp((settlements) => Effect.delay(all(recorded)(settlements), "2 millis"))
      for (const id of [1, 2]) {
        yield* Effect.fork(settle(holding(id)))
        yield* TestClock.adjust(0)
      }
      yield* TestClock.adjust("2 millis")
      yield* TestClock.adjust("2 millis")
      yield* Effect.fork(settle(holding(3)))
      yield* TestClock.adjust(0)
      expect(calls).toEqual([["1:Complete"], ["2:Complete"], ["3:Complete"]])
    })
  )

  it.scoped("sends a hundred at most together, and long outputs alone", () =>
    Effect.gen(function* () {
      const { calls, settle } = yield* setUp(all(recorded))
      const long = complete("x".repeat(70_000))
      yield* Effect.forEach(range(1, 150), (id) => settle(holding(id), id === 7 ? long : complete()), {
        concurrency: "unbounded"
      })
      expect(calls.every((batch) => batch.length <= 100)).toBe(true)
      expect(calls.length).toBeLessThan(6)
      expect(calls).toContainEqual(["7:Complete"])
    })
  )

  it.scoped("never sends a settlement whose lease is not trusted, and remembers the refusal", () =>
    Effect.gen(function* () {
      const { calls, refusals, settle } = yield* setUp(all(recorded))
      const held = holding(1)
      held.lose("expired")
      expect(yield* Effect.flip(settle(held))).toMatchObject({
        _tag: "LeaseLost",
        reason: "expired",
        during: "complete"
      })
      expect(calls).toEqual([])
      yield* TestClock.adjust(0)
      expect(refusals).toEqual(["1:complete"])
    })
  )

  it.scoped("tries again while the database is away, for as long as the lease is trusted", () =>
    Effect.gen(function* () {
      let away = true
      const { calls, settle } = yield* setUp((settlements) => (away ? Effect.fail(down) : all(recorded)(settlements)))
      const fiber = yield* Effect.fork(settle(holding(1)))
      yield* TestClock.adjust("5 seconds")
      expect(calls.length).toBeGreaterThan(8)
      away = false
      yield* TestClock.adjust("1 second")
      expect(yield* Fiber.join(fiber)).toBe("succeeded")
    })
  )

  it.scoped("sends nothing any more once the trust has ended while the database was away", () =>
    Effect.gen(function* () {
      const { calls, settle } = yield* setUp(() => Effect.fail(down))
      const held = holding(1)
      const fiber = yield* Effect.fork(settle(held))
      yield* TestClock.adjust("2 seconds")
      held.lose("expired")
      const before = calls.length
      yield* TestClock.adjust("1 minute")
      expect(calls.length).toBe(before)
      expect(yield* Effect.flip(Fiber.join(fiber))).toMatchObject({ _tag: "LeaseLost", reason: "expired" })
    })
  )

  it.scoped("does not let one that can not be written hinder its neighbours", () =>
    Effect.gen(function* () {
      const { settle } = yield* setUp((settlements) =>
        settlements.some(([{ jobId }, { _tag }]) => jobId === "3" && _tag === "Complete")
          ? Effect.fail(refused)
          : Effect.succeed(
              settlements.map(([, { _tag }]) => ({ _tag: "Recorded", state: _tag === "Bury" ? "dead" : "succeeded" }))
            )
      )
      const fiber = yield* Effect.fork(
        Effect.forEach(range(1, 5), (id) => settle(holding(id)), { concurrency: "unbounded" })
      )
      yield* TestClock.adjust("1 second")
      expect(yield* Fiber.join(fiber)).toEqual(["succeeded", "succeeded", "dead", "succeeded", "succeeded"])
    })
  )

  it.scoped("writes an outcome in its own words once the right to write it is back", () =>
    Effect.gen(function* () {
      let revoked = true
      const { calls, settle } = yield* setUp((settlements) =>
        revoked ? Effect.fail(refused) : all(recorded)(settlements)
      )
      const fiber = yield* Effect.fork(settle(holding(1)))
      yield* TestClock.adjust("5 seconds")
      revoked = false
      yield* TestClock.adjust("1 second")
      expect(yield* Fiber.join(fiber)).toBe("succeeded")
      expect(calls.filter(([sent]) => sent === "1:Bury").length).toBe(1)
      expect(calls.at(-1)).toEqual(["1:Complete"])
    })
  )

  it.scoped("tries a locked row again alone while the others are done", () =>
    Effect.gen(function* () {
      let locked = true
      const { calls, settle } = yield* setUp((settlements) =>
        Effect.succeed(idsOf(settlements).map((id) => (id === "2" && locked ? { _tag: "Busy" } : recorded)))
      )
      const fibers = yield* Effect.forEach(range(1, 3), (id) => Effect.fork(settle(holding(id))))
      yield* TestClock.adjust("1 second")
      const [first, second, third] = yield* Effect.forEach(fibers, Fiber.poll)
      expect([first, third].every((exit) => exit !== undefined && Option.isSome(exit))).toBe(true)
      expect(second).toEqual(Option.none())
      expect(calls.slice(1).every((sent) => sent.length === 1 && sent[0] === "2:Complete")).toBe(true)
      locked = false
      yield* TestClock.adjust("1 second")
      expect(yield* Fiber.joinAll(fibers)).toEqual(["succeeded", "succeeded", "succeeded"])
    })
  )

  it.scoped("answers what the fence said", () =>
    Effect.gen(function* () {
      const verdicts: Record<string, SettleVerdict> = {
        "1": { _tag: "Lost", reason: "superseded" },
        "2": { _tag: "AlreadySettled" },
        "3": { _tag: "Unknown" },
        "4": { _tag: "Recorded", state: "canceled" }
      }
      const { refusals, settle } = yield* setUp((settlements) =>
        Effect.succeed(idsOf(settlements).map((id) => verdicts[id] ?? recorded))
      )
      const exits = yield* Effect.forEach(range(1, 4), (id) => Effect.either(settle(holding(id))))
      expect(exits.map((exit) => (exit._tag === "Left" ? exit.left._tag : exit.right))).toEqual([
        "LeaseLost",
        "AlreadySettled",
        "OutcomeUnknown",
        "canceled"
      ])
      expect(refusals).toEqual(["1:complete"])
    })
  )

  it.scoped("asks again after a lost answer, and says that the outcome is unknown when the trust ends first", () =>
    Effect.gen(function* () {
      const { settle } = yield* setUp(() => Effect.fail(new OutcomeUnknown({ verb: "settle" })))
      const held = holding(1)
      const fiber = yield* Effect.fork(settle(held))
      yield* TestClock.adjust("1 second")
      held.lose("expired")
      yield* TestClock.adjust("1 second")
      expect(yield* Effect.flip(Fiber.join(fiber))).toMatchObject({ _tag: "OutcomeUnknown" })
    })
  )

  it.scoped("hands a mistake of the store to those who wait for it, and goes on", () =>
    Effect.gen(function* () {
      let broken = true
      const { settle } = yield* setUp((settlements) => (broken ? Effect.die("a mistake") : all(recorded)(settlements)))
      expect(yield* Effect.exit(settle(holding(1)))).toEqual(Exit.die("a mistake"))
      broken = false
      expect(yield* settle(holding(2))).toBe("succeeded")
    })
  )

  it.effect("leaves nobody waiting when its scope closes", () =>
    Effect.gen(function* () {
      const started = yield* Deferred.make<void>()
      const fiber = yield* Effect.scoped(
        Effect.gen(function* () {
          const { settle } = yield* setUp(() => Effect.zipRight(Deferred.succeed(started, void 0), Effect.never))
          const waiting = yield* Effect.forkDaemon(settle(holding(1)))
          yield* Deferred.await(started)
          return waiting
        })
      )
      expect(Exit.isInterrupted(yield* Fiber.await(fiber))).toBe(true)
    })
  )
})

describe("the settlement of an outcome", () => {
  const policy = RetryPolicy.fixed({ delay: "10 seconds", jitter: 0 })
  const written = (outcome: Outcome.Outcome) =>
    Settler.toSettlement(outcome, policy, 1, 0.5, (text) => text.replace("secret", "***"))

  it("has its text redacted and cut", () => {
    expect(written(Outcome.Dead({ code: "c".repeat(100), message: "my secret" }))).toEqual({
      _tag: "Bury",
      code: expect.stringMatching(/^c{63}…$/),
      message: "my ***"
    })
  })
  it("has the delay of the policy, or no less than the failure asked for", () => {
    const retry = (retryAfter: Option.Option<Duration.DurationInput>) =>
      written(Outcome.Retry({ code: "a", message: "b", retryAfter }))
    expect(retry(Option.none())).toMatchObject({ delay: Duration.seconds(10) })
    expect(retry(Option.some("1 minute"))).toMatchObject({ delay: Duration.minutes(1) })
  })
  it("never makes a snooze without a sound delay a hot loop", () => {
    expect(written(Outcome.Snooze({ delay: Number.NaN }))).toEqual({ _tag: "Snooze", delay: policy.fallback })
    expect(written(Outcome.Snooze({ delay: "5 seconds" }))).toEqual({ _tag: "Snooze", delay: Duration.seconds(5) })
  })
})
