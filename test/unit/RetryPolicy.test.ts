import { describe, expect, it } from "@effect/vitest"
import { Duration, Option } from "effect"
import * as RetryPolicy from "../../src/RetryPolicy.js"

const millis = (
  policy: RetryPolicy.RetryPolicy,
  attempt: number,
  random: number,
  retryAfter?: Duration.DurationInput
): number => Duration.toMillis(RetryPolicy.delayAfter(policy, attempt, random, Option.fromNullable(retryAfter)))

const randoms = [0, 0.25, 0.5, 0.75, 0.999999]

/** The share of 2,000 jobs that the fullest 100 milliseconds hold, over random numbers that differ from run to run. */
const fullestBucket = (delayOf: (random: number) => number): number => {
  const buckets = new Map<number, number>()
  for (let job = 0; job < 2_000; job++) {
    const bucket = Math.floor(delayOf(Math.random()) / 100)
    buckets.set(bucket, (buckets.get(bucket) ?? 0) + 1)
  }
  return Math.max(...buckets.values()) / 2_000
}

describe("RetryPolicy", () => {
  it("an exponential policy doubles from its base up to its longest delay", () => {
    const policy = RetryPolicy.exponential({ base: "1 second", max: "1 minute", jitter: 0 })
    expect([1, 2, 3, 6, 7, 8].map((attempt) => millis(policy, attempt, 0.3))).toEqual([
      1_000, 2_000, 4_000, 32_000, 60_000, 60_000
    ])
  })

  it("a linear policy adds its base each time, a fixed one nothing", () => {
    const linear = RetryPolicy.linear({ base: "10 seconds", max: "25 seconds", jitter: 0 })
    expect([1, 2, 3].map((attempt) => millis(linear, attempt, 0.3))).toEqual([10_000, 20_000, 25_000])
    const fixed = RetryPolicy.fixed({ delay: "7 seconds", jitter: 0 })
    expect([1, 2, 3].map((attempt) => millis(fixed, attempt, 0.3))).toEqual([7_000, 7_000, 7_000])
  })

  const lateAttempts = [31, 40, 64, 310, 1_023, 1_024, 100_000]

  it.each(lateAttempts)("after attempt %i the delay is positive and within the policy's longest", (attempt) => {
    for (const factor of [2, 10]) {
      for (const jitter of [0, 0.25, 0.5, 1]) {
        const policy = RetryPolicy.exponential({ base: "1 second", factor, max: "1 hour", jitter })
        for (const random of randoms) {
          const delay = millis(policy, attempt, random)
          expect(delay).toBeGreaterThanOrEqual(jitter === 1 ? 0 : 3_600_000 * (1 - jitter))
          expect(delay).toBeLessThanOrEqual(3_600_000)
          expect(Number.isFinite(delay)).toBe(true)
        }
        expect(millis(policy, attempt, 0.5)).toBeGreaterThan(0)
      }
    }
    const linear = RetryPolicy.linear({ base: "10 days" })
    expect(millis(linear, attempt, 0.9)).toBeLessThanOrEqual(3_600_000)
    const custom = RetryPolicy.custom({ delay: (n) => 1_000 * 2 ** n })
    expect(millis(custom, attempt, 0.9)).toBeLessThanOrEqual(Duration.toMillis(RetryPolicy.longestDelay))
  })

  it("jitter spreads a delay around itself, by its share and no more", () => {
    const policy = RetryPolicy.fixed({ delay: "10 seconds", jitter: 0.5 })
    expect(millis(policy, 1, 0)).toBe(5_000)
    expect(millis(policy, 1, 0.5)).toBe(10_000)
    expect(millis(policy, 1, 0.999_999)).toBeCloseTo(15_000, 0)
    const whole = RetryPolicy.fixed({ delay: "10 seconds", jitter: 1 })
    expect(millis(whole, 1, 0)).toBe(0)
    expect(millis(whole, 1, 0.999_999)).toBeCloseTo(20_000, 0)
  })

  it.each<readonly [string, () => unknown]>([
    ["-5", () => -5],
    ["NaN", () => NaN],
    ["Infinity", () => Infinity],
    ["-Infinity", () => -Infinity],
    ["a text that is no duration", () => "soon"],
    ["a negative text", () => "-5 seconds"],
    ["undefined", () => undefined],
    ["null", () => null],
    ["an object", () => ({})],
    ["a date", () => new Date()],
    ["a negative bigint", () => -5n],
    ["a negative pair", () => [-1, 0]],
    ["an infinite duration", () => Duration.infinity],
    [
      "an exception",
      () => {
        throw new Error("policy")
      }
    ]
  ])("a custom policy that answers %s waits its fallback", (_name, delay) => {
    // A caller without types can answer anything.
    const answers = { delay: delay as () => Duration.DurationInput, jitter: 0 }
    expect(millis(RetryPolicy.custom({ ...answers, fallback: "7 minutes" }), 1, 0.5)).toBe(420_000)
    expect(millis(RetryPolicy.custom(answers), 1, 0.5)).toBe(3_600_000)
  })

  it("a custom policy may answer zero, and what is too long is cut to 365 days", () => {
    expect(millis(RetryPolicy.custom({ delay: () => 0 }), 1, 0.5)).toBe(0)
    for (const delay of [1e20, Number.MAX_VALUE, "99999 weeks"] as const) {
      const policy = RetryPolicy.custom({ delay: () => delay })
      for (const random of randoms) {
        expect(millis(policy, 1, random)).toBeLessThanOrEqual(365 * 86_400_000)
        expect(millis(policy, 1, random)).toBeGreaterThan(100 * 86_400_000)
      }
    }
  })

  it("what a failure asks for is never undercut, and nonsense that it asks for is ignored", () => {
    const policy = RetryPolicy.exponential()
    for (const asked of ["1 second", "5 seconds", "3 hours", "300 days"] as const) {
      for (const attempt of [1, 5, 100]) {
        for (const random of randoms) {
          expect(millis(policy, attempt, random, asked)).toBeGreaterThanOrEqual(Duration.toMillis(asked))
          expect(millis(policy, attempt, random, asked)).toBeGreaterThanOrEqual(millis(policy, attempt, 0))
        }
      }
    }
    for (const asked of [-5, NaN, Infinity, "soon" as Duration.DurationInput]) {
      expect(millis(policy, 1, 0.3, asked)).toBe(millis(policy, 1, 0.3))
    }
  })

  it("jobs that failed together do not return together: no 100 milliseconds hold more than a twentieth", () => {
    for (const attempt of [1, 2, 3, 4, 5, 12, 40]) {
      expect(fullestBucket((random) => millis(RetryPolicy.standard, attempt, random))).toBeLessThan(0.05)
    }
  })

  it("jobs that were all asked to wait for the same time do not return together either", () => {
    for (const asked of ["100 millis", "1 second", "5 seconds", "30 seconds", "1 hour"] as const) {
      expect(fullestBucket((random) => millis(RetryPolicy.standard, 1, random, asked))).toBeLessThan(0.05)
    }
  })

  it("an option out of range is reported by name, and still never makes a delay that is negative or endless", () => {
    const cases: ReadonlyArray<readonly [RetryPolicy.RetryPolicy, string]> = [
      [RetryPolicy.exponential({ maxAttempts: 0 }), "retry.maxAttempts"],
      [RetryPolicy.exponential({ maxAttempts: 65_536 }), "retry.maxAttempts"],
      [RetryPolicy.exponential({ maxAttempts: 1.5 }), "retry.maxAttempts"],
      [RetryPolicy.exponential({ maxAttempts: NaN }), "retry.maxAttempts"],
      [RetryPolicy.exponential({ jitter: 1.01 }), "retry.jitter"],
      [RetryPolicy.exponential({ jitter: -0.1 }), "retry.jitter"],
      [RetryPolicy.exponential({ jitter: NaN }), "retry.jitter"],
      [RetryPolicy.exponential({ factor: 0.5 }), "retry.factor"],
      [RetryPolicy.exponential({ factor: NaN }), "retry.factor"],
      [RetryPolicy.exponential({ factor: Infinity }), "retry.factor"],
      [RetryPolicy.exponential({ base: -1 }), "retry.base"],
      [RetryPolicy.exponential({ base: NaN }), "retry.base"],
      [RetryPolicy.exponential({ max: Infinity }), "retry.max"],
      [RetryPolicy.fixed({ delay: -1 }), "retry.delay"],
      [RetryPolicy.linear({ base: Infinity }), "retry.base"],
      [RetryPolicy.linear({ base: 1, max: -1 }), "retry.max"],
      [RetryPolicy.custom({ delay: () => 1, fallback: NaN }), "retry.fallback"]
    ]
    for (const [policy, option] of cases) {
      expect(Option.map(policy.invalid, (setting) => setting.option)).toEqual(Option.some(option))
      for (const attempt of [1, 40, 100_000]) {
        for (const random of randoms) {
          const delay = millis(policy, attempt, random)
          expect(delay).toBeGreaterThanOrEqual(0)
          expect(delay).toBeLessThanOrEqual(Duration.toMillis(RetryPolicy.longestDelay))
        }
      }
    }
  })

  it("the edges of every range are accepted", () => {
    const policies = [
      RetryPolicy.standard,
      RetryPolicy.exponential({ maxAttempts: 1, jitter: 0, factor: 1, base: 0, max: 0 }),
      RetryPolicy.exponential({ maxAttempts: 65_535, jitter: 1 }),
      RetryPolicy.exponential({ maxAttempts: "unlimited" }),
      RetryPolicy.fixed({ delay: 0 }),
      RetryPolicy.linear({ base: 0 }),
      RetryPolicy.custom({ delay: () => 1 })
    ]
    for (const policy of policies) expect(policy.invalid).toEqual(Option.none())
  })
})
