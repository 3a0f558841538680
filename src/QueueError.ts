/**
 * Everything that the library can answer instead of what was asked for. What a handler says about its job is in
 * `JobFailure`. No error holds a payload, an output, a key, or the server's own text, which can quote all three.
 *
 * @module
 */
import { Data, Option } from "effect"
import type { JobId, JobState } from "./JobRecord.js"

/** An option is outside of its range. Refused before anything starts. */
export class InvalidOption extends Data.TaggedError("InvalidOption")<{
  readonly option: string
  readonly value: unknown
  readonly accepted: string
}> {
  override get message() {
    return `Option "${this.option}" is ${showOption(this.value)}; accepted: ${this.accepted}.`
  }
}

const showOption = (value: unknown): string =>
  typeof value === "string" ? JSON.stringify(value.slice(0, 80)) : String(value).slice(0, 80)

/** A queue name or job type does not match `[A-Za-z0-9_.:/-]{1,64}`. */
export class InvalidName extends Data.TaggedError("InvalidName")<{
  readonly kind: "queue" | "job type" | "worker id" | "table prefix"
  readonly name: string
}> {
  override get message() {
    const rule =
      this.kind === "table prefix"
        ? "a lower-case letter, then up to 29 of a-z, 0-9 and _"
        : "1 to 64 characters of A-Z a-z 0-9 _ . : / -"
    return `${JSON.stringify(this.name.slice(0, 80))} is no valid ${this.kind}: use ${rule}.`
  }
}

/** No job has this id: it never existed, it was cleaned away, or the text is no id at all. */
export class JobNotFound extends Data.TaggedError("JobNotFound")<{ readonly jobId: string }> {
  override get message() {
    return `There is no job ${JSON.stringify(this.jobId.slice(0, 40))}: it never existed, or it has ended and was cleaned.`
  }
}

/** The job can not be brought back: it is neither dead nor canceled. */
export class JobNotEnded extends Data.TaggedError("JobNotEnded")<{ readonly jobId: JobId; readonly state: JobState }> {
  override get message() {
    return `Job ${this.jobId} is ${this.state}; only dead and canceled jobs can be retried.`
  }
}

/** No job of the wanted type is due. */
export class NothingDue extends Data.TaggedError("NothingDue")<{ readonly jobType: string; readonly queue: string }> {
  override get message() {
    return `No ${this.jobType} is due in queue ${this.queue}. Queue.claimOption answers None instead of failing.`
  }
}

/** The key already names a job with another payload, type or queue. That job is untouched. */
export class IdempotencyConflict extends Data.TaggedError("IdempotencyConflict")<{
  /** The job that has the key; none where two jobs of one bulk call contradict each other. */
  readonly jobId: Option.Option<JobId>
  readonly jobType: string
}> {
  override get message() {
    const holder = Option.match(this.jobId, {
      onNone: () => "another job of the same call",
      onSome: (id) => `job ${id}`
    })
    return (
      `The idempotency key given for ${this.jobType} belongs to ${holder}, which has another payload, `
      + `type or queue. Use another key, or the same payload.`
    )
  }
}

/** The value does not fit its schema, or its encoded form is no JSON. `reason` names the place, never the value. */
export class PayloadInvalid extends Data.TaggedError("PayloadInvalid")<{
  readonly jobType: string
  readonly part: "payload" | "output"
  readonly reason: string
}> {
  override get message() {
    return `The ${this.part} of ${this.jobType} can not be encoded: ${this.reason}.`
  }
}

/** The encoded text is longer than the limit; sizes are bytes of UTF-8. */
export class PayloadTooLarge extends Data.TaggedError("PayloadTooLarge")<{
  readonly jobType: string
  readonly part: "payload" | "output"
  readonly size: number
  readonly limit: number
}> {
  override get message() {
    return (
      `The ${this.part} of ${this.jobType} has ${this.size} bytes; the limit is ${this.limit}. `
      + `Store it elsewhere and put a reference into the job, or raise the limit.`
    )
  }
}

/** An idempotency scope or key is longer than 255 bytes of UTF-8, or the key is empty. */
export class KeyInvalid extends Data.TaggedError("KeyInvalid")<{
  readonly part: "scope" | "key"
  readonly size: number
}> {
  override get message() {
    return (
      `The idempotency ${this.part} has ${this.size} bytes; accepted: `
      + `${this.part === "key" ? "1" : "0"} to 255 bytes of well-formed UTF-8.`
    )
  }
}

/** The time to run can not be stored: it is no date, or after the year 9999. */
export class TimeInvalid extends Data.TaggedError("TimeInvalid")<{
  readonly option: "delay" | "runAt"
}> {
  override get message() {
    return (
      `Option "${this.option}" is no time that can be stored; accepted: `
      + `a finite duration or date up to 9999-12-31T23:59:59Z.`
    )
  }
}

/** `requireTransaction` was set and no transaction is open here. Nothing was written. */
export class NotInTransaction extends Data.TaggedError("NotInTransaction")<{ readonly verb: string }> {
  override get message() {
    return (
      `${this.verb} belongs into a transaction, and none is open: neither of the queue's SQL client here, nor on the `
      + `handle that was given.`
    )
  }
}

/** The call can not be part of an open transaction. Nothing was done. */
export class InTransaction extends Data.TaggedError("InTransaction")<{ readonly verb: string }> {
  override get message() {
    return (
      `${this.verb} was called inside an open transaction, where its answer could still be rolled back. `
      + `Call it outside, or use lease.completeWith for writes that belong to the job.`
    )
  }
}

/**
 * The database ended the caller's transaction, or undid a part of it, and the library has rolled back the rest. Whoever
 * catches this inside the transaction can write nothing more in it, and its commit commits nothing: let the error pass
 * through `withTransaction`, and run the whole transaction again.
 *
 * `deadlock`, `lock_wait` and `timeout` are what the call itself met. `ended`: there was no transaction any more when it was called, after
 * an earlier deadlock that somebody caught, or a statement that commits by itself such as CREATE TABLE.
 */
export class TransactionAborted extends Data.TaggedError("TransactionAborted")<{
  readonly verb: string
  readonly reason: "deadlock" | "lock_wait" | "timeout" | "ended"
}> {
  override get message() {
    return (
      `${this.verb} ${abortions[this.reason]} in the caller's transaction, which is rolled back. `
      + `Let the error pass through it, and run the whole transaction again.`
    )
  }
}

const abortions = {
  deadlock: "met a deadlock",
  lock_wait: "met a lock wait timeout",
  timeout: "got no answer in time",
  ended: "found no transaction open any more"
}

/** The database can not be reached or is too busy. Nothing was written. Trying again later can succeed. */
export class StoreUnavailable extends Data.TaggedError("StoreUnavailable")<{
  readonly verb: string
  readonly reason: "connection" | "timeout" | "read_only" | "too_many_connections" | "deadlock" | "lock_wait"
  readonly code: string
}> {
  override get message() {
    return `${this.verb} could not be done, and nothing was written (${this.reason}, ${this.code}). It can be tried again.`
  }
}

/** The database refused the statement: missing table or right, a broken row, or a mistake of the library. */
export class StoreRejected extends Data.TaggedError("StoreRejected")<{
  readonly verb: string
  readonly code: string
  readonly hint: string
}> {
  override get message() {
    return `${this.verb} was refused by the database (${this.code}). ${this.hint}`
  }
}

/** The database's answer was lost, and asking again could not tell whether the write happened (law 10). */
export class OutcomeUnknown extends Data.TaggedError("OutcomeUnknown")<{
  readonly verb: string
  readonly jobId?: JobId
}> {
  override get message() {
    return (
      `The answer to ${this.verb}${this.jobId === undefined ? "" : ` of job ${this.jobId}`} was lost, and whether it `
      + `happened can not be told. ${this.advice}`
    )
  }
  private get advice() {
    if (this.verb === "enqueue") return "With an idempotency key it can be repeated safely."
    return this.jobId === undefined
      ? "Look whether it happened before you repeat it."
      : "Queue.why tells where the job stands; if it was not written, the job runs again when its lease has ended."
  }
}

/** What any verb that talks to the database may fail with. */
export type StoreError = StoreUnavailable | StoreRejected | OutcomeUnknown

/** The lease was settled before, with another outcome than this one; that one stands. */
export class AlreadySettled extends Data.TaggedError("AlreadySettled")<{
  readonly jobId: JobId
  readonly token: number
}> {
  override get message() {
    return `Lease ${this.token} on job ${this.jobId} was settled before. The first settlement stands.`
  }
}

/** The job whose result was awaited is dead. */
export class JobDead extends Data.TaggedError("JobDead")<{
  readonly jobId: JobId
  readonly code: string
  readonly reason: string
}> {
  override get message() {
    return `Job ${this.jobId} is dead (${this.code}): ${this.reason}`
  }
}

/** The job whose result was awaited was canceled. */
export class JobCanceled extends Data.TaggedError("JobCanceled")<{ readonly jobId: JobId }> {
  override get message() {
    return `Job ${this.jobId} was canceled.`
  }
}

/** The job had not ended when the wait for its result did. The job goes on. */
export class ResultTimeout extends Data.TaggedError("ResultTimeout")<{
  readonly jobId: JobId
  readonly state: JobState
}> {
  override get message() {
    return `Job ${this.jobId} is still ${this.state}; the wait for its result has ended, the job has not.`
  }
}

/**
 * The worker stopped and had to leave these jobs: their handlers ignored the interruption, or their ends could not be written
 * in time, or `unfinished: "expire"` asked for it. Their leases run out by themselves, then other workers run the jobs.
 */
export class ShutdownTimeout extends Data.TaggedError("ShutdownTimeout")<{
  readonly unfinished: ReadonlyArray<JobId>
}> {
  override get message() {
    return (
      `The worker stopped and left ${this.unfinished.length} unfinished jobs to the end of their leases `
      + `(${this.unfinished.slice(0, 20).join(", ")}). Other workers run them after that.`
    )
  }
}

/** The server is none that the library's promises hold on. */
export class UnsupportedServer extends Data.TaggedError("UnsupportedServer")<{
  readonly version: string
  readonly reason: string
}> {
  override get message() {
    return `Server ${JSON.stringify(this.version)} is not supported: ${this.reason}. Leasehold needs MySQL 8.0.13 or later.`
  }
}

/** A migration step began and did not end, so the library does not know how far it came. */
export class MigrationDirty extends Data.TaggedError("MigrationDirty")<{
  readonly step: string
  readonly repair: string
}> {
  override get message() {
    return `Migration step ${this.step} was started and did not finish. ${this.repair}`
  }
}

/** A step that was already done has another text now. */
export class MigrationEdited extends Data.TaggedError("MigrationEdited")<{ readonly step: string }> {
  override get message() {
    return (
      `Migration step ${this.step} was applied with another text than this package ships. `
      + `Install the package unmodified, or restore the step.`
    )
  }
}

/** The tables are older than this library, and `migrate` does not allow it to change them. */
export class SchemaOutdated extends Data.TaggedError("SchemaOutdated")<{ readonly missing: ReadonlyArray<string> }> {
  override get message() {
    return (
      `The database lacks ${this.missing.length} migration steps (${this.missing.join(", ")}). `
      + `Run Migrations.run once, or use migrate: "auto".`
    )
  }
}

/** The tables were migrated by a newer release. */
export class SchemaNewerThanLibrary extends Data.TaggedError("SchemaNewerThanLibrary")<{
  readonly database: number
  readonly library: number
}> {
  override get message() {
    return `The database is at migration ${this.database}, this release knows ${this.library}. Upgrade leasehold here.`
  }
}

/** What keeps the queue's layer from starting. */
export type MigrationError = MigrationDirty | MigrationEdited | SchemaOutdated | SchemaNewerThanLibrary
