/**
 * What `Queue` does: checks, encodes, calls the store, and wakes the workers of this process.
 */
import { Clock, Context, Duration, Effect, FiberRef, Metric, Option, Schema, type Scope } from "effect"
import type * as Job from "../Job.js"
import { JobId, type JobRecord, JobState } from "../JobRecord.js"
import {
  type CancelAnswer,
  type Cursor,
  type Enqueued,
  type JobFilter,
  JobStore,
  type NewJob,
  type QueueCount
} from "../JobStore.js"
import type { HeldLease } from "../Lease.js"
import * as Metrics from "../Metrics.js"
import {
  type IdempotencyConflict,
  type InTransaction,
  type InvalidName,
  InvalidOption,
  JobCanceled,
  JobDead,
  type JobNotEnded,
  JobNotFound,
  type KeyInvalid,
  type NotInTransaction,
  PayloadInvalid,
  ResultTimeout,
  type StoreError,
  StoreUnavailable,
  type TransactionAborted
} from "../QueueError.js"
import * as Setting from "../Setting.js"
import * as Settler from "../Settler.js"
import * as Timer from "../Timer.js"
import * as TraceContext from "../TraceContext.js"
import { Wakeup } from "../Wakeup.js"
import * as WorkerId from "../WorkerId.js"
import * as ByHand from "./ByHand.js"
import * as Request from "./Request.js"
import * as Story from "./Story.js"

/** What an enqueue can be answered with instead. */
export type EnqueueError =
  | Request.RequestError
  | NotInTransaction
  | IdempotencyConflict
  | TransactionAborted
  | StoreError

/** What a verb on one job can be answered with instead. */
export type FindError = JobNotFound | TransactionAborted | StoreError

/** What a wait for a result can end with instead. */
export type ResultError =
  | JobNotFound
  | JobDead
  | JobCanceled
  | ResultTimeout
  | PayloadInvalid
  | InTransaction
  | InvalidOption
  | StoreError

/** What a claim by hand can be answered with instead. */
export type ClaimError = InvalidOption | InvalidName | InTransaction | StoreError

export interface ListOptions extends JobFilter {
  /** The id of the last job of the page before. */
  readonly after?: Cursor
  /** Jobs in a page: 1 to 1,000, default 100. */
  readonly limit?: number
}

/** One job of an `enqueueMany`, whatever its type: made by `Queue.request`. */
export type Requested = Effect.Effect<NewJob, Request.RequestError>

/** Each member is documented at the function of `Queue` that has its name. */
export interface Client {
  readonly enqueue: <Type extends string, P, S, E>(
    job: Job.Job<Type, P, S, E>,
    payload: P,
    options?: Request.EnqueueOptions
  ) => Effect.Effect<Enqueued, EnqueueError>
  readonly enqueueAll: <Type extends string, P, S, E>(
    job: Job.Job<Type, P, S, E>,
    payloads: ReadonlyArray<P>,
    options?: Request.CommonOptions
  ) => Effect.Effect<ReadonlyArray<Enqueued>, EnqueueError>
  readonly enqueueMany: (
    requests: ReadonlyArray<Requested>,
    options?: { readonly requireTransaction?: boolean | undefined }
  ) => Effect.Effect<ReadonlyArray<Enqueued>, EnqueueError>
  readonly withTransaction: <A, E, R>(
    effect: Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E | InTransaction | TransactionAborted | StoreError, R>
  readonly get: (id: string) => Effect.Effect<JobRecord, FindError>
  readonly find: (idempotency: {
    readonly scope?: string
    readonly key: string
  }) => Effect.Effect<Option.Option<JobRecord>, KeyInvalid | TransactionAborted | StoreError>
  readonly list: (options?: ListOptions) => Effect.Effect<ReadonlyArray<JobRecord>, InvalidOption | StoreError>
  readonly counts: Effect.Effect<ReadonlyArray<QueueCount>, StoreError>
  readonly result: <Type extends string, P, S, E>(
    job: Job.Job<Type, P, S, E>,
    id: string,
    options?: { readonly timeout?: Duration.DurationInput }
  ) => Effect.Effect<S, ResultError>
  readonly why: (id: string) => Effect.Effect<Story.Story, FindError>
  readonly cancel: (id: string) => Effect.Effect<CancelAnswer, FindError>
  readonly retry: (id: string) => Effect.Effect<void, FindError | JobNotEnded>
  readonly retryAll: (filter?: JobFilter) => Effect.Effect<number, StoreError>
  readonly pause: (queue: string) => Effect.Effect<void, InvalidName | StoreError>
  readonly resume: (queue: string) => Effect.Effect<void, InvalidName | StoreError>
  readonly paused: Effect.Effect<ReadonlyArray<string>, StoreError>
  readonly claimOption: <Type extends string, P, S, E>(
    job: Job.Job<Type, P, S, E>,
    options?: ByHand.ClaimOptions
  ) => Effect.Effect<Option.Option<HeldLease<P, S>>, ClaimError, Scope.Scope>
}

/** Jobs that one batch of a walk looks at. */
const batchSize = 500

export const make: Effect.Effect<Client, never, JobStore | Wakeup | Scope.Scope> = Effect.gen(function* () {
  const store = yield* JobStore
  const wakeup = yield* Wakeup
  const hands: ByHand.Services = { store, settler: yield* Settler.make(store), worker: WorkerId.make() }
  const whenVisible = makeWhenVisible(store, wakeup)
  const announce = announcer()
  const told = (jobs: ReadonlyArray<NewJob>, enqueued: ReadonlyArray<Enqueued>) =>
    whenVisible((notify) => announce(jobs, enqueued, notify))

  const insert = (jobs: ReadonlyArray<NewJob>, requireTransaction: boolean | undefined) =>
    (requireTransaction === true ? store.requireTransaction("enqueue") : Effect.void).pipe(
      Effect.zipRight(store.enqueue(jobs)),
      Effect.tap((enqueued) => told(jobs, enqueued))
    )

  const insertAll: typeof insert = (jobs, requireTransaction) =>
    jobs.length === 0 ? Effect.succeed([]) : insert(jobs, requireTransaction)

  const get = (id: string): Effect.Effect<JobRecord, FindError> =>
    Effect.flatMap(checkId(id), (jobId) =>
      Effect.flatMap(
        store.get(jobId),
        Option.match({
          onNone: () => Effect.fail(new JobNotFound({ jobId })),
          onSome: Effect.succeed
        })
      )
    )

  const setPaused = (queue: string, paused: boolean) =>
    Effect.flatMap(Setting.name("queue", queue), (name) => store.setPaused(name, paused))

  return {
    enqueue: (job, payload, options) =>
      Request.make(job, payload, options).pipe(
        Effect.flatMap((request) => insert([request], options?.requireTransaction)),
        // All or nothing: one answer for one job.
        Effect.map((enqueued) => enqueued[0] as Enqueued),
        spanned("enqueue", { job_type: job.type, queue: job.queue })
      ),
    enqueueAll: (job, payloads, options) =>
      Request.makeAll(job, payloads, options).pipe(
        Effect.flatMap((jobs) => insertAll(jobs, options?.requireTransaction)),
        spanned("enqueue", { job_type: job.type, queue: job.queue, jobs: payloads.length })
      ),
    enqueueMany: (requests, options) =>
      Request.inStretches(requests, (some) => Effect.all(some)).pipe(
        Effect.flatMap((jobs) => insertAll(jobs, options?.requireTransaction)),
        spanned("enqueue", { jobs: requests.length })
      ),
    withTransaction: (effect) =>
      Effect.suspend(() => {
        const announcements: Array<Effect.Effect<void>> = []
        const noting = Effect.mapInputContext(
          effect,
          (context: Context.Context<Effect.Effect.Context<typeof effect>>) =>
            Context.add(context, Uncommitted, Option.some(announcements))
        )
        return Effect.tap(store.transaction(noting), () => Effect.all(announcements, { discard: true }))
      }).pipe(spanned("withTransaction", {})),
    get,
    find: (idempotency) =>
      Effect.flatMap(
        Request.checkIdentity(idempotency),
        Option.match({
          onNone: () => Effect.succeedNone,
          onSome: ({ key, scope }) => store.find(scope, key)
        })
      ),
    list: ({ after = "", limit, ...filter } = {}) =>
      Effect.gen(function* () {
        const most = yield* Setting.wholeNumber("limit", limit, 100, 1, 1_000)
        // 0 is no id, and stands before the first.
        if (after !== "" && after !== "0" && !isJobId(after)) {
          return yield* new InvalidOption({ option: "after", value: after, accepted: "the id of a job" })
        }
        if (filter.state !== undefined) yield* Setting.word("state", filter.state, JobState.literals)
        return yield* store.list(filter, after, most)
      }),
    counts: store.counts,
    result: (job, id, options) =>
      Effect.zipRight(store.refuseTransaction("result"), awaitResult(store, job, id, options?.timeout)),
    why: (id) =>
      Effect.flatMap(get(id), (job) => Effect.map(store.refusals(job.id), (refusals) => Story.tell(job, refusals))),
    cancel: (id) =>
      Effect.flatMap(checkId(id), (jobId) => store.cancel(jobId)).pipe(
        Effect.tap(({ _tag }) => Metric.update(Metrics.bind(Metrics.cancels, { outcome: _tag }), 1)),
        spanned("cancel", {})
      ),
    retry: (id) =>
      Effect.flatMap(checkId(id), (jobId) =>
        Effect.flatMap(store.retry(jobId), (queue) => whenVisible((notify) => notify(queue)))
      ),
    retryAll: (filter = {}) =>
      Effect.gen(function* () {
        let retried = 0
        let after: Option.Option<Cursor> = Option.some("")
        while (Option.isSome(after)) {
          const batch: Effect.Effect.Success<ReturnType<JobStore["Type"]["retryAll"]>> = yield* store.retryAll(
            filter,
            after.value,
            batchSize
          )
          yield* Effect.forEach(batch.queues, wakeup.notify, { discard: true })
          retried += batch.retried
          after = batch.next
        }
        return retried
      }),
    pause: (queue) => setPaused(queue, true),
    resume: (queue) => Effect.zipRight(setPaused(queue, false), wakeup.notify(queue)),
    paused: store.paused,
    claimOption: (job, options = {}) => Effect.zipRight(checkJob(job), ByHand.claim(hands, job, options))
  }
})

/** In a span, where somebody collects them: else making it would be a tenth of an enqueue. */
const spanned =
  (verb: string, attributes: Record<string, unknown>) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.flatMap(TraceContext.isCollected, (collected) =>
      collected
        ? Effect.withSpan(effect, `leasehold.${verb}`, { attributes, kind: "producer", captureStackTrace: false })
        : effect
    )

const checkJob = (job: Job.Definition): Effect.Effect<void, InvalidName | InvalidOption> =>
  Option.match(job.invalid, { onNone: () => Effect.void, onSome: (error) => Effect.fail(error) })

const isJobId = Schema.is(JobId)

/** Text that is no id names no job, and is never sent: a database may coerce it to the id of another job (scenario J10). */
const checkId = (id: unknown): Effect.Effect<JobId, JobNotFound> =>
  isJobId(id) ? Effect.succeed(id) : Effect.fail(new JobNotFound({ jobId: typeof id === "string" ? id : typeof id }))

/** What is to be told once a `withTransaction` around the caller has committed; none outside of one. */
class Uncommitted extends Context.Reference<Uncommitted>()("leasehold/queue/Uncommitted", {
  defaultValue: (): Option.Option<Array<Effect.Effect<void>>> => Option.none()
}) {}

/** How the workers of a queue are told that it has got a job to run. */
type Notify = Wakeup["Type"]["notify"]

/** Tells of what was just written when others can see it. */
const makeWhenVisible =
  (store: JobStore["Type"], wakeup: Wakeup["Type"]) =>
  (tell: (notify: Notify) => Effect.Effect<void>): Effect.Effect<void> =>
    Effect.matchEffect(store.refuseTransaction("notify"), {
      onSuccess: () => tell(wakeup.notify),
      // Nobody can see it yet; where the transaction is not ours, nobody will say when they can (ruling 14).
      onFailure: () =>
        Effect.flatMap(
          Uncommitted,
          Option.match({
            onNone: () => tell(wakeup.notifyLater),
            onSome: (announcements) => Effect.sync(() => void announcements.push(tell(wakeup.notify)))
          })
        )
    })

/** After an enqueue: counts what was created and tells the workers of queues that have got a job to run now. */
const announcer = () => {
  const counters = new Map<string, Metric.Metric.Counter<number>>()
  const counterOf = ({ queue, type }: NewJob) => {
    const key = `${queue} ${type}`
    const known = counters.get(key) ?? Metrics.bind(Metrics.enqueued, { queue, type })
    counters.set(key, known)
    return known
  }
  return (jobs: ReadonlyArray<NewJob>, enqueued: ReadonlyArray<Enqueued>, notify: Notify): Effect.Effect<void> =>
    Effect.flatMap(FiberRef.get(FiberRef.currentMetricLabels), (labels) => {
      const queues = new Set<string>()
      const created = new Map<Metric.Metric.Counter<number>, number>()
      for (const [index, job] of jobs.entries()) {
        if (enqueued[index]?.created !== true) continue
        const counter = counterOf(job)
        created.set(counter, (created.get(counter) ?? 0) + 1)
        if (Option.isNone(job.due)) queues.add(job.queue)
      }
      for (const [counter, count] of created) counter.unsafeUpdate(count, labels)
      return Effect.forEach(queues, notify, { discard: true })
    })
}

/** Looks again and again until the job has ended: after 20 ms, then ever less often, down to once a second. */
const awaitResult = <Type extends string, P, S, E>(
  store: JobStore["Type"],
  job: Job.Job<Type, P, S, E>,
  id: string,
  timeout: Duration.DurationInput | undefined
): Effect.Effect<S, ResultError> =>
  Effect.gen(function* () {
    const jobId = yield* checkId(id)
    const time = yield* Setting.duration("timeout", timeout, "30 seconds", "0 millis", "365 days")
    // By the monotonic clock: one that is set back would make the wait longer.
    const now = Effect.map(Clock.currentTimeNanos, (nanos) => Number(nanos / 1_000_000n))
    const deadline = (yield* now) + Duration.toMillis(time)
    for (let pause = 20; ; pause = Math.min(pause * 1.5, 1_000)) {
      const looked = yield* Effect.either(look(store, job, jobId))
      if (looked._tag === "Right") return looked.right
      const left = deadline - (yield* now)
      const passes = looked.left._tag === "ResultTimeout" || looked.left._tag === "StoreUnavailable"
      if (!passes || left <= 0) return yield* Effect.fail(looked.left)
      yield* Timer.sleep(Duration.millis(Math.min(pause, left)))
    }
  })

/** The result of a job, if it has ended. */
const look = <Type extends string, P, S, E>(
  store: JobStore["Type"],
  job: Job.Job<Type, P, S, E>,
  jobId: JobId
): Effect.Effect<S, ResultError> =>
  Effect.gen(function* () {
    const found = yield* store.get(jobId)
    if (Option.isNone(found)) return yield* new JobNotFound({ jobId })
    const record = found.value
    if (record.type !== job.type) {
      return yield* new PayloadInvalid({
        jobType: job.type,
        part: "output",
        reason: `job ${jobId} is a ${record.type}`
      })
    }
    const unsaid = () => ""
    switch (record.state) {
      case "succeeded":
        return yield* job.success.decode(Option.getOrNull(record.output))
      case "dead":
        return yield* new JobDead({
          jobId,
          code: Option.getOrElse(record.errorCode, unsaid),
          reason: Option.getOrElse(record.errorMessage, unsaid)
        })
      case "canceled":
        return yield* new JobCanceled({ jobId })
      default:
        return yield* new ResultTimeout({ jobId, state: record.state })
    }
  }).pipe(
    // No transaction is open here: this one was the read's own.
    Effect.catchTag("TransactionAborted", ({ reason }) =>
      Effect.fail(
        new StoreUnavailable({
          verb: "result",
          reason: reason === "ended" ? "deadlock" : reason,
          code: "transaction_aborted"
        })
      )
    )
  )
