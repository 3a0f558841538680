/**
 * What a handler can say about a job that it could not finish.
 *
 * @module
 */
import { Data, type Duration, Option } from "effect"
import type { JobId } from "./JobRecord.js"
import * as Outcomes from "./Outcome.js"
import { describe, type Outcome } from "./Outcome.js"

/**
 * Try again, by the job's retry policy or no sooner than `retryAfter`. Without budget left, the job becomes dead.
 *
 * `code` (at most 64 characters) and `message` are stored in the ledger, redacted and cut at 1,000 characters; `cause`
 * is for the logs of the handler and is not stored.
 */
export class Retryable extends Data.TaggedError("Retryable")<{
  readonly code: string
  readonly message: string
  readonly retryAfter?: Duration.DurationInput
  readonly cause?: unknown
}> {}

/** Do not try again: the job becomes dead, whatever is left of its budget. Stored as {@link Retryable} is. */
export class Permanent extends Data.TaggedError("Permanent")<{
  readonly code: string
  readonly message: string
  readonly cause?: unknown
}> {}

/**
 * Somebody else owns the job now, or may: nothing was written under this lease, and nothing may be written any more.
 *
 * - `superseded`: another worker took the job over, or somebody else ended it.
 * - `expired`: the lease ran out, or could not be renewed in time to be sure of it.
 * - `canceled`: the job was canceled while this lease was held.
 */
export class LeaseLost extends Data.TaggedError("LeaseLost")<{
  readonly jobId: JobId
  readonly token: number
  readonly during: string
  readonly reason: "superseded" | "expired" | "canceled"
}> {
  override get message() {
    const why = {
      superseded: "another worker has taken the job over, or it was ended from outside",
      expired: "the lease could not be renewed before it ran out",
      canceled: "the job was canceled"
    }[this.reason]
    return `Lease ${this.token} on job ${this.jobId} was lost during ${this.during}: ${why}. Nothing was written.`
  }
}

/** Put the job back for a while. It costs nothing of the budget, and is no failure. */
export class Snooze extends Data.TaggedError("Snooze")<{
  readonly for: Duration.DurationInput
}> {}

/** The failures that every handler may end with, beside its job's own errors. */
export type JobFailure = Retryable | Permanent | LeaseLost | Snooze

/** How a job treats one of its own errors: the words, or a function of the error. */
export type Verdict<E> = "retry" | "permanent" | ((error: E) => Retryable | Permanent | Snooze)

const isJobFailure = (error: unknown): error is JobFailure =>
  error instanceof Retryable || error instanceof Permanent || error instanceof LeaseLost || error instanceof Snooze

/**
 * The outcome of one failure: the library's own by what they say, the job's own by its failures table. None for
 * `LeaseLost`. What only a program without types can do is retryable, as defects are: a tag that is in no table, a
 * failure without a tag, a function that throws or answers something else.
 */
export const toOutcome = <E extends { readonly _tag: string }>(
  error: E | JobFailure,
  table: { readonly [tag: string]: Verdict<never> | undefined }
): Option.Option<Outcome> => {
  if (isJobFailure(error)) return outcomeOf(error)
  const tag = tagOf(error)
  if (tag === undefined) return Option.some(retry("defect", `A failure without a tag: ${describe(error)}`))
  // The table was checked against the tags of E where the job was made, so each function gets the member that it takes.
  const verdict = Object.hasOwn(table, tag) ? (table[tag] as Verdict<E> | undefined) : undefined
  if (verdict === "permanent") return Option.some(Outcomes.Dead({ code: tag, message: messageOf(error) }))
  if (typeof verdict !== "function") return Option.some(retry(tag, messageOf(error)))
  try {
    const judged: unknown = verdict(error)
    return isJobFailure(judged)
      ? outcomeOf(judged)
      : Option.some(retry("defect", `The failures table answered no failure for ${tag}`))
  } catch (defect) {
    return Option.some(retry("defect", `The failures table threw for ${tag}: ${describe(defect)}`))
  }
}

const tagOf = (error: unknown): string | undefined =>
  typeof error === "object" && error !== null && "_tag" in error && typeof error._tag === "string"
    ? error._tag
    : undefined

/** What an error says beside its tag, which is the code already. */
const messageOf = (error: unknown): string => {
  try {
    return error instanceof Error && error.message !== "" ? error.message : describe(error)
  } catch {
    return describe(error)
  }
}

const retry = (code: string, message: string, retryAfter?: Duration.DurationInput) =>
  Outcomes.Retry({ code, message, retryAfter: Option.fromNullable(retryAfter) })

const outcomeOf = (failure: JobFailure): Option.Option<Outcome> => {
  switch (failure._tag) {
    case "Retryable":
      return Option.some(retry(failure.code, failure.message, failure.retryAfter))
    case "Permanent":
      return Option.some(Outcomes.Dead({ code: failure.code, message: failure.message }))
    case "Snooze":
      return Option.some(Outcomes.Snooze({ delay: failure.for }))
    case "LeaseLost":
      return Option.none()
  }
}
