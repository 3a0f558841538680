/**
 * The client: enqueues jobs, asks about them, changes their fate, and claims them by hand.
 *
 * What concerns single jobs joins the transaction that is open where it is called (law 6), unless its text says otherwise: enqueues,
 * `get`, `find`, `cancel` and `retry`. What concerns many jobs or whole queues never does: `list`, `counts`, `retryAll`, `pause`,
 * `resume` and `paused`.
 *
 * @module
 */
import { Context, type Duration, Effect, Layer, Option, type Scope } from "effect"
import type * as Job from "./Job.js"
import type { JobRecord } from "./JobRecord.js"
import type { CancelAnswer, Enqueued, JobFilter, JobStore, QueueCount } from "./JobStore.js"
import type { HeldLease } from "./Lease.js"
import {
  type InTransaction,
  type InvalidName,
  type InvalidOption,
  type JobNotEnded,
  type KeyInvalid,
  NothingDue,
  type StoreError,
  type TransactionAborted
} from "./QueueError.js"
import type { ClaimOptions } from "./queue/ByHand.js"
import * as Client from "./queue/Client.js"
import * as Request from "./queue/Request.js"
import type { Story } from "./queue/Story.js"
import type { Wakeup } from "./Wakeup.js"

export type { ClaimOptions } from "./queue/ByHand.js"
export type { ClaimError, EnqueueError, FindError, ListOptions, Requested, ResultError } from "./queue/Client.js"
export type { CommonOptions, EnqueueOptions, RequestError, When } from "./queue/Request.js"
export type { Event, Story } from "./queue/Story.js"

/** The client as a service. The functions of this module ask for it and call it. */
export class Queue extends Context.Tag("leasehold/Queue")<Queue, Client.Client>() {}

/** The client, for as long as the scope is open: it settles the leases that are held by hand. */
export const make: Effect.Effect<Queue["Type"], never, JobStore | Wakeup | Scope.Scope> = Client.make

/** Provides the client over whatever store the context has. `MysqlQueue.layer` contains it. */
export const layer: Layer.Layer<Queue, never, JobStore | Wakeup> = Layer.scoped(Queue, make)

/**
 * Adds one job. In an open transaction it commits or rolls back with it; outside it is durable on return, and workers of
 * this process are woken.
 *
 * Answers the job's id and whether it is new: with an idempotency key, a replay answers the first job's id (law 7).
 *
 * - `InvalidOption`, `InvalidName`, `PayloadInvalid`, `PayloadTooLarge`, `KeyInvalid`, `TimeInvalid`: refused before any SQL.
 * - `NotInTransaction`: `requireTransaction` was set, and none is open.
 * - `IdempotencyConflict`: the key names a job with another payload, type or queue.
 * - `TransactionAborted`: the database has undone the caller's transaction or a part of it: run all of it again.
 * - `StoreUnavailable`, `StoreRejected`: nothing was written. `OutcomeUnknown`: an answer was lost; with a key, repeat it.
 */
export const enqueue = <Type extends string, P, S, E>(
  job: Job.Job<Type, P, S, E>,
  payload: P,
  options?: Request.EnqueueOptions
): Effect.Effect<Enqueued, Client.EnqueueError, Queue> =>
  Effect.flatMap(Queue, (queue) => queue.enqueue(job, payload, options))

/** Adds many jobs of one type, all or none of them; answers in their order. Fails as `enqueue` does. */
export const enqueueAll = <Type extends string, P, S, E>(
  job: Job.Job<Type, P, S, E>,
  payloads: ReadonlyArray<P>,
  options?: Request.CommonOptions
): Effect.Effect<ReadonlyArray<Enqueued>, Client.EnqueueError, Queue> =>
  Effect.flatMap(Queue, (queue) => queue.enqueueAll(job, payloads, options))

/** Adds jobs of several types, made by {@link request}, all or none of them; answers in their order. Fails as `enqueue`. */
export const enqueueMany = (
  requests: ReadonlyArray<Client.Requested>,
  options?: { readonly requireTransaction?: boolean | undefined }
): Effect.Effect<ReadonlyArray<Enqueued>, Client.EnqueueError, Queue> =>
  Effect.flatMap(Queue, (queue) => queue.enqueueMany(requests, options))

/** One job for {@link enqueueMany}. */
export const request = <Type extends string, P, S, E>(
  job: Job.Job<Type, P, S, E>,
  payload: P,
  options?: Request.EnqueueOptions
): Client.Requested => Request.make(job, payload, options)

/**
 * Runs an effect in a transaction on a connection of the library's own (READ COMMITTED, whatever the client's default is),
 * which the queue's SQL client and {@link enqueue} join as they do `sql.withTransaction`. What that can not do: workers of this
 * process are woken, and metrics counted, exactly when it has committed, and not at all where it rolls back.
 *
 * A failure, defect or interruption of the effect rolls back; an interrupted statement is cut off together with its
 * connection. Nest by `sql.withTransaction`: a nested one that fails and is caught may leave a needless wake-up behind.
 *
 * - `TransactionAborted`: the database has undone it, also where the effect caught the deadlock and went on. Run it again. Reason
 *   `ended`: a statement of the effect has ended it, such as DDL, which commits; nothing here could undo that.
 * - `OutcomeUnknown`: the answer to the commit was lost.
 * - `InTransaction`: another transaction is open here. `StoreUnavailable`, `StoreRejected`: nothing was written.
 */
export const withTransaction = <A, E, R>(
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, E | InTransaction | TransactionAborted | StoreError, Queue | R> =>
  Effect.flatMap(Queue, (queue) => queue.withTransaction(effect))

/** A job as it stands, payload and output still encoded. Text that is no id is `JobNotFound`. */
export const get = (id: string): Effect.Effect<JobRecord, Client.FindError, Queue> =>
  Effect.flatMap(Queue, (queue) => queue.get(id))

/** The job that an idempotency key names, for as long as its row exists. */
export const find = (idempotency: {
  readonly scope?: string
  readonly key: string
}): Effect.Effect<Option.Option<JobRecord>, KeyInvalid | TransactionAborted | StoreError, Queue> =>
  Effect.flatMap(Queue, (queue) => queue.find(idempotency))

/**
 * Jobs that match, by id, a page at a time; `after` is the last id of the page before. Costs one walk over the ids until the
 * page is full: for people and tools, not for loops.
 */
export const list = (
  options?: Client.ListOptions
): Effect.Effect<ReadonlyArray<JobRecord>, InvalidOption | StoreError, Queue> =>
  Effect.flatMap(Queue, (queue) => queue.list(options))

/** How many jobs each queue has in each state. Reads every job once: for people, not for loops. */
export const counts: Effect.Effect<ReadonlyArray<QueueCount>, StoreError, Queue> = Effect.flatMap(
  Queue,
  (queue) => queue.counts
)

/**
 * Waits until a job has ended; answers its decoded success. Looks after 20 ms, then less and less often, down to once a second.
 *
 * `timeout`, 0 to 365 days, default 30 seconds. Fails with `JobDead`, `JobCanceled`, `ResultTimeout` (the job goes on),
 * `JobNotFound`, and `InTransaction` inside an open transaction, which could not see the end of the job.
 */
export const result = <Type extends string, P, S, E>(
  job: Job.Job<Type, P, S, E>,
  id: string,
  options?: { readonly timeout?: Duration.DurationInput }
): Effect.Effect<S, Client.ResultError, Queue> => Effect.flatMap(Queue, (queue) => queue.result(job, id, options))

/** The story of a job: its attempts, the late writes that were refused, and where it stands, in order. */
export const why = (id: string): Effect.Effect<Story, Client.FindError, Queue> =>
  Effect.flatMap(Queue, (queue) => queue.why(id))

/**
 * Cancels a job. The answer says what that did: `canceled`, it was pending and never runs; `requested`, its handler is
 * interrupted within a renewal interval and the job then ends canceled, whatever the handler answers; `ended`, it had ended
 * before. Repeating it is harmless.
 */
export const cancel = (id: string): Effect.Effect<CancelAnswer, Client.FindError, Queue> =>
  Effect.flatMap(Queue, (queue) => queue.cancel(id))

/** Brings a dead or canceled job back: pending, due now, with a fresh budget. `JobNotEnded` where it is neither. */
export const retry = (id: string): Effect.Effect<void, Client.FindError | JobNotEnded, Queue> =>
  Effect.flatMap(Queue, (queue) => queue.retry(id))

/** Brings back all dead or canceled jobs that match; answers how many. Walks in batches, each durable by itself. */
export const retryAll = (filter?: JobFilter): Effect.Effect<number, StoreError, Queue> =>
  Effect.flatMap(Queue, (queue) => queue.retryAll(filter))

/** Stops the claims of a queue, everywhere, within one poll. Jobs under way go on, and jobs can be enqueued. */
export const pause = (name: string): Effect.Effect<void, InvalidName | StoreError, Queue> =>
  Effect.flatMap(Queue, (queue) => queue.pause(name))

/** Ends a pause. */
export const resume = (name: string): Effect.Effect<void, InvalidName | StoreError, Queue> =>
  Effect.flatMap(Queue, (queue) => queue.resume(name))

/** The names of all paused queues. */
export const paused: Effect.Effect<ReadonlyArray<string>, StoreError, Queue> = Effect.flatMap(
  Queue,
  (queue) => queue.paused
)

/**
 * Claims the next due job of a type, by hand. A fiber of the scope renews the lease; the holder settles it. Closing the scope
 * without a settlement ends the renewal and leaves the lease to lapse, or gives the job back: `onClose`.
 *
 * Fails with `NothingDue` where none is due ({@link claimOption} answers an Option), and with `InTransaction` inside an open
 * transaction. A job whose payload does not decode becomes dead, code `payload_invalid`, and the next one is taken.
 */
export const claim = <Type extends string, P, S, E>(
  job: Job.Job<Type, P, S, E>,
  options?: ClaimOptions
): Effect.Effect<HeldLease<P, S>, NothingDue | Client.ClaimError, Queue | Scope.Scope> =>
  Effect.flatMap(
    claimOption(job, options),
    Option.match({
      onNone: () => Effect.fail(new NothingDue({ jobType: job.type, queue: job.queue })),
      onSome: Effect.succeed
    })
  )

/** As {@link claim}; none where no job is due. */
export const claimOption = <Type extends string, P, S, E>(
  job: Job.Job<Type, P, S, E>,
  options?: ClaimOptions
): Effect.Effect<Option.Option<HeldLease<P, S>>, Client.ClaimError, Queue | Scope.Scope> =>
  Effect.flatMap(Queue, (queue) => queue.claimOption(job, options))
