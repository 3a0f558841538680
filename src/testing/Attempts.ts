/**
 * Runs single attempts, one after the other, by the parts that a worker is made of: leases, timeouts, retries and fences are
 * the real ones. What is left out are the claim loops, so that a test decides when something runs.
 */
import { Context, Duration, Effect, FiberRef, Option, Scope } from "effect"
import * as Redaction from "../Attempt.js"
import * as Job from "../Job.js"
import type { JobId, JobRecord } from "../JobRecord.js"
import { JobStore } from "../JobStore.js"
import * as Lease from "../Lease.js"
import * as LeaseKeeper from "../LeaseKeeper.js"
import * as Metrics from "../Metrics.js"
import type { InvalidName, InvalidOption, StoreError, TransactionAborted } from "../QueueError.js"
import * as Settler from "../Settler.js"
import { Executor } from "../worker/Executor.js"
import type { Kind } from "../worker/Life.js"
import { Slots } from "../worker/Slots.js"

/** One attempt, after it has ended or was given up. */
export interface Ended {
  readonly type: string
  readonly id: JobId
  readonly attempt: number
  readonly token: number
  /** The job as it stands after it; none where it was cleaned away meanwhile. */
  readonly record: Option.Option<JobRecord>
}

export interface Options {
  readonly jobs: ReadonlyArray<Job.Any>
  readonly handlers: Context.Context<never>
  readonly worker: string
  readonly lease: Duration.Duration
  /** Put around each handler. */
  readonly around?: <A, E>(handler: Effect.Effect<A, E>) => Effect.Effect<A, E>
}

export type AttemptError = StoreError | TransactionAborted

/**
 * Claims and runs the next due job; answers its end, or that of a job which the claim has ended because its workers had
 * vanished. None where nothing is due. The queues are asked in the order of `jobs`.
 *
 * An interruption stops the handler as a worker's stop does, and gives the job back.
 */
export const make = ({
  around = (handler) => handler,
  handlers,
  jobs,
  lease,
  worker
}: Options): Effect.Effect<
  { readonly next: Effect.Effect<Option.Option<Ended>, AttemptError> },
  InvalidName | InvalidOption,
  JobStore | Scope.Scope
> =>
  Effect.gen(function* () {
    const store = yield* JobStore
    const keeper = yield* LeaseKeeper.make(store, lease)
    const settler = yield* Settler.make(store)
    const clock = yield* Effect.clock
    const labels = yield* FiberRef.get(FiberRef.currentMetricLabels)
    const redactor = yield* Redaction.Redactor
    const queues = new Map<string, Map<string, Kind>>()
    for (const job of jobs) {
      if (Option.isSome(job.invalid)) return yield* job.invalid.value
      const kinds = queues.get(job.queue) ?? new Map<string, Kind>()
      kinds.set(job.type, {
        runnable: wrap(Context.unsafeGet(handlers, Job.handlerTag(job.type)), around),
        metrics: Metrics.forJob(job)
      })
      queues.set(job.queue, kinds)
    }
    const lines = yield* Effect.forEach(queues, ([queue, kinds]) =>
      Effect.map(
        Executor.make(
          {
            store,
            keeper,
            settler,
            slots: new Slots(queue, 1, 0, labels),
            clock,
            labels,
            interruptGrace: Duration.seconds(5),
            unfinished: "release",
            redactor
          },
          worker,
          kinds
        ),
        (executor) => ({
          queue,
          kinds,
          types: Array.from(kinds.values(), ({ runnable: { job } }) => ({ type: job.type, version: job.version })),
          executor
        })
      )
    )

    const next: Effect.Effect<Option.Option<Ended>, AttemptError> = Effect.gen(function* () {
      for (const { executor, kinds, queue, types } of lines) {
        const openedAt = yield* Lease.now
        const claimed = yield* store.detached(store.claim({ queue, types, worker, lease, limit: 1 }))
        const [vanished] = claimed.ended
        if (vanished !== undefined) {
          const record = yield* store.get(vanished.id)
          const attempt = Option.match(record, { onNone: () => 0, onSome: (job) => job.attempt })
          const token = Option.match(record, { onNone: () => 0, onSome: (job) => job.attempts.at(-1)?.token ?? 0 })
          return Option.some({ type: vanished.type, id: vanished.id, attempt, token, record })
        }
        const [job] = claimed.jobs
        const kind = kinds.get(job?.type ?? "")
        if (job === undefined || kind === undefined) continue
        executor.start(kind, job, Lease.trustFrom(openedAt, lease), yield* Scope.make())
        yield* Effect.onInterrupt(Effect.raceFirst(executor.drained, executor.failure), () =>
          Effect.zipRight(executor.stopAll, executor.drained)
        )
        const { attempt, jobId: id, token } = job.lease
        return Option.some({ type: job.type, id, attempt, token, record: yield* store.get(id) })
      }
      return Option.none()
    })
    return { next }
  })

const wrap = (runnable: Job.Runnable, around: NonNullable<Options["around"]>): Job.Runnable => ({
  ...runnable,
  perform: (stored, lease, run) =>
    runnable.perform(stored, lease, (handler, judge) => run(around(Effect.scoped(handler)), judge))
})
