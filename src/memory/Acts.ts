/**
 * What the acts of the transition table make of one record. Pure: the store decides whose turn it is, and when.
 */
import { DateTime, type Duration, Option } from "effect"
import { type AttemptOutcome, ledgerLength } from "../Attempt.js"
import type { LeaseLost } from "../JobFailure.js"
import {
  budgetAfter,
  isEnded,
  type JobRecord,
  type JobState,
  type Standing,
  type Transition,
  transition
} from "../JobRecord.js"
import type { Settlement, SettleVerdict } from "../JobStore.js"
import type { Lease } from "../Lease.js"

/** An act on one record: what it becomes, or none where the act may not happen. */
type Acted = Option.Option<JobRecord>

const standing = (record: JobRecord, now: DateTime.Utc): Standing => ({
  state: record.state,
  cancelRequested: record.cancelRequested,
  attemptsLeft: record.attemptsLeft,
  due: Option.exists(record.dueAt, (dueAt) => dueAt.epochMillis <= now.epochMillis)
})

/** The columns that every transition writes. */
const follow = (record: JobRecord, next: Transition, now: DateTime.Utc): JobRecord => ({
  ...record,
  state: next.state,
  token: next.token === "raised" ? record.token + 1 : record.token,
  attemptsLeft: budgetAfter(record.attemptsLeft, record.maxAttempts, next.budget),
  worker: next.state === "running" ? record.worker : Option.none(),
  dueAt: isEnded(next.state) ? Option.none() : record.dueAt,
  finishedAt: isEnded(next.state) ? Option.some(now) : Option.none()
})

/** Ends the attempt that is open in the ledger, if one is: a running job has one, a pending job has none. */
const endAttempt = (
  record: JobRecord,
  outcome: AttemptOutcome,
  now: DateTime.Utc,
  error: Option.Option<{ readonly code: string; readonly message: string }> = Option.none()
): JobRecord => ({
  ...record,
  attempts: record.attempts.map((entry) =>
    Option.isSome(entry.endedAt)
      ? entry
      : {
          ...entry,
          endedAt: Option.some(now),
          outcome: Option.some(outcome),
          errorCode: Option.map(error, ({ code }) => code),
          errorMessage: Option.map(error, ({ message }) => message)
        }
  )
})

/** What a job says of itself that was ended because its holders vanished until nothing was left of its budget. */
const vanished = { code: "lease_expired", message: "The worker vanished: its lease ended, and no attempt is left" }

const abandon = (record: JobRecord, next: Transition, now: DateTime.Utc): JobRecord => {
  const ended = endAttempt(follow(record, next, now), "reaped", now)
  return next.state === "dead"
    ? { ...ended, errorCode: Option.some(vanished.code), errorMessage: Option.some(vanished.message) }
    : ended
}

/** Running for `worker`; or ended, where a claim finds an expired job that may not run again. */
export const claim = (record: JobRecord, worker: string, lease: Duration.Duration, now: DateTime.Utc): Acted =>
  Option.map(transition(standing(record, now), "claim"), (next) => {
    if (next.state !== "running") return abandon(record, next, now)
    const started = follow(endAttempt(record, "expired", now), next, now)
    const attempt = record.attempt + 1
    const entry = {
      attempt,
      token: started.token,
      worker,
      startedAt: now,
      endedAt: Option.none(),
      outcome: Option.none(),
      errorCode: Option.none(),
      errorMessage: Option.none()
    }
    return {
      ...started,
      attempt,
      worker: Option.some(worker),
      dueAt: Option.some(DateTime.addDuration(now, lease)),
      attempts: [...started.attempts, entry].slice(-ledgerLength)
    }
  })

/** Ended, where the holder has vanished and no claim may take the job over. */
export const reap = (record: JobRecord, now: DateTime.Utc): Acted =>
  Option.map(transition(standing(record, now), "reap"), (next) => abandon(record, next, now))

/** Canceled if it was pending; asked to be if it runs. */
export const cancel = (record: JobRecord, now: DateTime.Utc): Acted =>
  Option.map(transition(standing(record, now), "cancel"), (next) => ({
    ...follow(record, next, now),
    cancelRequested: true
  }))

/** Pending and due now, as if it were new; its ledger, its token and its attempts stay. */
export const retry = (record: JobRecord, now: DateTime.Utc): Acted =>
  Option.map(transition(standing(record, now), "retry"), (next) => ({
    ...follow(record, next, now),
    dueAt: Option.some(now),
    cancelRequested: false,
    output: Option.none(),
    errorCode: Option.none(),
    errorMessage: Option.none()
  }))

/** Whether the lease is the one under which the job runs now: the fence (law 2). */
export const holds = (record: JobRecord, lease: Lease): boolean =>
  record.state === "running" && record.token === lease.token && Option.contains(record.worker, lease.worker)

/** With its lease ending `duration` from now; none where the lease does not hold the job. */
export const renew = (record: JobRecord, lease: Lease, duration: Duration.Duration, now: DateTime.Utc): Acted =>
  Option.map(
    Option.filter(transition(standing(record, now), "renew"), () => holds(record, lease)),
    (next) => ({ ...follow(record, next, now), dueAt: Option.some(DateTime.addDuration(now, duration)) })
  )

/** With the end of its attempt written; none where the lease does not hold the job. */
export const settle = (record: JobRecord, lease: Lease, settlement: Settlement, now: DateTime.Utc): Acted =>
  Option.map(
    Option.filter(settledBy(record, settlement, now), () => holds(record, lease)),
    (next) => {
      const error = "code" in settlement ? Option.some(settlement) : Option.none()
      const outcome = next.state === "canceled" || next.state === "dead" ? next.state : outcomes[settlement._tag][0]
      const settled = endAttempt(follow(record, next, now), outcome, now, error)
      const says = settlement._tag === "Complete" || Option.isSome(error)
      return {
        ...settled,
        dueAt: next.state === "pending" ? Option.some(dueAfter(settlement, now)) : settled.dueAt,
        // What a canceled attempt brought is dropped: nobody waits for it any more.
        output:
          next.state === "succeeded" && settlement._tag === "Complete"
            ? Option.fromNullable(settlement.output)
            : Option.none(),
        // The last word on what went wrong: a success takes it back, a snooze or release says nothing about it.
        errorCode: says ? Option.map(error, ({ code }) => code) : settled.errorCode,
        errorMessage: says ? Option.map(error, ({ message }) => message) : settled.errorMessage
      }
    }
  )

const settledBy = (record: JobRecord, settlement: Settlement, now: DateTime.Utc): Option.Option<Transition> => {
  const at = standing(record, now)
  switch (settlement._tag) {
    case "Complete":
      return transition(at, "complete")
    case "RetryLater":
      return transition(at, "retryLater")
    case "Bury":
      return transition(at, "bury")
    case "Snooze":
      return transition(at, "snooze")
    case "Release":
      return transition(at, "release")
    case "Cancel":
      // The holder knows of a cancel request: any settlement ends as canceled then.
      return transition({ ...at, cancelRequested: true }, "complete")
  }
}

const dueAfter = (settlement: Settlement, now: DateTime.Utc): DateTime.Utc =>
  "delay" in settlement ? DateTime.addDuration(now, settlement.delay) : now

/** How a settlement can end an attempt: first what it says, then what budget and cancel requests make of it. */
const outcomes: { readonly [Tag in Settlement["_tag"]]: readonly [HolderOutcome, ...ReadonlyArray<HolderOutcome>] } = {
  Complete: ["completed", "canceled"],
  RetryLater: ["retry", "dead", "canceled"],
  Bury: ["dead", "canceled"],
  Snooze: ["snoozed", "canceled"],
  Release: ["released", "canceled"],
  Cancel: ["canceled"]
}

/** Where each end that a holder can write leads; the other two are written by those who find the holder gone. */
const stateAfter = {
  completed: "succeeded",
  retry: "pending",
  snoozed: "pending",
  released: "pending",
  dead: "dead",
  canceled: "canceled"
} satisfies { readonly [Outcome in HolderOutcome]: JobState }

type HolderOutcome = Exclude<AttemptOutcome, "expired" | "reaped">

/** What the job's ledger says of a settlement under a lease that does not hold the job any more (ruling 2). */
export const readBack = (record: JobRecord, lease: Lease, settlement: Settlement): SettleVerdict => {
  const entry = record.attempts.find(({ token }) => token === lease.token)
  if (entry === undefined) return { _tag: "Unknown" }
  if (entry.worker !== lease.worker) return { _tag: "Lost", reason: lossOf(record) }
  const outcome = Option.getOrElse(entry.outcome, (): AttemptOutcome => "expired")
  if (outcome === "expired" || outcome === "reaped") return { _tag: "Lost", reason: lossOf(record) }
  return outcomes[settlement._tag].includes(outcome)
    ? { _tag: "Recorded", state: stateAfter[outcome] }
    : { _tag: "AlreadySettled" }
}

/** Why a lease that does not hold the job any more was lost. */
export const lossOf = (record: JobRecord): LeaseLost["reason"] =>
  record.state === "canceled" ? "canceled" : "superseded"
