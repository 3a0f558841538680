/**
 * Rows and nouns: numbers to states, microseconds to dates, the JSON ledger to attempts.
 */
import { DateTime, Duration, Option, Schema } from "effect"
import type { Attempt, AttemptOutcome } from "../Attempt.js"
import { JobId, type JobRecord, type JobState } from "../JobRecord.js"
import type { ClaimedJob } from "../JobStore.js"
import type { Lease } from "../Lease.js"
import type { Row } from "./Session.js"

export const stateNumbers: { readonly [State in JobState]: number } = {
  pending: 0,
  running: 1,
  succeeded: 2,
  dead: 3,
  canceled: 4
}

const states: ReadonlyArray<JobState> = ["pending", "running", "succeeded", "dead", "canceled"]

/** The state of a row. A number that is none of ours cannot be written by the library; it counts as ended. */
export const stateOf = (row: Row): JobState => states[Number(row["state"])] ?? "dead"

// The column can hold nothing else than what the brand promises, so the check is left out: claims read ids by the thousand.
export const idOf = (row: Row): JobId => JobId.make(String(row["id"]), { disableValidation: true })

export const isSet = (row: Row, column: string): boolean => Number(row[column]) === 1

export const numberOf = (row: Row, column: string): Option.Option<number> =>
  Option.map(Option.fromNullable(row[column]), Number)

const textOf = (row: Row, column: string): Option.Option<string> =>
  Option.map(Option.fromNullable(row[column]), (value) =>
    value instanceof Uint8Array
      ? Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("utf8")
      : String(value)
  )

const payloadOf = (row: Row): string | null => Option.getOrNull(textOf(row, "payload"))

/** To the microsecond up to the year 2255, as exact as a `DateTime` can be; `make` alone would cut it to milliseconds. */
const dateOf = (microseconds: string): DateTime.Utc => {
  const micros = BigInt(microseconds)
  return withMicros(DateTime.unsafeMake(Number(micros / 1_000n)), Number(micros % 1_000n))
}

const withMicros = (date: DateTime.Utc, micros: number): DateTime.Utc =>
  DateTime.mapEpochMillis(date, (millis) => millis + micros / 1_000)

export const timeOf = (row: Row, column: string): DateTime.Utc => dateOf(String(row[column]))

/** A locked row of the claim, as the job that the caller holds once the claim is committed. */
export class LockedJob implements ClaimedJob {
  readonly lease: Lease
  readonly type: string
  readonly priority: number
  readonly payload: string | null
  readonly payloadVersion: number
  readonly attemptsLeft: Option.Option<number>
  readonly maxAttempts: Option.Option<number>
  readonly waited: Duration.Duration
  readonly traceContext: Option.Option<string>

  constructor(
    row: Row,
    readonly queue: string,
    worker: string
  ) {
    this.lease = new NextLease(row, worker)
    this.type = String(row["type"])
    this.priority = Number(row["priority"])
    this.payload = payloadOf(row)
    this.payloadVersion = Number(row["payload_version"])
    this.attemptsLeft = Option.map(numberOf(row, "attempts_left"), (left) => Math.max(0, left - 1))
    this.maxAttempts = numberOf(row, "max_attempts")
    this.waited = Duration.millis(Number(row["waited"]) / 1_000)
    this.traceContext = textOf(row, "trace_context")
  }
}

class NextLease implements Lease {
  readonly jobId: JobId
  readonly token: number
  readonly attempt: number

  constructor(
    row: Row,
    readonly worker: string
  ) {
    this.jobId = idOf(row)
    this.token = Number(row["token"]) + 1
    this.attempt = Number(row["attempt"]) + 1
  }
}

export const toRecord = (row: Row): JobRecord => ({
  id: idOf(row),
  queue: String(row["queue"]),
  type: String(row["type"]),
  priority: Number(row["priority"]),
  state: stateOf(row),
  token: Number(row["token"]),
  attempt: Number(row["attempt"]),
  attemptsLeft: numberOf(row, "attempts_left"),
  maxAttempts: numberOf(row, "max_attempts"),
  worker: textOf(row, "lease_owner"),
  payload: payloadOf(row),
  payloadVersion: Number(row["payload_version"]),
  output: textOf(row, "output"),
  errorCode: textOf(row, "error_code"),
  errorMessage: textOf(row, "error_message"),
  cancelRequested: isSet(row, "cancel_requested"),
  enqueuedAt: timeOf(row, "enqueued_at"),
  firstDueAt: timeOf(row, "first_due_at"),
  dueAt: Option.map(textOf(row, "due_at"), dateOf),
  finishedAt: Option.map(textOf(row, "finished_at"), dateOf),
  attempts: ledgerOf(row)
})

const Entry = Schema.Struct({
  n: Schema.Number,
  t: Schema.Number,
  w: Schema.String,
  s: Schema.String,
  e: Schema.optional(Schema.String),
  o: Schema.optional(Schema.String),
  c: Schema.optional(Schema.String),
  m: Schema.optional(Schema.String)
})

const decodeLedger = Schema.decodeUnknownOption(Schema.parseJson(Schema.Array(Entry)))

/** The ledger of a row. It is read by people and by the read-back of a settlement: one that was damaged by hand reads as empty. */
export const ledgerOf = (row: Row): ReadonlyArray<Attempt> =>
  Option.getOrElse(Option.flatMap(textOf(row, "attempts"), decodeLedger), () => []).map((entry) => ({
    attempt: entry.n,
    token: entry.t,
    worker: entry.w,
    startedAt: ledgerDate(entry.s),
    endedAt: Option.map(Option.fromNullable(entry.e), ledgerDate),
    // Only the library's own statements write outcomes, and they write these words.
    outcome: Option.fromNullable(entry.o as AttemptOutcome | undefined),
    errorCode: Option.fromNullable(entry.c),
    errorMessage: Option.fromNullable(entry.m)
  }))

/** `2026-11-29 15:00:00.123456`, in UTC. A date that was damaged by hand reads as 1970. */
const ledgerDate = (text: string): DateTime.Utc =>
  Option.match(DateTime.make(`${text.replace(" ", "T")}Z`), {
    onNone: () => DateTime.unsafeMake(0),
    onSome: (date) => withMicros(DateTime.toUtc(date), Number(/\.\d{3}(\d{3})$/.exec(text)?.[1] ?? 0))
  })
