/**
 * A job as it stands in the database, and the one table of what may happen to it.
 *
 * @module
 */
import { type DateTime, Option, Schema } from "effect"
import type { Attempt } from "./Attempt.js"

/** The id of a job: a whole number from 1 to 2^64 - 1, as decimal text, since it can be larger than 2^53. */
export const JobId = Schema.String.pipe(
  Schema.pattern(/^[1-9][0-9]{0,19}$/),
  Schema.filter((text) => BigInt(text) < 2n ** 64n),
  Schema.brand("leasehold/JobId")
)
export type JobId = typeof JobId.Type

/**
 * - `pending`: waits for its due time, be it new, scheduled or waiting for a retry.
 * - `running`: a worker holds it by a lease.
 * - `succeeded`, `dead`, `canceled`: ended.
 */
export const JobState = Schema.Literal("pending", "running", "succeeded", "dead", "canceled")
export type JobState = typeof JobState.Type

/** Whether nothing happens to a job in this state any more, but an operator's retry. */
export const isEnded = (state: JobState): boolean => state === "succeeded" || state === "dead" || state === "canceled"

/**
 * Everything that is known about a job, payload and output still encoded.
 *
 * Times are the database's. `dueAt` is when the job may be claimed: for a pending job its time to run, for a running one
 * the end of its lease; an ended job has none. `attemptsLeft` none means an unlimited budget.
 */
export interface JobRecord {
  readonly id: JobId
  readonly queue: string
  readonly type: string
  readonly priority: number
  readonly state: JobState
  readonly token: number
  /** Attempts started so far; it never goes down. */
  readonly attempt: number
  readonly attemptsLeft: Option.Option<number>
  readonly maxAttempts: Option.Option<number>
  readonly worker: Option.Option<string>
  /** The encoded payload; null where the job's schema encodes to `undefined`. */
  readonly payload: string | null
  readonly payloadVersion: number
  readonly output: Option.Option<string>
  readonly errorCode: Option.Option<string>
  readonly errorMessage: Option.Option<string>
  readonly cancelRequested: boolean
  readonly enqueuedAt: DateTime.Utc
  readonly firstDueAt: DateTime.Utc
  readonly dueAt: Option.Option<DateTime.Utc>
  readonly finishedAt: Option.Option<DateTime.Utc>
  /** The ledger, oldest first: the last 50 attempts. */
  readonly attempts: ReadonlyArray<Attempt>
}

/**
 * What can happen to a job. The first three are done by anybody who finds the row so; the `settle` acts only by the holder
 * of the lease; the last two by a caller of `Queue`.
 */
export type Act =
  | "claim"
  | "reap"
  | "renew"
  | "complete"
  | "retryLater"
  | "bury"
  | "snooze"
  | "release"
  | "cancel"
  | "retry"

/** The facts that a transition depends on. */
export interface Standing {
  readonly state: JobState
  readonly cancelRequested: boolean
  /** The database's clock has passed `dueAt`. */
  readonly due: boolean
  readonly attemptsLeft: Option.Option<number>
}

/**
 * What follows from an act. `token`: whether the fencing token rises, so that whoever held the job no longer does.
 * `budget`: what the act does to the attempts that are left.
 */
export interface Transition {
  readonly state: JobState
  readonly token: "kept" | "raised"
  readonly budget: "kept" | "paid" | "returned" | "renewed"
}

const ends = (state: JobState, token: Transition["token"]): Option.Option<Transition> =>
  Option.some({ state, token, budget: "kept" })

/** Whether a running job whose lease has ended may not be taken over, because nothing is left of its budget. */
const exhausted = (standing: Standing): boolean => Option.contains(standing.attemptsLeft, 0)

/**
 * The one transition table: what an act makes of a job, or none where it may not happen. Every store obeys it.
 *
 * A claim or reap of a vanished holder's job ends it where it was canceled or has no attempts left; a claim takes it
 * over otherwise, and a reap leaves it for the claims. A cancel of a running job only leaves a request (the state stays),
 * which turns every settlement into `canceled`.
 */
export const transition = (standing: Standing, act: Act): Option.Option<Transition> => {
  const { cancelRequested, due, state } = standing
  switch (act) {
    case "claim":
      if (!due) return Option.none()
      if (state === "pending") return Option.some({ state: "running", token: "raised", budget: "paid" })
      return Option.orElse(transition(standing, "reap"), () =>
        state === "running"
          ? Option.some<Transition>({ state: "running", token: "raised", budget: "paid" })
          : Option.none()
      )
    case "reap":
      if (!due || state !== "running") return Option.none()
      if (cancelRequested) return ends("canceled", "raised")
      return exhausted(standing) ? ends("dead", "raised") : Option.none()
    case "renew":
      return state === "running" ? ends("running", "kept") : Option.none()
    case "cancel":
      if (state === "pending") return ends("canceled", "raised")
      return state === "running" ? ends("running", "kept") : Option.none()
    case "retry":
      return state === "dead" || state === "canceled"
        ? Option.some({ state: "pending", token: "raised", budget: "renewed" })
        : Option.none()
    default:
      if (state !== "running") return Option.none()
      if (cancelRequested) return ends("canceled", "kept")
      return Option.some(settled(standing, act))
  }
}

const settled = (standing: Standing, act: "complete" | "retryLater" | "bury" | "snooze" | "release"): Transition => {
  switch (act) {
    case "complete":
      return { state: "succeeded", token: "kept", budget: "kept" }
    case "bury":
      return { state: "dead", token: "kept", budget: "kept" }
    case "retryLater":
      return { state: exhausted(standing) ? "dead" : "pending", token: "kept", budget: "kept" }
    case "snooze":
    case "release":
      return { state: "pending", token: "kept", budget: "returned" }
  }
}

/** What is left of a budget after a transition; none stays none, which is unlimited. */
export const budgetAfter = (
  attemptsLeft: Option.Option<number>,
  maxAttempts: Option.Option<number>,
  budget: Transition["budget"]
): Option.Option<number> =>
  Option.flatMap(attemptsLeft, (left) => {
    switch (budget) {
      case "kept":
        return Option.some(left)
      case "paid":
        return Option.some(Math.max(0, left - 1))
      case "returned":
        return Option.map(maxAttempts, (most) => Math.min(most, left + 1))
      case "renewed":
        return maxAttempts
    }
  })
