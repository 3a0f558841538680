/**
 * Claims the jobs of one queue for one worker, in batches that fit the room there is.
 */
import { Clock, Context, Duration, Effect, Exit, FiberId, Metric, Option, Scope } from "effect"
import * as FaultLog from "../FaultLog.js"
import type { Claimed, ClaimRequest, JobStore } from "../JobStore.js"
import * as Lease from "../Lease.js"
import * as Metrics from "../Metrics.js"
import * as Vanished from "../maintenance/Vanished.js"
import type { StoreError } from "../QueueError.js"
import * as Timer from "../Timer.js"
import type { Signal } from "../Wakeup.js"
import type { Executor } from "./Executor.js"
import type { Kind } from "./Life.js"
import type { Slots } from "./Slots.js"

export interface Options {
  readonly store: JobStore["Type"]
  readonly queue: string
  readonly worker: string
  readonly lease: Duration.Duration
  readonly poll: Duration.Duration
  readonly kinds: ReadonlyMap<string, Kind>
  readonly slots: Slots
  readonly executor: Executor
  readonly signal: Signal
  readonly labels: Metrics.Labels
}

/** How a claim loop fares, for the worker's health. */
export class Progress {
  /** The loop has no room for a claim, so none is to be expected. */
  full = false
  /** The fault that the claims meet now. */
  fault: StoreError | undefined

  /** @param lastGood when a claim was last answered, or there was no room for one; wall clock, milliseconds */
  constructor(public lastGood: number) {}

  /** Milliseconds since a claim was last answered, or was not needed. */
  since(now: number): number {
    return this.full ? 0 : now - this.lastGood
  }
}

/** Jobs that one claim asks for at most: its rows are locked, and its answer is dealt with, at a stretch. */
export const mostClaimed = 500

/**
 * Claims for as long as it is not interrupted. An interruption never falls between a claim and the start of its jobs.
 *
 * - It claims again at once while the store says that there is more; else it waits for a signal, and no longer than `poll`
 *   (less up to a fifth, so that workers which started together do not poll together, scenario N2).
 * - With all slots taken it does not claim at all.
 * - A claim that fails is tried again after 100 ms, doubled up to `poll`, or 5 seconds where that is more, and spread; for half as
 *   many jobs each time.
 */
export const run = (options: Options, progress: Progress): Effect.Effect<never> => {
  const { poll, queue, signal, slots } = options
  const metrics = Metrics.bind(Metrics.claimDuration, { queue })
  const faults = FaultLog.make(`claim of queue ${queue}`)
  const idle = noLonger(awaitSignal(signal, Timer.sleepSome(poll, 0.8)), slots)

  let failures = 0
  const round = Effect.gen(function* () {
    yield* awaitRoom(slots, progress)
    yield* signal.clear
    // Where the answer to a claim of many large jobs takes longer than a statement may, one of fewer gets through.
    const limit = Math.max(1, Math.floor(Math.min(slots.room, mostClaimed) / 2 ** failures))
    const claimed = yield* Effect.uninterruptible(claimAndStart(options, limit, metrics))
    progress.lastGood = yield* Clock.currentTimeMillis
    progress.fault = undefined
    yield* faults.recovered
    if (!claimed.more) yield* idle
  })

  const backOff = Effect.suspend(() => {
    const longest = Math.max(Duration.toMillis(poll), 5_000)
    return Timer.sleepSome(Duration.millis(Math.min(longest, 100 * 2 ** Math.min(failures++, 20))), 0.5)
  })
  return round.pipe(
    Effect.matchEffect({
      onSuccess: () =>
        Effect.sync(() => {
          failures = 0
        }),
      onFailure: (error) =>
        Effect.suspend(() => {
          progress.fault = error
          return Effect.zipRight(faults.report(error), backOff)
        })
    }),
    Effect.forever
  )
}

/** Waits for a signal, and no longer than `pause` takes. A race of the two would take as long again as all else that follows a signal. */
const awaitSignal = (signal: Signal, pause: Effect.Effect<void>): Effect.Effect<void> =>
  Effect.flatMap(Effect.fork(Effect.zipRight(pause, signal.wake)), (timer) =>
    Effect.ensuring(
      signal.wait,
      Effect.sync(() => timer.unsafeInterruptAsFork(FiberId.none))
    )
  )

/** Waits until a claim pays, and gives back what was claimed ahead and finds no slot. */
const awaitRoom = (slots: Slots, progress: Progress): Effect.Effect<void> =>
  Effect.flatMap(Clock.currentTimeMillis, (now) => {
    if (progress.full) progress.lastGood = now
    slots.withdrawStale(now)
    progress.full = slots.room === 0
    return progress.full
      ? Effect.zipRight(
          noLonger(slots.roomy.await, slots),
          Effect.suspend(() => awaitRoom(slots, progress))
        )
      : Effect.void
  })

/** Waits, but where jobs wait for a slot, only until one of them may have waited too long. */
const noLonger = (wait: Effect.Effect<void>, slots: Slots): Effect.Effect<void> =>
  Effect.suspend(() => (slots.waiting === 0 ? wait : Effect.raceFirst(wait, Effect.sleep("1 second"))))

const claimAndStart = (
  { executor, kinds, labels, lease, queue, slots, store, worker }: Options,
  limit: number,
  duration: Metric.Metric.Histogram<number>
): Effect.Effect<Claimed, StoreError> =>
  Effect.gen(function* () {
    const openedAt = yield* Lease.now
    const types = Array.from(kinds.values(), ({ runnable: { job } }) => ({ type: job.type, version: job.version }))
    const request: ClaimRequest = { queue, types, worker, lease, limit }
    const claimed = yield* store.claim(request)
    const answeredAt = yield* Lease.now
    const took = answeredAt.monotonic - openedAt.monotonic
    const window = Lease.trustFrom(openedAt, lease)
    slots.noteClaim(
      claimed.jobs.length,
      claimed.jobs.reduce((sum, { payload }) => sum + (payload?.length ?? 0), 0)
    )
    if (Lease.trustLeft(window, answeredAt) > 0) {
      for (const job of claimed.jobs) {
        const kind = kinds.get(job.type)
        // The claim named the types, so the store has broken its contract.
        if (kind === undefined)
          return yield* Effect.dieMessage(`The store answered a claim with a job of type ${job.type}`)
        kind.metrics.claimed.unsafeUpdate(1, labels)
        kind.metrics.waited.unsafeUpdate(Duration.toSeconds(job.waited), labels)
        executor.start(kind, job, window, yield* Scope.make())
      }
    } else {
      yield* Effect.logWarning(
        "A claim was answered after its leases had run out; its jobs are left to the next claim"
      ).pipe(Effect.annotateLogs({ queue, claimed: claimed.jobs.length, duration_ms: took }))
    }
    // Only when the jobs are under way: nobody waits for what is told about them.
    yield* Metric.update(duration, took / 1_000)
    yield* Effect.logDebug("Claim round").pipe(
      Effect.annotateLogs({ queue, claimed: claimed.jobs.length, ended: claimed.ended.length, duration_ms: took })
    )
    yield* Vanished.report(claimed.ended)
    if (claimed.jobs.length > 0) yield* trace(queue, claimed.jobs.length, took)
    return claimed
  })

/** The span of a claim that found jobs, made afterwards: the spans of all the empty ones would drown the others. */
const trace = (queue: string, jobs: number, took: number): Effect.Effect<void> =>
  Effect.flatMap(Effect.tracer, (tracer) =>
    Effect.clockWith((clock) =>
      Effect.sync(() => {
        const ended = clock.unsafeCurrentTimeNanos()
        const started = ended - BigInt(Math.round(took * 1e6))
        const span = tracer.span("leasehold.claim", Option.none(), Context.empty(), [], started, "client")
        span.attribute("queue", queue)
        span.attribute("jobs", jobs)
        span.end(ended, Exit.void)
      })
    )
  )
