/**
 * The story of one job: what happened to it, in order, and where it stands.
 */
import { DateTime, Option } from "effect"
import type { Attempt } from "../Attempt.js"
import type { JobRecord } from "../JobRecord.js"
import type { RefusalRecord } from "../JobStore.js"

/** One thing that happened. `says` is a sentence for people; the other fields are for programs. */
export interface Event {
  readonly at: DateTime.Utc
  readonly kind: "enqueued" | "started" | "ended" | "refused" | "finished"
  readonly token: Option.Option<number>
  readonly worker: Option.Option<string>
  readonly says: string
}

/** A job and all that happened to it. */
export interface Story {
  readonly job: JobRecord
  /** Where the job stands now, as a sentence. */
  readonly now: string
  /** Oldest first. The ledger keeps the last 50 attempts, and 20 refused writes. */
  readonly events: ReadonlyArray<Event>
}

/** Puts a job's record, its ledger and its refused late writes in the order in which they happened. */
export const tell = (job: JobRecord, refusals: ReadonlyArray<RefusalRecord>): Story => {
  const events: ReadonlyArray<Event> = [
    event(job.enqueuedAt, "enqueued", `Enqueued as ${job.type} in queue ${job.queue}, due ${text(job.firstDueAt)}`),
    ...job.attempts.flatMap(eventsOf),
    ...refusals.map(({ at, token, verb, worker }) =>
      event(at, "refused", `A late ${verb} under lease ${token} was refused; nothing was written`, token, worker)
    ),
    ...Option.match(job.finishedAt, {
      onNone: () => [],
      onSome: (at) => [event(at, "finished", `Ended: ${job.state}${because(job.errorCode, job.errorMessage)}`)]
    })
  ]
  // A stable sort: what happened at the same instant stays in the order above.
  const ordered = [...events].sort((a, b) => DateTime.distance(b.at, a.at))
  return { job, now: standing(job), events: ordered }
}

const event = (at: DateTime.Utc, kind: Event["kind"], says: string, token?: number, worker?: string): Event => ({
  at,
  kind,
  token: Option.fromNullable(token),
  worker: Option.fromNullable(worker),
  says
})

const eventsOf = (attempt: Attempt): ReadonlyArray<Event> => {
  const { endedAt, outcome, startedAt, token, worker } = attempt
  const named = `Attempt ${attempt.attempt}`
  const started = event(startedAt, "started", `${named} started by ${worker} under lease ${token}`, token, worker)
  if (Option.isNone(endedAt)) return [started]
  const ended = Option.match(outcome, { onNone: () => "ended", onSome: (word) => endings[word] })
  return [
    started,
    event(endedAt.value, "ended", `${named} ${ended}${because(attempt.errorCode, attempt.errorMessage)}`, token, worker)
  ]
}

const endings: { readonly [O in NonNullable<Option.Option.Value<Attempt["outcome"]>>]: string } = {
  completed: "completed",
  retry: "failed, to be tried again",
  dead: "failed for good",
  snoozed: "snoozed",
  canceled: "was canceled",
  released: "was given back",
  expired: "vanished: its lease ran out and the job was taken over",
  reaped: "vanished: its lease ran out and the job was ended"
}

const because = (code: Option.Option<string>, message: Option.Option<string>): string =>
  Option.match(code, {
    onNone: () => "",
    onSome: (known) => ` (${known}${Option.match(message, { onNone: () => "", onSome: (said) => `: ${said}` })})`
  })

const standing = (job: JobRecord): string => {
  const due = Option.match(job.dueAt, { onNone: () => "", onSome: (at) => text(at) })
  const budget = Option.match(job.attemptsLeft, {
    onNone: () => "unlimited attempts left",
    onSome: (left) => `${left} attempts left`
  })
  switch (job.state) {
    case "pending":
      return `Waits to be claimed, due ${due}, ${budget}`
    case "running":
      return (
        `Held by ${Option.getOrElse(job.worker, () => "a worker")} under lease ${job.token} until ${due}`
        + `${job.cancelRequested ? ", to be canceled" : ""}, ${budget}`
      )
    case "succeeded":
      return "Succeeded"
    case "dead":
      return `Dead${because(job.errorCode, job.errorMessage)}; Queue.retry brings it back`
    case "canceled":
      return "Canceled; Queue.retry brings it back"
  }
}

const text = (at: DateTime.Utc): string => DateTime.formatIso(at)
