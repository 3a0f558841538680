/**
 * Statements of the enqueue. They run in the caller's transaction too, whatever its isolation, `sql_mode` and character set:
 * their texts are few and fixed, every value is bound as ASCII text, and text of any content travels as hexadecimal digits.
 */
import { DateTime, Duration, Option } from "effect"
import type { NewJob } from "../../JobStore.js"
import * as Literal from "../Literal.js"
import type { Value } from "../Session.js"
import type { Tables } from "../Tables.js"

export interface Key {
  readonly scope: string
  readonly key: string
}

/** Sizes of the statements with many rows: few, so that few are prepared (V6). Descending. */
export const rowSizes = [250, 50, 10, 1] as const

/** When the rows of a statement are due: most are now, and the server works out no times for them. */
export type Due = "now" | "asked"

/** Whether all of them are due now. */
export const dueOf = (jobs: ReadonlyArray<NewJob>): Due =>
  jobs.every(({ due }) => Option.isNone(due)) ? "now" : "asked"

// first_due_at is what was asked for; due_at is not before now, so that new jobs always come behind the claims' watermark.
// Working it out takes longer than all the rest of a row: 50 against 31 µs of the server (2026-11-29).
const times: { readonly [D in Due]: string } = {
  now: "UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)",
  asked:
    "COALESCE(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND),"
    + " GREATEST(first_due_at, UTC_TIMESTAMP(6))"
}

const row = (due: Due): string =>
  `(?, ?, ?, ${times[due]}, UTC_TIMESTAMP(6), ?, ?, ?, UNHEX(?), UNHEX(?), UNHEX(?), ?, CONVERT(UNHEX(?) USING utf8mb4))`

/**
 * Adds `count` rows. Locks nothing of others but the entries of `jobs_idempotency` next to keyed rows; an uncommitted row with
 * the same key is waited for. Error 1062: the key exists. Ids follow each other by `auto_increment_increment`.
 */
export const insert = (tables: Tables, count: number, due: Due): string =>
  `INSERT INTO ${tables.jobs} (queue, type, priority, first_due_at, due_at, enqueued_at, attempts_left, max_attempts,`
  + ` payload_version, scope, idempotency_key, request_hash, trace_context, payload) VALUES ${Array.from(
    { length: count },
    () => row(due)
  ).join(", ")}`

export const insertValues = (job: NewJob, due: Due): ReadonlyArray<Value> => {
  const attempts = Option.match(job.maxAttempts, { onNone: () => null, onSome: String })
  const key = Option.getOrUndefined(job.idempotency)
  return [
    job.queue,
    job.type,
    String(job.priority),
    ...(due === "now" ? [] : dueValues(job)),
    attempts,
    attempts,
    String(job.payloadVersion),
    key === undefined ? "" : hex(key.scope),
    key === undefined ? null : hex(key.key),
    key === undefined ? null : key.fingerprint,
    Option.getOrNull(job.traceContext),
    job.payload === null ? null : hex(job.payload)
  ]
}

/**
 * Adds jobs that are due now and have no key, on a session of the library. As one text, not prepared: their number differs
 * each time. Locks nothing of others.
 */
export const insertTogether = (tables: Tables, jobs: ReadonlyArray<NewJob>): string =>
  `INSERT INTO ${tables.jobs} (queue, type, priority, first_due_at, due_at, enqueued_at, attempts_left, max_attempts,`
  + ` payload_version, trace_context, payload) VALUES ${jobs
    .map((job) => {
      const attempts = Option.match(job.maxAttempts, { onNone: () => "NULL", onSome: Literal.integer })
      return (
        `(${Literal.name(job.queue)}, ${Literal.name(job.type)}, ${Literal.integer(job.priority)}, ${times.now},`
        + ` UTC_TIMESTAMP(6), ${attempts}, ${attempts}, ${Literal.integer(job.payloadVersion)},`
        + ` ${Literal.text(Option.getOrNull(job.traceContext))}, ${Literal.text(job.payload)})`
      )
    })
    .join(", ")}`

/** What jobs have in common: all columns of a row but the payload, as text of a statement. */
export interface Common {
  readonly columns: string
  /** Differs from one bulk to the next, so it would make each a statement of its own: the session is told of it by {@link setTrace}. */
  readonly trace: string | null
}

/**
 * What jobs have in common where they differ in their payloads only, are due now and have no key, as most of a bulk do. None where
 * a payload holds a character of four bytes: while a statement runs in whose text one stands, the server can list neither its
 * processes nor its transactions (errno 3854, MySQL 9.7.4), and bound values are part of that text.
 */
export const commonOf = (jobs: ReadonlyArray<NewJob>): Option.Option<Common> => {
  const [first] = jobs
  if (first === undefined) return Option.none()
  const maxAttempts = Option.getOrNull(first.maxAttempts)
  const trace = Option.getOrNull(first.traceContext)
  const isAlike = (job: NewJob) =>
    Option.isNone(job.due)
    && Option.isNone(job.idempotency)
    && job.queue === first.queue
    && job.type === first.type
    && job.priority === first.priority
    && job.payloadVersion === first.payloadVersion
    && Option.getOrNull(job.maxAttempts) === maxAttempts
    && Option.getOrNull(job.traceContext) === trace
    && (job.payload === null || !surrogate.test(job.payload))
  if (!jobs.every(isAlike)) return Option.none()
  const attempts = maxAttempts === null ? "NULL" : Literal.integer(maxAttempts)
  const columns =
    `${Literal.name(first.queue)}, ${Literal.name(first.type)}, ${Literal.integer(first.priority)}, ${times.now},`
    + ` UTC_TIMESTAMP(6), ${attempts}, ${attempts}, ${Literal.integer(first.payloadVersion)},`
    + ` ${trace === null ? "NULL" : "@leasehold_trace"}`
  return Option.some({ columns, trace })
}

const surrogate = /[\uD800-\uDFFF]/

/** Tells a session of the library the trace context of the next {@link insertAlike}. */
export const setTrace = (trace: string): string => `SET @leasehold_trace = ${Literal.text(trace)}`

/** Sizes of {@link insertAlike}, descending. */
export const alikeSizes = [1000, 250, 50, 10, 1] as const

/**
 * Adds jobs that are alike, on a session of the library. Locks nothing of others. One text for each size and kind of job, with one
 * placeholder for a row instead of twelve, and payloads as they are instead of in hexadecimal digits: 37 µs a row instead of 63, and 5
 * instead of 12 of the process. With literals instead of variables of the session another tenth less (2026-11-30).
 */
export const insertAlike = (tables: Tables, count: number, { columns }: Common): string =>
  `INSERT INTO ${tables.jobs} (queue, type, priority, first_due_at, due_at, enqueued_at, attempts_left, max_attempts,`
  + ` payload_version, trace_context, payload) VALUES ${Array.from({ length: count }, () => `(${columns}, ?)`).join(", ")}`

const hex = (text: string): string => Buffer.from(text, "utf8").toString("hex")

/** The first instant of the year 1000, before which MySQL's DATETIME does not promise to work. */
const earliest = -30_610_224_000_000_000n

/** A time in microseconds since 1970, or none; then a delay in microseconds. */
const dueValues = (job: NewJob): readonly [at: string | null, after: string] => {
  if (Option.isNone(job.due)) return [null, "0"]
  const due = job.due.value
  if ("after" in due) return [null, Literal.microseconds(due.after)]
  // A number of milliseconds may have a fraction; whole ones up to the year 9999 are exact.
  const millis = DateTime.toEpochMillis(due.at)
  const micros = BigInt(Math.floor(millis)) * 1_000n + BigInt(Math.round((millis - Math.floor(millis)) * 1_000))
  return [String(micros < earliest ? earliest : micros), "0"]
}

/** Sizes of the look-up of many keys, descending. Unused places repeat the last key. */
export const keySizes = [100, 10, 1] as const

/**
 * The jobs that `count` keys name, by `jobs_idempotency`. In a transaction at REPEATABLE READ a plain read sees its snapshot
 * only; `FOR SHARE` sees what is committed now, and waits for what is not.
 */
export const findKeys = (tables: Tables, count: number, mode: "" | "FOR SHARE"): string =>
  `SELECT CAST(id AS CHAR) AS id, HEX(scope) AS scope, HEX(idempotency_key) AS idempotency_key,`
  + ` LOWER(HEX(request_hash)) AS request_hash FROM ${tables.jobs} FORCE INDEX (jobs_idempotency)`
  + ` WHERE (scope, idempotency_key) IN (${Array.from({ length: count }, () => "(UNHEX(?), UNHEX(?))").join(", ")})`
  // A limit of its own, since the session may have one for all selects.
  + ` LIMIT ${count} ${mode}`

export const keyValues = (keys: ReadonlyArray<Key>, count: number): ReadonlyArray<Value> =>
  Array.from({ length: count }, (_, index) => keys[Math.min(index, keys.length - 1)]).flatMap((key) =>
    key === undefined ? [] : [hex(key.scope), hex(key.key)]
  )

/** What identifies a key in the answer of {@link findKeys}. */
export const keyName = ({ key, scope }: Key): string => `${hex(scope)}:${hex(key)}`.toUpperCase()

/** How far apart the ids of one INSERT are. */
export const idStep = "SELECT @@auto_increment_increment AS step"

/** The first id of the session's last INSERT, exactly. */
export const lastInsertId = "SELECT CAST(LAST_INSERT_ID() AS CHAR) AS id"

/** Duration that a look-up on a second connection may take before the caller's own connection decides. */
export const secondLookTimeout = Duration.seconds(2)
