/**
 * The contract between the services and a database: what each verb leaves behind, in terms of encoded jobs.
 *
 * Two stores keep it, `mysql/` and `memory/`, and one suite holds both to it. What every verb promises:
 *
 * - It is atomic: on success all of it is durable, on failure none of it is (laws 4 and 6).
 * - It is bounded: it ends, within the store's statement timeout, and can not be interrupted half-way (law 9).
 * - Times are the database's, never the caller's (law 1).
 * - It fails with `StoreUnavailable` when nothing was written and trying again can help, with `StoreRejected` when it can not,
 *   and with `OutcomeUnknown` when an answer was lost that could not be asked for again (law 10).
 *
 * @module
 */
import { Context, type DateTime, type Duration, type Effect, type Option } from "effect"
import type { LeaseLost } from "./JobFailure.js"
import type { JobId, JobRecord, JobState } from "./JobRecord.js"
import type { Lease, SettleError } from "./Lease.js"
import type {
  IdempotencyConflict,
  InTransaction,
  JobNotEnded,
  JobNotFound,
  NotInTransaction,
  StoreError,
  TransactionAborted
} from "./QueueError.js"

/** A job to enqueue. `due` none: now; a delay counts from the database's now; a time in the past is due now. */
export interface NewJob {
  readonly queue: string
  readonly type: string
  readonly priority: number
  readonly payload: string | null
  readonly payloadVersion: number
  /** None: unlimited. */
  readonly maxAttempts: Option.Option<number>
  readonly due: Option.Option<{ readonly after: Duration.Duration } | { readonly at: DateTime.Utc }>
  /** `fingerprint` tells a replay from a conflict: two requests with the same one ask for the same job. */
  readonly idempotency: Option.Option<{ readonly scope: string; readonly key: string; readonly fingerprint: string }>
  readonly traceContext: Option.Option<string>
}

/** `created` false: a replay; the id is the first job's. */
export interface Enqueued {
  readonly id: JobId
  readonly created: boolean
}

/** Whose jobs to claim, and how many. */
export interface ClaimRequest {
  readonly queue: string
  /** Only these types are claimed, and of each only payload versions up to the given one. */
  readonly types: ReadonlyArray<{ readonly type: string; readonly version: number }>
  readonly worker: string
  readonly lease: Duration.Duration
  /** 1 to 1,000. */
  readonly limit: number
}

/** A job that the caller holds now, from the instant the claim was sent for the length of the lease. */
export interface ClaimedJob {
  readonly lease: Lease
  readonly queue: string
  readonly type: string
  readonly priority: number
  readonly payload: string | null
  readonly payloadVersion: number
  /** After this attempt was paid for. None: unlimited. */
  readonly attemptsLeft: Option.Option<number>
  readonly maxAttempts: Option.Option<number>
  /** From the due time to the claim, by the database's clock; by that of this process for a job that it had just added. */
  readonly waited: Duration.Duration
  readonly traceContext: Option.Option<string>
}

/** A job of a vanished holder that was ended instead of being run again. */
export interface EndedJob {
  readonly id: JobId
  readonly queue: string
  readonly type: string
  readonly state: "dead" | "canceled"
}

/** What a claim has taken, and what it has ended on its way. */
export interface Claimed {
  readonly jobs: ReadonlyArray<ClaimedJob>
  readonly ended: ReadonlyArray<EndedJob>
  /** Whether there may be more due jobs right now, so that it pays to claim again at once. */
  readonly more: boolean
}

/** What became of one lease that was to be renewed. `Busy`: the row is locked by somebody, so nothing is known. */
export type Renewal =
  | { readonly _tag: "Renewed"; readonly cancelRequested: boolean }
  | { readonly _tag: "Lost"; readonly reason: LeaseLost["reason"] }
  | { readonly _tag: "Busy" }

/** An outcome as it is written: delays decided, text redacted and cut. */
export type Settlement =
  | { readonly _tag: "Complete"; readonly output: string | null }
  | { readonly _tag: "RetryLater"; readonly delay: Duration.Duration; readonly code: string; readonly message: string }
  | { readonly _tag: "Bury"; readonly code: string; readonly message: string }
  | { readonly _tag: "Snooze"; readonly delay: Duration.Duration }
  | { readonly _tag: "Release" }
  | { readonly _tag: "Cancel" }

/**
 * What became of one settlement.
 *
 * - `Recorded`: this outcome is durable, now or since an earlier try whose answer was lost. `state` is what it led to:
 *   `canceled` wherever a cancel was requested, `dead` for a retry without budget.
 * - `Lost`: the token is stale; nothing was written.
 * - `AlreadySettled`: this token was settled before, with another outcome.
 * - `Unknown`: the row, or its ledger entry, is gone.
 * - `Busy`: the row is locked by somebody; nothing was written, try again.
 */
export type SettleVerdict =
  | { readonly _tag: "Recorded"; readonly state: JobState }
  | { readonly _tag: "Lost"; readonly reason: LeaseLost["reason"] }
  | { readonly _tag: "AlreadySettled" }
  | { readonly _tag: "Unknown" }
  | { readonly _tag: "Busy" }

/**
 * What a cancel did: `canceled` (it was pending and never ran), `requested` (it runs; its holder is told within a renewal
 * interval), `ended` (it had ended before, in `state`).
 */
export type CancelAnswer =
  | { readonly _tag: "canceled" }
  | { readonly _tag: "requested" }
  | { readonly _tag: "ended"; readonly state: JobState }

/** Which jobs; every field that is left out matches all. */
export interface JobFilter {
  readonly queue?: string
  readonly type?: string
  readonly state?: JobState
}

/** How many jobs of a queue are in one state. */
export interface QueueCount {
  readonly queue: string
  readonly state: JobState
  readonly count: number
}

/** A late write that was refused. */
export interface Refusal {
  readonly lease: Lease
  readonly verb: string
}

/** A late write that was refused, as it is remembered. */
export interface RefusalRecord {
  readonly token: number
  readonly verb: string
  readonly worker: string
  readonly at: DateTime.Utc
}

/** Where a walk over all jobs has come to; the empty text is the start. */
export type Cursor = string

/** How far a walk over all jobs has come. */
export interface Walked {
  /** None: the walk has reached the end. */
  readonly next: Option.Option<Cursor>
}

/** A store of jobs. `MysqlQueue.layer` provides one, `MemoryQueue.layer` of `leasehold/testing` another. */
export class JobStore extends Context.Tag("leasehold/JobStore")<
  JobStore,
  {
    /**
     * Adds jobs, in order, joining the caller's open transaction (law 6).
     *
     * Within (scope, key) the first job stays: a request with its fingerprint answers its id with `created: false` and writes
     * nothing, another one fails with `IdempotencyConflict` (law 7). All or nothing.
     */
    readonly enqueue: (
      jobs: ReadonlyArray<NewJob>
    ) => Effect.Effect<ReadonlyArray<Enqueued>, IdempotencyConflict | TransactionAborted | StoreError>

    /** Fails unless a transaction of the queue's client is open here. */
    readonly requireTransaction: (verb: string) => Effect.Effect<void, NotInTransaction>

    /** Fails if a transaction of the queue's client is open here. */
    readonly refuseTransaction: (verb: string) => Effect.Effect<void, InTransaction>

    /**
     * Runs an effect in a transaction of its own, which verbs that join one are part of. Committed on success, else rolled back.
     * Fails with `TransactionAborted` where the database has undone it, with `OutcomeUnknown` where the answer to the commit
     * was lost, and with `InTransaction` inside of another one.
     */
    readonly transaction: <A, E, R>(
      effect: Effect.Effect<A, E, R>
    ) => Effect.Effect<A, E | InTransaction | TransactionAborted | StoreError, R>

    /**
     * Runs an effect outside of any transaction that is open here. What outlives the caller, or belongs to nobody's
     * transaction, runs so: a worker that was started in a transaction must not write into it.
     */
    readonly detached: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>

    /**
     * Takes up to `limit` due jobs of a queue, by priority, then due time, then id.
     *
     * Each is running, with a token higher than any before, one attempt paid and one ledger entry started (laws 1, 4, 5);
     * expired ones are taken over in place (law 3). Expired ones with no attempts left are dead with code `lease_expired`,
     * those with a cancel request are canceled, both with a raised token. No job goes to two callers. A paused queue
     * answers nothing. Costs grow with `limit`, never with the backlog or with jobs of other types.
     */
    readonly claim: (request: ClaimRequest) => Effect.Effect<Claimed, StoreError>

    /**
     * Extends leases to `lease` from now; answers in the order of the leases. Only those that are lost did not change. One
     * row that is locked by somebody does not delay the others.
     */
    readonly renew: (
      leases: ReadonlyArray<Lease>,
      lease: Duration.Duration
    ) => Effect.Effect<ReadonlyArray<Renewal>, StoreError>

    /**
     * Writes the end of attempts, each behind its own fence (law 2); answers in the order given. A settlement that can not be
     * written does not hinder the others. Repeating one whose answer was lost is safe and answers `Recorded`.
     */
    readonly settle: (
      settlements: ReadonlyArray<readonly [Lease, Settlement]>
    ) => Effect.Effect<ReadonlyArray<SettleVerdict>, StoreError>

    /**
     * Runs `effect` in a transaction of its own, with the job's row locked before and completed after, in the same
     * transaction. The effect answers the encoded output and a value.
     */
    readonly completeWith: <A, E, R>(
      lease: Lease,
      effect: Effect.Effect<readonly [output: string | null, value: A], E, R>
    ) => Effect.Effect<A, E | SettleError, R>

    /** The job, or none. Joins the caller's open transaction. */
    readonly get: (id: JobId) => Effect.Effect<Option.Option<JobRecord>, TransactionAborted | StoreError>

    /** The job that (scope, key) names, or none. Joins the caller's open transaction. */
    readonly find: (
      scope: string,
      key: string
    ) => Effect.Effect<Option.Option<JobRecord>, TransactionAborted | StoreError>

    /** Up to `limit` jobs with ids above the cursor, by id. Costs one walk over the ids until enough match. */
    readonly list: (
      filter: JobFilter,
      after: Cursor,
      limit: number
    ) => Effect.Effect<ReadonlyArray<JobRecord>, StoreError>

    /** Jobs by queue and state. Reads every job once: for people, not for loops. */
    readonly counts: Effect.Effect<ReadonlyArray<QueueCount>, StoreError>

    /**
     * Cancels a pending job at once, or leaves a request for the holder of a running one. Joins the caller's open
     * transaction; waits for a lock on the row, bounded.
     */
    readonly cancel: (id: JobId) => Effect.Effect<CancelAnswer, JobNotFound | TransactionAborted | StoreError>

    /**
     * Makes a dead or canceled job pending, due now, with its full budget and a raised token; answers its queue. Joins as `cancel`
     * does.
     */
    readonly retry: (id: JobId) => Effect.Effect<string, JobNotFound | JobNotEnded | TransactionAborted | StoreError>

    /**
     * Retries dead or canceled jobs that match, walking from the cursor; answers how many, and the queues that may have got some. Where
     * the answer to a commit was lost, its jobs are retried and not counted.
     */
    readonly retryAll: (
      filter: JobFilter,
      after: Cursor,
      limit: number
    ) => Effect.Effect<Walked & { readonly retried: number; readonly queues: ReadonlyArray<string> }, StoreError>

    /** Stops or resumes the claims of a queue. Running jobs go on; enqueues too. */
    readonly setPaused: (queue: string, paused: boolean) => Effect.Effect<void, StoreError>

    /** The names of all paused queues. */
    readonly paused: Effect.Effect<ReadonlyArray<string>, StoreError>

    /**
     * Ends running jobs whose lease has ended and which no claim may take over: exhausted ones are dead with code
     * `lease_expired`, those with a cancel request are canceled. Looks at up to `limit` jobs from the cursor.
     */
    readonly reap: (
      after: Cursor,
      limit: number
    ) => Effect.Effect<Walked & { readonly ended: ReadonlyArray<EndedJob> }, StoreError>

    /**
     * Deletes ended jobs whose end is longer ago than the retention of their state; a state without one is kept for ever.
     * Looks at up to `limit` jobs from the cursor, in one short transaction.
     */
    readonly clean: (
      retention: { readonly [State in "succeeded" | "dead" | "canceled"]?: Duration.Duration },
      after: Cursor,
      limit: number
    ) => Effect.Effect<Walked & { readonly cleaned: number }, StoreError>

    /** Remembers late writes that were refused, at most 20 per job, while the job is there. Best effort: it serves `Queue.why`. */
    readonly recordRefusals: (refusals: ReadonlyArray<Refusal>) => Effect.Effect<void, StoreError>

    /** The refused late writes of a job, oldest first. */
    readonly refusals: (id: JobId) => Effect.Effect<ReadonlyArray<RefusalRecord>, StoreError>
  }
>() {}
