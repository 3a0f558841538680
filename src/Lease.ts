/**
 * A worker's hold on a job: what proves it to the database, for how long it may be trusted without asking, and what its
 * holder can do.
 *
 * @module
 */
import { Clock, Duration, Effect, type Option } from "effect"
import type { JobFailure, LeaseLost, Permanent, Retryable } from "./JobFailure.js"
import type { JobId } from "./JobRecord.js"
import type { AlreadySettled, InTransaction, OutcomeUnknown, PayloadInvalid, StoreError } from "./QueueError.js"

/**
 * The proof of ownership that every write for a running job carries (law 2). `token` rises by at least one with each claim of
 * the job and never goes down, so an external system that remembers the highest token it saw can refuse a stale holder.
 */
export interface Lease {
  readonly jobId: JobId
  readonly token: number
  /** The number of this attempt, 1 for the first. */
  readonly attempt: number
  readonly worker: string
}

/**
 * How long a lease may be trusted without asking the database.
 *
 * The window opens before the claim or renewal is sent, so it ends before the lease does by the database's clock. Time is
 * the larger of what the monotonic clock and the wall clock say has passed: the first stands still while a host sleeps,
 * the second can be set back. A tenth of the lease, at most a second, is kept as time to interrupt the handler in.
 */
export interface TrustWindow {
  readonly openedAt: Instant
  readonly length: Duration.Duration
}

/** One reading of both clocks, in milliseconds. */
export interface Instant {
  readonly monotonic: number
  readonly wall: number
}

/** This instant, by both clocks. */
export const now: Effect.Effect<Instant> = Effect.map(
  Effect.zip(Clock.currentTimeNanos, Clock.currentTimeMillis),
  ([nanos, wall]) => ({ monotonic: Number(nanos) / 1e6, wall })
)

/** The window of a lease that is about to be asked for. */
export const trustFrom = (openedAt: Instant, lease: Duration.Duration): TrustWindow => ({
  openedAt,
  length: Duration.subtract(lease, Duration.min(Duration.times(lease, 0.1), Duration.seconds(1)))
})

/** Milliseconds for which the lease may still be trusted; zero or less means that nothing may be written under it. */
export const trustLeft = (window: TrustWindow, at: Instant): number =>
  Duration.toMillis(window.length) - Math.max(at.monotonic - window.openedAt.monotonic, at.wall - window.openedAt.wall)

/** What a settlement by hand can fail with. */
export type SettleError = LeaseLost | AlreadySettled | OutcomeUnknown | InTransaction | StoreError

/** What a handler is given beside its payload. */
export interface HandlerLease<Success> extends Lease {
  readonly jobType: string
  readonly queue: string
  /** None: unlimited. */
  readonly attemptsLeft: Option.Option<number>
  /** Never succeeds; fails as soon as the lease is lost. Race it against work that must not outlive the lease. */
  readonly lost: Effect.Effect<never, LeaseLost>
  /**
   * Extends the lease by its full duration now. Not needed: a fiber renews it at every third of its duration.
   *
   * `StoreUnavailable` with reason `lock_wait`: somebody has kept the job's row locked for half a second.
   */
  readonly renew: Effect.Effect<void, LeaseLost | StoreError>
  /**
   * Runs `effect` and completes the job with its success, all in one transaction: the effect's writes through the same
   * SQL client happen exactly once, or not at all. A stale token rolls everything back with `LeaseLost`.
   *
   * The job's row is locked first. The effect runs again after a deadlock, so it should do nothing outside of the database.
   * Refused with `InTransaction` inside of an open one. After it succeeded, the worker settles nothing more.
   */
  readonly completeWith: <E, R>(
    effect: Effect.Effect<Success, E, R>
  ) => Effect.Effect<Success, E | SettleError | PayloadInvalid, R>
}

/** A lease that was claimed by hand: `Queue.claim`. Exactly one settlement counts; a second one is `AlreadySettled`. */
export interface HeldLease<Payload, Success> extends HandlerLease<Success> {
  readonly payload: Payload
  /** The job succeeded: its output and its end are durable on return. */
  readonly complete: (output: Success) => Effect.Effect<void, SettleError | PayloadInvalid>
  /** The attempt failed: the job is dead, or pending again by its retry policy, durably on return. */
  readonly fail: (failure: Retryable | Permanent) => Effect.Effect<void, SettleError>
  /** The job is pending again, due after `delay`; the attempt is given back. */
  readonly snooze: (delay: Duration.DurationInput) => Effect.Effect<void, SettleError>
  /** The job is pending again and due now; the attempt is given back. */
  readonly release: Effect.Effect<void, SettleError>
}

/** What a handler of a job with errors `E` may fail with. */
export type HandlerError<E> = E | JobFailure
