/**
 * What a job says of itself whatever its types are, and what it may say: the rules of names, priorities and limits.
 *
 * @module
 */
import { Duration, Option } from "effect"
import { InvalidName, InvalidOption } from "./QueueError.js"
import * as RetryPolicy from "./RetryPolicy.js"

/** The part of a job that does not depend on its types: all that a worker's bookkeeping needs. */
export interface Definition {
  readonly type: string
  /** Default `"default"`. */
  readonly queue: string
  /** 0 (first) to 9. Default 5. */
  readonly priority: number
  /** None: an attempt may run for as long as its lease is renewed. */
  readonly timeout: Option.Option<Duration.Duration>
  readonly retry: RetryPolicy.RetryPolicy
  /** Version of the payload's encoded form, 1 to 65,535. Default 1. */
  readonly version: number
  /** What is wrong with the definition; reported where the job is used first. */
  readonly invalid: Option.Option<InvalidName | InvalidOption>
}

const nameRule = /^[A-Za-z0-9_.:/-]{1,64}$/

/** Whether a queue name or job type may be used: 1 to 64 characters of `A-Z a-z 0-9 _ . : / -`. */
export const isValidName = (name: unknown): name is string => typeof name === "string" && nameRule.test(name)

/** Whether a number is a priority: a whole number from 0, which runs first, to 9. */
export const isPriority = (priority: unknown): priority is number =>
  Number.isInteger(priority) && Number(priority) >= 0 && Number(priority) <= 9

/** The error of a priority that is none. */
export const invalidPriority = (value: unknown): InvalidOption =>
  new InvalidOption({ option: "priority", value, accepted: "a whole number from 0 (first) to 9" })

const isVersion = (version: number): boolean => Number.isInteger(version) && version >= 1 && version <= 65_535

const isTimeout = (timeout: Duration.DurationInput): boolean =>
  Option.exists(
    RetryPolicy.finite(timeout),
    // `finite` cuts what is longer than it accepts: so the option itself is looked at again.
    (time) => Duration.toMillis(time) >= 1 && Duration.lessThanOrEqualTo(timeout, RetryPolicy.longestDelay)
  )

/** The first thing that is wrong with a job's type and options, none where they may be used. What is left out is right. */
export const findInvalid = (
  type: string,
  options: {
    readonly queue?: string
    readonly priority?: number
    readonly timeout?: Duration.DurationInput
    readonly retry?: RetryPolicy.RetryPolicy
    readonly version?: number
  }
): Option.Option<InvalidName | InvalidOption> => {
  const { priority, queue, retry, timeout, version } = options
  if (!isValidName(type)) return Option.some(new InvalidName({ kind: "job type", name: String(type) }))
  if (queue !== undefined && !isValidName(queue)) {
    return Option.some(new InvalidName({ kind: "queue", name: String(queue) }))
  }
  if (priority !== undefined && !isPriority(priority)) return Option.some(invalidPriority(priority))
  if (version !== undefined && !isVersion(version)) {
    return Option.some(new InvalidOption({ option: "version", value: version, accepted: "1 to 65535" }))
  }
  if (timeout !== undefined && !isTimeout(timeout)) {
    return Option.some(new InvalidOption({ option: "timeout", value: timeout, accepted: "1 millisecond to 365 days" }))
  }
  return Option.map(retry?.invalid ?? Option.none(), (setting) => new InvalidOption(setting))
}
