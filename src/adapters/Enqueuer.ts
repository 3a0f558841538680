/**
 * Enqueue from programs without Effect, in transactions that another library opened: the same jobs, options, statements and
 * rules as `Queue.enqueue`, behind promises.
 *
 * @module
 */
import { Cause, type Duration, Effect, Exit, Option } from "effect"
import type * as Job from "../Job.js"
import type { Enqueued, NewJob } from "../JobStore.js"
import * as Enqueueing from "../mysql/Enqueueing.js"
import * as Tables from "../mysql/Tables.js"
import * as Transaction from "../mysql/Transaction.js"
import * as Payload from "../Payload.js"
import {
  type IdempotencyConflict,
  type InvalidName,
  type InvalidOption,
  NotInTransaction,
  type StoreError,
  type TransactionAborted
} from "../QueueError.js"
import * as Request from "../queue/Request.js"
import * as Setting from "../Setting.js"
import type { Executor } from "./Executor.js"

export type { Executor } from "./Executor.js"

/** How an enqueuer writes. Each option has a default. */
export interface Options {
  /** As that of `MysqlQueue.layer`. Default `"leasehold_"`. */
  readonly tablePrefix?: string
  /** How long one statement may take: 100 ms to 10 minutes. Default 5 seconds. */
  readonly statementTimeout?: Duration.DurationInput
  /** Bytes of UTF-8 that a payload may have. Default that of `Payload.Limit`, 1 MiB. */
  readonly payloadLimit?: number
  /**
   * A way to the database outside of any transaction, such as the pool: it looks for keys that are newer than the snapshot of
   * the transaction. Without it such a replay is still answered right, but under REPEATABLE READ, MySQL's default, it leaves a
   * lock that stops all other enqueues until the transaction ends.
   */
  readonly outside?: Executor
}

/** What an enqueue rejects with; each is an instance of its class with a `_tag`. Their causes are told at `Queue.enqueue`. */
export type EnqueueError =
  | Request.RequestError
  | NotInTransaction
  | IdempotencyConflict
  | TransactionAborted
  | StoreError
  | InvalidName
  | InvalidOption

/** One job for `enqueueMany`, made by `request`. */
export type Requested = Effect.Effect<NewJob, Request.RequestError>

/** Enqueues in transactions that another library has opened. Made by {@link promise}. */
export interface Enqueuer {
  /**
   * Adds one job in the open transaction; it commits or rolls back with it. Rejects with an {@link EnqueueError}, and with
   * `NotInTransaction` where the handle has no transaction open, in which case nothing was written.
   */
  readonly enqueue: <Type extends string, P, S, E>(
    transaction: Executor,
    job: Job.Job<Type, P, S, E>,
    payload: P,
    options?: Request.EnqueueOptions
  ) => Promise<Enqueued>
  /** Adds many jobs of one type, all or none; answers in their order. */
  readonly enqueueAll: <Type extends string, P, S, E>(
    transaction: Executor,
    job: Job.Job<Type, P, S, E>,
    payloads: ReadonlyArray<P>,
    options?: Request.CommonOptions
  ) => Promise<ReadonlyArray<Enqueued>>
  /** Adds jobs of several types, all or none; answers in their order. */
  readonly enqueueMany: (transaction: Executor, requests: ReadonlyArray<Requested>) => Promise<ReadonlyArray<Enqueued>>
}

/** One job for `enqueueMany`. */
export const request: <Type extends string, P, S, E>(
  job: Job.Job<Type, P, S, E>,
  payload: P,
  options?: Request.EnqueueOptions
) => Requested = Request.make

/**
 * An enqueuer behind promises. It holds no connection: each call is given the transaction, made by an adapter, such as
 * `transaction(tx)` of `leasehold/adapters/drizzle`.
 *
 * Workers are not woken: they find the jobs by their next poll. Options out of range are reported by the first call.
 */
export const promise = (options: Options = {}): Enqueuer => {
  const enqueueMany = (executor: Executor, requests: ReadonlyArray<Requested>) =>
    run(
      Effect.gen(function* () {
        const { limit, tables, timeout } = yield* checkOptions(options)
        const jobs = yield* Effect.provideService(Effect.all(requests), Payload.Limit, limit)
        const session = executor.session(timeout)
        const outside = Option.map(Option.fromNullable(options.outside), (other) => other.session(timeout))
        if (jobs.length === 0) return []
        return yield* Transaction.within(
          session,
          "enqueue",
          Effect.zipRight(
            requireTransaction(executor, session),
            Enqueueing.inTransaction(tables, session, packet, jobs, outside)
          )
        )
      })
    )
  return {
    enqueueMany,
    enqueueAll: (executor, job, payloads, common) =>
      enqueueMany(
        executor,
        payloads.map((payload) => Request.make(job, payload, common))
      ),
    enqueue: async (executor, job, payload, one) => {
      const [enqueued] = await enqueueMany(executor, [Request.make(job, payload, one)])
      // All or nothing: one answer for one job.
      return enqueued as Enqueued
    }
  }
}

/** Bytes that a statement of many rows stays below. Every server takes as much: 4 MiB is the smallest default there was. */
const packet = 4 * 1024 * 1024

const requireTransaction = (executor: Executor, session: ReturnType<Executor["session"]>) =>
  Effect.flatMap(
    executor.isTransaction === undefined ? Transaction.isOpenOn(session) : Effect.succeed(executor.isTransaction),
    (open) => (open ? Effect.void : Effect.fail(new NotInTransaction({ verb: "enqueue" })))
  )

const checkOptions = (options: Options) =>
  Effect.gen(function* () {
    const given = options.statementTimeout
    return {
      tables: yield* Tables.make(options.tablePrefix ?? Tables.defaultPrefix),
      timeout: yield* Setting.duration("statementTimeout", given, "5 seconds", "100 millis", "10 minutes"),
      limit: yield* Setting.wholeNumber("payloadLimit", options.payloadLimit, yield* Payload.Limit, 1, 2 ** 30)
    }
  })

/** Rejects with the error itself, so that `error._tag` and `instanceof` tell what it is. */
const run = async <A, E>(effect: Effect.Effect<A, E>): Promise<A> => {
  const exit = await Effect.runPromiseExit(effect)
  if (Exit.isSuccess(exit)) return exit.value
  throw Cause.squash(exit.cause)
}
