/**
 * When a failed job runs again: pure functions from the attempt that failed and one random number to a delay.
 *
 * Whatever a policy answers is clamped to `[0, longestDelay]`, so no overflow, `NaN` or exception of a custom policy can
 * make a job run at once for ever, or at a time that no database column can hold.
 *
 * @module
 */
import { Duration, Option } from "effect"

/** The longest delay that a policy may ask for: 365 days. Longer ones are cut to it. */
export const longestDelay: Duration.Duration = Duration.days(365)

/** The largest budget that a job row can hold. */
export const mostAttempts = 65_535

/** An option outside of its range. `Job.make` keeps it until the job is used, where it becomes `InvalidOption`. */
export interface InvalidSetting {
  readonly option: string
  readonly value: unknown
  readonly accepted: string
}

/** Made by {@link exponential}, {@link linear}, {@link fixed} or {@link custom}. */
export interface RetryPolicy {
  /** How many times a job may start before a failure is final: 1 to 65,535, or `"unlimited"`. */
  readonly maxAttempts: number | "unlimited"
  /** Share of the delay, 0 to 1, by which retries are spread, so that jobs which failed together do not return together. */
  readonly jitter: number
  /**
   * The delay after the attempt that failed (1 is the first), without jitter. Not clamped: use {@link delayAfter}.
   */
  readonly delay: (attempt: number) => Duration.DurationInput
  /** No delay is longer, jitter included; only a failure that asks for more gets it. */
  readonly max: Duration.Duration
  /** Taken where `delay` throws or answers something that is no delay. */
  readonly fallback: Duration.Duration
  readonly invalid: Option.Option<InvalidSetting>
}

/** What every policy takes. */
export interface Budget {
  /** Default 10. */
  readonly maxAttempts?: number | "unlimited"
  /** Default 0.5: a delay of 10 seconds becomes 5 to 15 seconds. */
  readonly jitter?: number
}

const make = (
  options: Budget,
  settings: ReadonlyArray<readonly [option: string, value: Duration.DurationInput | undefined]>,
  fallback: Duration.DurationInput | undefined,
  max: Duration.Duration,
  delay: (attempt: number) => Duration.DurationInput,
  invalid: ReadonlyArray<InvalidSetting> = []
): RetryPolicy => {
  const maxAttempts = options.maxAttempts ?? 10
  const jitter = options.jitter ?? 0.5
  const found = [...invalid]
  if (
    maxAttempts !== "unlimited"
    && !(Number.isInteger(maxAttempts) && maxAttempts >= 1 && maxAttempts <= mostAttempts)
  ) {
    found.push({ option: "retry.maxAttempts", value: maxAttempts, accepted: `1 to ${mostAttempts}, or "unlimited"` })
  }
  if (!(jitter >= 0 && jitter <= 1)) {
    found.push({ option: "retry.jitter", value: jitter, accepted: "0 to 1" })
  }
  for (const [option, value] of settings) {
    if (value !== undefined && Option.isNone(finite(value))) {
      found.push({ option: `retry.${option}`, value, accepted: "a finite duration of 0 or more" })
    }
  }
  return {
    maxAttempts,
    jitter,
    delay,
    max,
    fallback: Option.getOrElse(finite(fallback), () => Duration.hours(1)),
    invalid: Option.fromNullable(found[0])
  }
}

/**
 * Waits `base`, `base * factor`, `base * factor^2`, … up to `max`, which jitter does not exceed: delays that have
 * reached it are spread below it.
 *
 * Defaults: 10 attempts, base 5 seconds, factor 2, max 1 hour, jitter 0.5.
 */
export const exponential = (
  options: Budget & {
    readonly base?: Duration.DurationInput
    readonly factor?: number
    readonly max?: Duration.DurationInput
  } = {}
): RetryPolicy => {
  const factor = options.factor ?? 2
  const max = Option.getOrElse(finite(options.max ?? "1 hour"), () => Duration.hours(1))
  const base = Duration.toMillis(Option.getOrElse(finite(options.base ?? "5 seconds"), () => max))
  return make(
    options,
    [
      ["base", options.base],
      ["max", options.max]
    ],
    max,
    max,
    // `factor ** n` may be Infinity, and `0 * Infinity` is NaN: Math.min and the clamp keep both within `max`.
    (attempt) => (base === 0 ? 0 : Math.min(base * factor ** (attempt - 1), Duration.toMillis(max))),
    factor >= 1 && Number.isFinite(factor) ? [] : [{ option: "retry.factor", value: factor, accepted: "1 or more" }]
  )
}

/** Waits `delay` each time. Defaults: 10 attempts, jitter 0.5. */
export const fixed = (options: Budget & { readonly delay: Duration.DurationInput }): RetryPolicy =>
  make(options, [["delay", options.delay]], options.delay, longestDelay, () => options.delay)

/** Waits `base`, `2 * base`, `3 * base`, … up to `max`. Defaults: 10 attempts, max 1 hour, jitter 0.5. */
export const linear = (
  options: Budget & { readonly base: Duration.DurationInput; readonly max?: Duration.DurationInput }
): RetryPolicy => {
  const max = Option.getOrElse(finite(options.max ?? "1 hour"), () => Duration.hours(1))
  const base = Duration.toMillis(Option.getOrElse(finite(options.base), () => max))
  return make(
    options,
    [
      ["base", options.base],
      ["max", options.max]
    ],
    max,
    max,
    (attempt) => Math.min(base * attempt, Duration.toMillis(max))
  )
}

/**
 * Waits what `delay` answers for the attempt that failed (1 is the first).
 *
 * Where it throws, or answers something that is not a duration of 0 or more, `fallback` is taken (default 1 hour): a
 * mistake in a policy delays a job, and never loses it.
 */
export const custom = (
  options: Budget & {
    readonly delay: (attempt: number) => Duration.DurationInput
    readonly fallback?: Duration.DurationInput
  }
): RetryPolicy => make(options, [["fallback", options.fallback]], options.fallback, longestDelay, options.delay)

/**
 * The delay before the next attempt, clamped to `[0, 365 days]` and spread evenly by the policy's jitter.
 *
 * @param attempt the number of the attempt that failed, 1 for the first
 * @param random a number in `[0, 1)`
 * @param retryAfter the least delay that the failure asked for: it is never undercut, and spread only upwards, at least as
 * widely as the policy's own delay, since all that failed together may have been told the same
 */
export const delayAfter = (
  policy: RetryPolicy,
  attempt: number,
  random: number,
  retryAfter: Option.Option<Duration.DurationInput> = Option.none()
): Duration.Duration => {
  const jitter = policy.jitter >= 0 && policy.jitter <= 1 ? policy.jitter : 0
  const planned = Duration.toMillis(plannedDelay(policy, attempt))
  const earliest = planned * (1 - jitter)
  const latest = Math.min(planned * (1 + jitter), Duration.toMillis(policy.max))
  const asked = Option.match(Option.flatMap(retryAfter, finite), { onNone: () => 0, onSome: Duration.toMillis })
  const spread = Math.max(latest - earliest, asked * jitter)
  return Duration.min(Duration.millis(Math.max(earliest, asked) + spread * random), longestDelay)
}

const plannedDelay = (policy: RetryPolicy, attempt: number): Duration.Duration => {
  try {
    return Option.getOrElse(finite(policy.delay(attempt)), () => policy.fallback)
  } catch {
    return policy.fallback
  }
}

/**
 * A duration of 0 or more, cut to {@link longestDelay}; none for what is no duration at all: negative numbers, `NaN`,
 * `Infinity`, and values that only a caller without types can give.
 */
export const finite = (input: unknown): Option.Option<Duration.Duration> => {
  // `Duration.decode` turns what is negative and NaN into zero, which would be a hot loop: look at plain values first.
  const parts: ReadonlyArray<unknown> = Array.isArray(input) ? input : [input]
  if (parts.some((part) => typeof part === "number" && !(part >= 0 && Number.isFinite(part)))) return Option.none()
  if (typeof input === "bigint" && input < 0n) return Option.none()
  if (typeof input === "string" && input.trim().startsWith("-")) return Option.none()
  return Option.filter(Duration.decodeUnknown(input), Duration.isFinite).pipe(
    Option.map((duration) => Duration.min(duration, longestDelay))
  )
}

/** What a job has that names no policy: {@link exponential} with its defaults. */
export const standard: RetryPolicy = exponential()
