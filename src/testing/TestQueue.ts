/**
 * What a test does with a queue: run what is due, look at what was enqueued, move the time, take a lease away.
 *
 * ```ts
 * it.effect("exports an order", () =>
 *   Effect.gen(function* () {
 *     yield* placeOrder
 *     const [run] = yield* TestQueue.drain([ExportOrder])
 *     expect(run).toMatchObject({ outcome: "completed", output: { url: "memory:1" } })
 *   }).pipe(Effect.provide(ExportOrderLive), Effect.provide(MemoryQueue.layer))
 * )
 * ```
 *
 * @module
 */
import { Clock, type Context, Data, DateTime, Duration, Effect, HashMap, Option, TestClock } from "effect"
import type * as Job from "../Job.js"
import { isEnded, type JobId, type JobRecord, type JobState } from "../JobRecord.js"
import type { JobStore } from "../JobStore.js"
import { MemoryTable } from "../memory/MemoryJobStore.js"
import * as Table from "../memory/Table.js"
import * as Verbs from "../memory/Verbs.js"
import * as Queue from "../Queue.js"
import {
  type InvalidName,
  type InvalidOption,
  JobNotFound,
  type PayloadInvalid,
  type StoreError,
  type TransactionAborted
} from "../QueueError.js"
import * as Attempts from "./Attempts.js"
import * as Snapshots from "./Snapshot.js"

export type { Snapshot, SnapshotJob, SnapshotOptions } from "./Snapshot.js"

/** A job whose results can be read: any that `Job.make` made. */
export type Drainable = Job.Any & {
  readonly success: {
    /** The value that a stored output stands for. */
    readonly decode: (text: string | null) => Effect.Effect<unknown, PayloadInvalid>
  }
}

/** One attempt that {@link drain} ran. `lost`: nothing was written for it, since its lease was lost. */
export type Run<Type extends string = string, Success = unknown> = {
  readonly type: Type
  readonly id: JobId
  /** 1 for the first attempt of a job. */
  readonly attempt: number
} & (
  | { readonly outcome: "completed"; readonly output: Success }
  | { readonly outcome: "retry" | "dead"; readonly errorCode: string; readonly errorMessage: string }
  | { readonly outcome: "snoozed" | "canceled" | "released" | "lost" }
)

/** The runs of a job. */
export type RunOf<J> = J extends Job.Job<infer Type, infer _P, infer Success, infer _E> ? Run<Type, Success> : never

/** How long to drain. */
export interface DrainOptions {
  /**
   * Also runs what becomes due within this time from now, in order: `TestClock` is moved to each due time. So a test sees a
   * job through all of its retries. Default: only what is due now.
   */
  readonly within?: Duration.DurationInput
  /** How many attempts to run before it is an endless loop. Default 1,000. */
  readonly limit?: number
}

/** There were still due jobs after `limit` attempts: something enqueues, snoozes or retries itself without end. */
export class DrainEndless extends Data.TaggedError("DrainEndless")<{ readonly limit: number }> {
  override get message() {
    return `After ${this.limit} attempts there are still due jobs: something goes round in circles, or the limit is too low.`
  }
}

/** What a drain can fail with. */
export type DrainError = DrainEndless | PayloadInvalid | InvalidName | InvalidOption | StoreError | TransactionAborted

/** What all leases of a drain last. */
const leaseLength = Duration.seconds(30)

/**
 * Runs all due jobs of these types with their handlers, and what these enqueue, until none is due; answers each attempt, in the
 * order in which they ran. One at a time: by queue in the order of `jobs`, then priority, due time and id.
 *
 * Each attempt lives as in a worker: its timeout, retry policy, lease and fences are the real ones. A handler that sleeps waits
 * for `TestClock`: fork the drain, adjust the clock, join it.
 *
 * - `DrainEndless`: there is no end to it.
 * - `PayloadInvalid`: a stored output does not decode.
 * - `InvalidName`, `InvalidOption`: a job's definition is out of range.
 * - The errors of a store: none in memory.
 */
export const drain = <const Jobs extends ReadonlyArray<Drainable>>(
  jobs: Jobs,
  options: DrainOptions = {}
): Effect.Effect<
  ReadonlyArray<RunOf<Jobs[number]>>,
  DrainError,
  Job.HandlersOf<Jobs[number]> | JobStore | Queue.Queue
> =>
  Effect.gen(function* () {
    const handlers: Context.Context<never> = yield* Effect.context<Job.HandlersOf<Jobs[number]>>()
    const { limit = 1_000, within = 0 } = options
    const until = (yield* Clock.currentTimeMillis) + Duration.toMillis(within)
    const attempts = yield* Attempts.make({ jobs, handlers, worker: "test/drain", lease: leaseLength })
    const runs: Array<Run> = []
    while (true) {
      const ended = yield* attempts.next
      if (Option.isSome(ended)) {
        if (runs.length === limit) return yield* new DrainEndless({ limit })
        const job = jobs.find(({ type }) => type === ended.value.type)
        if (job !== undefined) runs.push(yield* runOf(job, ended.value))
        continue
      }
      const due = Duration.toMillis(within) > 0 ? yield* nextDue(jobs, until) : Option.none()
      // Each run is of the job that it was decoded by.
      if (Option.isNone(due)) return runs as ReadonlyArray<Run> as ReadonlyArray<RunOf<Jobs[number]>>
      yield* moveTo(due.value)
    }
  }).pipe(Effect.scoped)

const runOf = (job: Drainable, { attempt, id, record, token }: Attempts.Ended): Effect.Effect<Run, PayloadInvalid> =>
  Effect.gen(function* () {
    const base = { type: job.type, id, attempt }
    const entry = Option.flatMap(record, ({ attempts }) =>
      Option.fromNullable(attempts.find((one) => one.token === token))
    )
    if (Option.isNone(record) || Option.isNone(entry)) return { ...base, outcome: "lost" }
    const outcome = Option.getOrUndefined(entry.value.outcome)
    const says = (text: Option.Option<string>) => Option.getOrElse(text, () => "")
    switch (outcome) {
      case "completed":
        return { ...base, outcome, output: yield* job.success.decode(Option.getOrNull(record.value.output)) }
      case "retry":
      case "dead": {
        const { errorCode, errorMessage } = entry.value
        return { ...base, outcome, errorCode: says(errorCode), errorMessage: says(errorMessage) }
      }
      case "reaped": {
        // The claim has found it with no attempts left, or to be canceled, after its worker had vanished.
        const { errorCode, errorMessage, state } = record.value
        return state === "dead"
          ? { ...base, outcome: "dead", errorCode: says(errorCode), errorMessage: says(errorMessage) }
          : { ...base, outcome: "canceled" }
      }
      case "snoozed":
      case "canceled":
      case "released":
        return { ...base, outcome }
      default:
        return { ...base, outcome: "lost" }
    }
  })

/** The first due time of jobs that wait, no later than `until`. */
const nextDue = (jobs: ReadonlyArray<Job.Any>, until: number) =>
  Effect.gen(function* () {
    let first: DateTime.Utc | undefined
    let after = ""
    while (true) {
      const page: ReadonlyArray<JobRecord> = yield* Queue.list({ state: "pending", after, limit: 1_000 })
      for (const { dueAt, type } of page) {
        if (!jobs.some((job) => job.type === type) || Option.isNone(dueAt)) continue
        if (first === undefined || DateTime.lessThan(dueAt.value, first)) first = dueAt.value
      }
      const last = page.at(-1)
      if (last === undefined || page.length < 1_000) break
      after = last.id
    }
    return Option.filter(Option.fromNullable(first), ({ epochMillis }) => epochMillis <= until)
  })

const moveTo = (time: DateTime.Utc): Effect.Effect<Duration.Duration> =>
  Effect.clockWith((clock) =>
    Effect.gen(function* () {
      // A retry's jitter has fractions of a millisecond, of which TestClock can not always tell the nanoseconds.
      const whole = Math.ceil(time.epochMillis)
      const left = whole - clock.unsafeCurrentTimeMillis()
      if (left <= 0) return Duration.zero
      if (!("setTime" in clock)) {
        return yield* Effect.dieMessage(
          "TestQueue moves TestClock, and this program runs on another clock: use it.effect"
        )
      }
      yield* TestClock.setTime(whole)
      return Duration.millis(left)
    })
  )

/** The job has ended, so no time is due for it. */
export class NeverDue extends Data.TaggedError("NeverDue")<{ readonly jobId: JobId; readonly state: JobState }> {
  override get message() {
    return `Job ${this.jobId} is ${this.state}: no time is due for it.`
  }
}

/**
 * Moves `TestClock` to the time at which a job can be claimed: to its due time where it waits, to the end of its lease where it
 * runs. Answers by how much; zero where it is due already. Fails with `NeverDue` where it has ended.
 */
export const advance = (id: string): Effect.Effect<Duration.Duration, NeverDue | Queue.FindError, Queue.Queue> =>
  Effect.flatMap(Queue.get(id), ({ dueAt, id: jobId, state }) =>
    isEnded(state) || Option.isNone(dueAt) ? new NeverDue({ jobId, state }) : moveTo(dueAt.value)
  )

/** One job as it was asked for. */
export interface Enqueued<Payload> {
  readonly id: JobId
  readonly payload: Payload
  readonly queue: string
  readonly priority: number
  /** From the enqueue to its first due time; zero for one that was due at once. */
  readonly delay: Duration.Duration
  readonly idempotency: Option.Option<{ readonly scope: string; readonly key: string }>
  /** None: unlimited. */
  readonly maxAttempts: Option.Option<number>
  readonly state: JobState
}

/**
 * The jobs of this type in the memory queue, in the order of their enqueue, with their payloads decoded. Replays of a key add
 * none. Fails with `PayloadInvalid` where a payload was stored that does not fit the schema.
 */
export const enqueued = <Type extends string, P, S, E>(
  job: Job.Job<Type, P, S, E>
): Effect.Effect<ReadonlyArray<Enqueued<P>>, PayloadInvalid, MemoryTable> =>
  Effect.gen(function* () {
    const { read } = yield* MemoryTable
    const rows = Table.above(yield* read, "").filter(({ record }) => record.type === job.type)
    return yield* Effect.forEach(rows, ({ idempotency, record }) =>
      Effect.map(
        job.payload.decodeVersion(record.payload, record.payloadVersion),
        (payload): Enqueued<P> => ({
          id: record.id,
          payload,
          queue: record.queue,
          priority: record.priority,
          delay: Duration.millis(Math.max(0, DateTime.distance(record.enqueuedAt, record.firstDueAt))),
          idempotency: Option.map(idempotency, ({ key, scope }) => ({ scope, key })),
          maxAttempts: record.maxAttempts,
          state: record.state
        })
      )
    )
  })

/**
 * All jobs of the memory queue as they stand now, as a plain value for the matchers of `leasehold/testing/vitest`:
 * `expect(yield* TestQueue.snapshot()).toHaveEnqueued(ExportOrder, { orderId: 7 })`.
 */
export const snapshot: (options?: Snapshots.SnapshotOptions) => Effect.Effect<Snapshots.Snapshot, never, MemoryTable> =
  Snapshots.take

/** The job is not held by anybody, so there is no lease to lose. */
export class NotRunning extends Data.TaggedError("NotRunning")<{ readonly jobId: JobId; readonly state: JobState }> {
  override get message() {
    return `Job ${this.jobId} is ${this.state}: nobody holds a lease on it.`
  }
}

/**
 * Takes the lease of a running job away at this moment, as if it had ended and another worker, `test/usurper`, had taken the
 * job over for 30 seconds. Its holder can write nothing from now on; it hears of it at its next renewal, `completeWith` or
 * settlement, whichever comes first.
 *
 * Call it from a fake that the handler calls, or beside a drain in a fiber, at the moment that the test is about. Only for the
 * memory queue. Fails with `NotRunning` or `JobNotFound`.
 */
export const loseLease = (id: JobId): Effect.Effect<void, NotRunning | JobNotFound, MemoryTable> =>
  Effect.gen(function* () {
    const { change } = yield* MemoryTable
    const before = yield* change((table, now): Verbs.Change<Option.Option<JobRecord>> => {
      const found = Option.flatMap(HashMap.get(table.rows, id), (row) =>
        row.record.state === "running" ? Option.some(row) : Option.none()
      )
      if (Option.isNone(found)) return [Table.find(table, id), table]
      const { record } = found.value
      return [Option.some(record), Verbs.takeOver(table, record, "test/usurper", leaseLength, now)]
    })
    if (Option.isNone(before)) return yield* new JobNotFound({ jobId: id })
    const { state } = before.value
    if (state !== "running") return yield* new NotRunning({ jobId: id, state })
  })
