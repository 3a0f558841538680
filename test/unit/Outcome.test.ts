import { describe, expect, it } from "@effect/vitest"
import { Cause, Deferred, Effect, Exit, Fiber, FiberId, Option } from "effect"
import { LeaseLost, Permanent, Retryable, Snooze, toOutcome } from "../../src/JobFailure.js"
import { JobId } from "../../src/JobRecord.js"
import {
  Canceled,
  Completed,
  describe as describeThrown,
  fromExit,
  type Interruption,
  Outcome
} from "../../src/Outcome.js"
import { cpuMillis } from "../support/CpuTime.js"

type Failure = Retryable | Permanent | LeaseLost | Snooze

const retryable = new Retryable({ code: "upstream", message: "down", retryAfter: "5 seconds" })
const permanent = new Permanent({ code: "gone", message: "deleted" })
const snooze = new Snooze({ for: "1 minute" })
const lost = new LeaseLost({ jobId: JobId.make("1"), token: 1, during: "renew", reason: "superseded" })
const interrupt = Cause.interrupt(FiberId.none)

const outcomeOf = (exit: Exit.Exit<string, Failure>, interruption?: Interruption) =>
  fromExit(exit, Option.fromNullable(interruption), {
    success: (output) => Completed({ output }),
    failure: (error) => toOutcome(error, {})
  })

/** The outcome in short: its tag, and its code where it has one. */
const short = (exit: Exit.Exit<string, Failure>, interruption?: Interruption) =>
  Option.match(outcomeOf(exit, interruption), {
    onNone: () => "none",
    onSome: (outcome) => ("code" in outcome ? `${outcome._tag} ${outcome.code}` : outcome._tag)
  })

const failed = (cause: Cause.Cause<Failure>) => short(Exit.failCause(cause))
const both = (left: Cause.Cause<Failure>, right: Cause.Cause<Failure>) => [
  Cause.parallel(left, right),
  Cause.parallel(right, left),
  Cause.sequential(left, right),
  Cause.sequential(right, left),
  Cause.parallel(interrupt, Cause.sequential(right, left))
]

describe("the outcome of an attempt", () => {
  it("whose lease was lost is none, however the handler ended", () => {
    for (const exit of [Exit.succeed("x"), Exit.fail(permanent), Exit.die("x"), Exit.failCause(interrupt)]) {
      expect(short(exit, "lost")).toBe("none")
    }
  })

  it("that failed with LeaseLost is none, whatever else failed with it or interrupted it", () => {
    expect(failed(Cause.fail(lost))).toBe("none")
    for (const other of [Cause.fail(permanent), Cause.fail(retryable), Cause.die("x"), interrupt]) {
      for (const cause of both(Cause.fail(lost), other)) expect(failed(cause)).toBe("none")
    }
    for (const interruption of ["canceled", "timeout", "shutdown"] as const) {
      expect(short(Exit.fail(lost), interruption)).toBe("none")
    }
  })

  it("that was canceled is Canceled, whatever the handler then answered", () => {
    for (const exit of [Exit.succeed("x"), Exit.fail(permanent), Exit.die("x"), Exit.failCause(interrupt)]) {
      expect(outcomeOf(exit, "canceled")).toEqual(Option.some(Canceled()))
    }
  })

  it("that ran into its timeout is Retry with code timeout, whatever the handler then answered", () => {
    for (const exit of [Exit.succeed("x"), Exit.fail(permanent), Exit.die("x"), Exit.failCause(interrupt)]) {
      expect(short(exit, "timeout")).toBe("Retry timeout")
    }
  })

  it("that succeeded is Completed, also while the worker shuts down", () => {
    expect(outcomeOf(Exit.succeed("x"))).toEqual(Option.some(Completed({ output: "x" })))
    expect(outcomeOf(Exit.succeed("x"), "shutdown")).toEqual(Option.some(Completed({ output: "x" })))
  })

  it("that failed permanently is Dead, also as one of several failures and beside defects and interruptions", () => {
    expect(outcomeOf(Exit.fail(permanent))).toEqual(Option.some(Outcome.Dead({ code: "gone", message: "deleted" })))
    for (const other of [Cause.fail(retryable), Cause.fail(snooze), Cause.die("x"), interrupt]) {
      for (const cause of both(Cause.fail(permanent), other)) expect(failed(cause)).toBe("Dead gone")
    }
    expect(short(Exit.fail(permanent), "shutdown")).toBe("Dead gone")
  })

  it("that failed otherwise is Retry as the failure says, also beside defects, snoozes and interruptions", () => {
    expect(outcomeOf(Exit.fail(retryable))).toEqual(
      Option.some(Outcome.Retry({ code: "upstream", message: "down", retryAfter: Option.some("5 seconds") }))
    )
    for (const other of [Cause.fail(snooze), Cause.die("x"), interrupt]) {
      for (const cause of both(Cause.fail(retryable), other)) expect(failed(cause)).toBe("Retry upstream")
    }
    expect(short(Exit.fail(retryable), "shutdown")).toBe("Retry upstream")
  })

  it("that died is Retry with code defect and the defect's text", () => {
    const message = "TypeError: x is not a function"
    expect(outcomeOf(Exit.die(new TypeError("x is not a function")))).toEqual(
      Option.some(Outcome.Retry({ code: "defect", message, retryAfter: Option.none() }))
    )
    for (const other of [Cause.fail(snooze), interrupt]) {
      for (const cause of both(Cause.die("x"), other)) expect(failed(cause)).toBe("Retry defect")
    }
  })

  it("that asked to snooze is Snooze, also when it was interrupted", () => {
    expect(outcomeOf(Exit.fail(snooze))).toEqual(Option.some(Outcome.Snooze({ delay: "1 minute" })))
    for (const cause of both(Cause.fail(snooze), interrupt)) expect(failed(cause)).toBe("Snooze")
  })

  it("that the worker's shutdown interrupted is Released", () => {
    expect(short(Exit.failCause(interrupt), "shutdown")).toBe("Released")
  })

  it("that interrupted itself is Retry with code interrupted, which is no shutdown", () => {
    expect(short(Exit.failCause(interrupt))).toBe("Retry interrupted")
    expect(failed(Cause.parallel(interrupt, interrupt))).toBe("Retry interrupted")
    expect(failed(Cause.empty)).toBe("Retry interrupted")
  })

  it.effect("is told from what handlers really do", () =>
    Effect.gen(function* () {
      const ended = (handler: Effect.Effect<string, Failure>) => Effect.map(Effect.exit(handler), (exit) => short(exit))
      expect(
        yield* ended(
          Effect.sync(() => {
            throw new Error("thrown")
          })
        )
      ).toBe("Retry defect")
      expect(yield* ended(Effect.promise(() => Promise.reject(new Error("rejected"))))).toBe("Retry defect")
      expect(yield* ended(Effect.interrupt)).toBe("Retry interrupted")
      expect(
        yield* ended(
          Effect.all([Effect.fail(retryable), Effect.fail(permanent)], {
            concurrency: "unbounded",
            discard: true
          }).pipe(Effect.as("x"))
        )
      ).toMatch(/^(Retry upstream|Dead gone)$/)
      expect(yield* ended(Effect.ensuring(Effect.fail(retryable), Effect.die("finalizer")))).toBe("Retry upstream")
      expect(yield* ended(Effect.orDie(Effect.fail(permanent)))).toBe("Retry defect")
      const started = yield* Deferred.make<void>()
      const child = yield* Effect.fork(Effect.zipRight(Deferred.succeed(started, undefined), Effect.never))
      yield* Deferred.await(started)
      yield* Fiber.interrupt(child)
      expect(yield* ended(Fiber.join(child))).toBe("Retry interrupted")
    })
  )
})

describe("the text of something that was thrown", () => {
  const circular: Record<string, unknown> = { name: "circular" }
  circular["self"] = circular
  const selfCaused = new Error("self")
  selfCaused.cause = selfCaused
  const hostileMessage = new Error("x")
  Object.defineProperty(hostileMessage, "message", {
    get() {
      throw new Error("message")
    }
  })
  const hostileProxy = new Proxy(
    {},
    {
      get() {
        throw new Error("get")
      },
      getPrototypeOf() {
        throw new Error("getPrototypeOf")
      },
      has() {
        throw new Error("has")
      }
    }
  )
  const revoked = Proxy.revocable({}, {})
  revoked.revoke()

  const thrown: ReadonlyArray<readonly [string, unknown, string | RegExp]> = [
    ["null", null, "null"],
    ["undefined", undefined, "undefined"],
    ["zero", 0, "0"],
    ["an empty text", "", ""],
    ["a symbol", Symbol("s"), "Symbol(s)"],
    ["a bigint", 5n, "5"],
    ["a circular object", circular, "[object Object]"],
    ["an object with a message", { message: "m" }, "[object Object] m"],
    ["an object with no prototype", Object.create(null), "[object Object]"],
    ["an array", [1, 2], "[object Array]"],
    ["a function", () => 1, /=>/],
    ["an error that causes itself", selfCaused, "Error: self"],
    ["an aggregate of 10,000", new AggregateError(Array(10_000).fill(selfCaused), "all"), "AggregateError: all"],
    ["a frozen error", Object.freeze(new RangeError("r")), "RangeError: r"],
    ["an error whose message throws", hostileMessage, /cannot be shown/],
    ["an object whose message can not be text", { message: { toString: () => ({}) } }, /cannot be shown/],
    ["a proxy that throws", hostileProxy, /cannot be shown/],
    ["a revoked proxy", revoked.proxy, /cannot be shown/],
    ["an error of 10 million characters", new Error("x".repeat(10_000_000)), /^Error: x{9993}$/]
  ]

  it.each(thrown)("is a line for %s", (_name, value, text) => {
    const started = cpuMillis()
    const line = describeThrown(value)
    expect(cpuMillis() - started).toBeLessThan(1_000)
    if (typeof text === "string") expect(line).toBe(text)
    else expect(line).toMatch(text)
    expect(line.length).toBeLessThanOrEqual(10_000)
  })

  it.each(thrown)("makes a Retry with code defect of %s", (_name, value) => {
    expect(short(Exit.die(value))).toBe("Retry defect")
  })
})
