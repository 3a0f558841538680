/**
 * Jobs as they are printed. Payload and result are shown on demand only; otherwise their size says that they are there.
 */
import { DateTime, Option } from "effect"
import type { JobRecord } from "../JobRecord.js"
import * as Output from "./Output.js"

export const time = (at: DateTime.Utc): string => DateTime.formatIso(at)

const timeOrNull = (at: Option.Option<DateTime.Utc>): string | null => Option.getOrNull(Option.map(at, time))

const attemptsOf = ({ attempt, attemptsLeft }: JobRecord): string =>
  `${attempt} started, ${Option.match(attemptsLeft, { onNone: () => "unlimited", onSome: String })} left`

const bytes = (text: string): string => `${Buffer.byteLength(text)} bytes, shown by --show-payload`

/** For scripts. Ids and payloads are text: numbers above 2^53 would lose digits on the way. */
export const toJson = (job: JobRecord, showPayload: boolean) => ({
  id: job.id,
  queue: job.queue,
  type: job.type,
  state: job.state,
  priority: job.priority,
  token: job.token,
  attempt: job.attempt,
  attemptsLeft: Option.getOrNull(job.attemptsLeft),
  maxAttempts: Option.getOrNull(job.maxAttempts),
  worker: Option.getOrNull(job.worker),
  cancelRequested: job.cancelRequested,
  errorCode: Option.getOrNull(job.errorCode),
  errorMessage: Option.getOrNull(job.errorMessage),
  payloadVersion: job.payloadVersion,
  enqueuedAt: time(job.enqueuedAt),
  firstDueAt: time(job.firstDueAt),
  dueAt: timeOrNull(job.dueAt),
  finishedAt: timeOrNull(job.finishedAt),
  attempts: job.attempts.map((attempt) => ({
    attempt: attempt.attempt,
    token: attempt.token,
    worker: attempt.worker,
    startedAt: time(attempt.startedAt),
    endedAt: timeOrNull(attempt.endedAt),
    outcome: Option.getOrNull(attempt.outcome),
    errorCode: Option.getOrNull(attempt.errorCode),
    errorMessage: Option.getOrNull(attempt.errorMessage)
  })),
  ...(showPayload ? { payload: job.payload, output: Option.getOrNull(job.output) } : {})
})

export const toFields = (job: JobRecord, showPayload: boolean): ReadonlyArray<string> =>
  Output.fields([
    ["id", job.id],
    ["type", job.type],
    ["queue", job.queue],
    ["state", `${job.state}${job.cancelRequested && job.state === "running" ? ", to be canceled" : ""}`],
    ["priority", job.priority],
    ["attempts", attemptsOf(job)],
    ["token", job.token],
    ["worker", job.worker],
    ["enqueued", time(job.enqueuedAt)],
    ["first due", time(job.firstDueAt)],
    [job.state === "running" ? "lease ends" : "due", Option.map(job.dueAt, time)],
    ["finished", Option.map(job.finishedAt, time)],
    ["error", job.errorCode],
    ["message", job.errorMessage],
    ["payload", job.payload === null ? "none" : showPayload ? job.payload : bytes(job.payload)],
    ["payload version", job.payloadVersion],
    ["result", Option.map(job.output, (output) => (showPayload ? output : bytes(output)))]
  ])

export const toTable = (jobs: ReadonlyArray<JobRecord>, showPayload: boolean): ReadonlyArray<string> =>
  Output.table(
    ["id", "queue", "type", "state", "attempt", "left", "due", "error", ...(showPayload ? ["payload"] : [])],
    jobs.map((job) => [
      job.id,
      job.queue,
      job.type,
      job.state,
      job.attempt,
      Option.match(job.attemptsLeft, { onNone: () => "unlimited", onSome: String }),
      Option.match(job.dueAt, { onNone: () => "", onSome: time }),
      Option.getOrElse(job.errorCode, () => ""),
      ...(showPayload ? [job.payload ?? ""] : [])
    ])
  )
