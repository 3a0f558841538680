/**
 * What a job should be after any sequence of verbs: the table of transitions, a clock, and a ledger. No store.
 */
import { Option } from "effect"
import type { AttemptOutcome } from "../../src/Attempt.js"
import { type Act, budgetAfter, isEnded, type JobState, type Transition, transition } from "../../src/JobRecord.js"
import type { SettleVerdict } from "../../src/JobStore.js"

/** Durations of the test, in seconds: no sum of elapsed times is within five seconds of when something becomes due. */
export const lease = 60
export const retryDelay = 30
export const snoozeDelay = 40
export const elapses = [25, 70] as const

/** One job of the model. `raised` counts how often the token has to have risen; the store says to what. */
export interface Job {
  state: JobState
  raised: number
  attempt: number
  attemptsLeft: Option.Option<number>
  readonly maxAttempts: Option.Option<number>
  cancelRequested: boolean
  due: number
  readonly ledger: Array<{ raised: number; outcome: AttemptOutcome | undefined }>
}

export const newJob = (maxAttempts: Option.Option<number>, now: number): Job => ({
  state: "pending",
  raised: 0,
  attempt: 0,
  attemptsLeft: maxAttempts,
  maxAttempts,
  cancelRequested: false,
  due: now,
  ledger: []
})

const next = (job: Job, act: Act, now: number): Option.Option<Transition> =>
  transition({ ...job, due: !isEnded(job.state) && job.due <= now }, act)

const follow = (job: Job, { budget, state, token }: Transition): void => {
  job.state = state
  job.attemptsLeft = budgetAfter(job.attemptsLeft, job.maxAttempts, budget)
  if (token === "raised") job.raised++
}

const end = (job: Job, outcome: AttemptOutcome): void => {
  const open = job.ledger.at(-1)
  if (open !== undefined && open.outcome === undefined) open.outcome = outcome
}

/** What a claim makes of the job: taken, ended, or nothing. */
export const claim = (job: Job, now: number): "taken" | "dead" | "canceled" | "nothing" => {
  const to = Option.getOrUndefined(next(job, "claim", now))
  if (to === undefined) return "nothing"
  end(job, to.state === "running" ? "expired" : "reaped")
  follow(job, to)
  if (to.state === "dead" || to.state === "canceled") return to.state
  job.attempt++
  job.due = now + lease
  job.ledger.push({ raised: job.raised, outcome: undefined })
  return "taken"
}

export const reap = (job: Job, now: number): "dead" | "canceled" | "nothing" => {
  const to = Option.getOrUndefined(next(job, "reap", now))
  if (to === undefined) return "nothing"
  end(job, "reaped")
  follow(job, to)
  return to.state === "dead" ? "dead" : "canceled"
}

export const holds = (job: Job, raised: number): boolean => job.state === "running" && job.raised === raised

const lostReason = (job: Job) => (job.state === "canceled" ? ("canceled" as const) : ("superseded" as const))

export const renew = (job: Job, raised: number, now: number) => {
  if (!holds(job, raised)) return { _tag: "Lost" as const, reason: lostReason(job) }
  job.due = now + lease
  return { _tag: "Renewed" as const, cancelRequested: job.cancelRequested }
}

const acts = {
  Complete: ["complete", "completed"],
  RetryLater: ["retryLater", "retry"],
  Bury: ["bury", "dead"],
  Snooze: ["snooze", "snoozed"],
  Release: ["release", "released"]
} as const

export type Settling = keyof typeof acts

const stateAfter: { readonly [outcome: string]: JobState } = {
  completed: "succeeded",
  dead: "dead",
  canceled: "canceled"
}

export const settle = (job: Job, raised: number, tag: Settling, now: number): SettleVerdict => {
  const [act, outcome] = acts[tag]
  if (holds(job, raised)) {
    follow(job, Option.getOrThrow(next(job, act, now)))
    end(job, job.state === "canceled" || job.state === "dead" ? job.state : outcome)
    job.due = now + (tag === "RetryLater" ? retryDelay : tag === "Snooze" ? snoozeDelay : 0)
    return { _tag: "Recorded", state: job.state }
  }
  const ended = job.ledger.find((entry) => entry.raised === raised)?.outcome
  if (ended === undefined) return { _tag: "Unknown" }
  if (ended === "expired" || ended === "reaped") return { _tag: "Lost", reason: lostReason(job) }
  return ended === outcome || ended === "canceled" || (ended === "dead" && tag === "RetryLater")
    ? { _tag: "Recorded", state: stateAfter[ended] ?? "pending" }
    : { _tag: "AlreadySettled" }
}

/** How a completeWith whose effect succeeds or fails ends. */
export const completeWith = (job: Job, raised: number, succeeds: boolean, now: number): string => {
  if (holds(job, raised)) {
    if (job.cancelRequested) return "LeaseLost canceled"
    if (!succeeds) return "the effect's failure"
    settle(job, raised, "Complete", now)
    return "completed"
  }
  const verdict = settle(job, raised, "Complete", now)
  return verdict._tag === "Lost"
    ? `LeaseLost ${verdict.reason}`
    : verdict._tag === "Unknown"
      ? "OutcomeUnknown"
      : "AlreadySettled"
}

export const cancel = (job: Job, now: number) => {
  const to = Option.getOrUndefined(next(job, "cancel", now))
  if (to === undefined) return { _tag: "ended" as const, state: job.state }
  follow(job, to)
  job.cancelRequested = true
  return { _tag: isEnded(to.state) ? ("canceled" as const) : ("requested" as const) }
}

export const retry = (job: Job, now: number): boolean => {
  const to = Option.getOrUndefined(next(job, "retry", now))
  if (to === undefined) return false
  follow(job, to)
  job.cancelRequested = false
  job.due = now
  return true
}
