/**
 * Runs claimed jobs: `Executor.biography` reads from top to bottom as the life of one attempt.
 */
import { Clock, type Duration, Effect, FiberSet, Metric, Option, Random } from "effect"
import type * as Job from "../Job.js"
import { LeaseLost } from "../JobFailure.js"
import type { JobId, JobState } from "../JobRecord.js"
import type { ClaimedJob, JobStore } from "../JobStore.js"
import * as Lease from "../Lease.js"
import type { Held, LeaseKeeper } from "../LeaseKeeper.js"
import type * as Metrics from "../Metrics.js"
import { Canceled, type Outcome, Released } from "../Outcome.js"
import { type SettlementLost, type Settler, toSettlement } from "../Settler.js"
import * as Report from "./Report.js"
import type { Admission, Slots } from "./Slots.js"
import { Supervision } from "./Supervision.js"

/** What a worker knows about one type of job. */
export interface Kind {
  readonly runnable: Job.Runnable
  readonly metrics: Metrics.JobMetrics
}

export interface Options {
  readonly store: JobStore["Type"]
  readonly keeper: LeaseKeeper
  readonly settler: Settler
  readonly kinds: ReadonlyMap<string, Kind>
  readonly slots: Slots
  readonly fibers: FiberSet.FiberSet<void, never>
  readonly interruptGrace: Duration.Duration
  readonly unfinished: "release" | "expire"
  readonly redactor: (text: string) => string
}

/** One attempt while it is under way. */
interface Life {
  readonly job: ClaimedJob
  readonly kind: Kind
  readonly held: Held
  readonly supervision: Supervision
  /** `completeWith` has written the outcome. */
  completed: boolean
}

export class Executor {
  private readonly underWay = new Map<Supervision, JobId>()
  /** Jobs that were not settled because the worker stopped. Their leases lapse on their own. */
  private readonly given: Array<JobId> = []

  constructor(private readonly options: Options) {}

  /** Attempts that have not ended. */
  get open(): number {
    return this.underWay.size
  }

  /** The jobs that a worker which ends now leaves to the end of their leases. */
  get unfinished(): ReadonlyArray<JobId> {
    return [...this.given, ...this.underWay.values()]
  }

  /** Starts an attempt, or lines it up for a slot, in a fiber of its own. */
  start(job: ClaimedJob, window: Lease.TrustWindow): Effect.Effect<void> {
    return Effect.suspend(() => {
      const kind = this.options.kinds.get(job.type)
      // The claim named the types, so the store has broken its contract.
      if (kind === undefined) return Effect.dieMessage(`The store answered a claim with a job of type ${job.type}`)
      return Effect.asVoid(FiberSet.run(this.options.fibers, Effect.interruptible(this.attempt(job, kind, window))))
    })
  }

  /** Tells every attempt that the worker stops: those that wait are given back, handlers are interrupted. */
  get stopAll(): Effect.Effect<void> {
    return Effect.suspend(() =>
      Effect.forEach(Array.from(this.underWay.keys()), (attempt) => attempt.interrupt("shutdown"), { discard: true })
    )
  }

  private attempt(job: ClaimedJob, kind: Kind, window: Lease.TrustWindow): Effect.Effect<void> {
    const { interruptGrace, keeper } = this.options
    const supervision = new Supervision(job.lease, job.queue, kind.runnable.job.timeout, interruptGrace)
    this.underWay.set(supervision, job.lease.jobId)
    return keeper.hold(job.lease, window, supervision).pipe(
      Effect.flatMap((held) =>
        Effect.ensuring(this.biography({ job, kind, held, supervision, completed: false }), held.forget)
      ),
      Effect.ensuring(Effect.sync(() => this.underWay.delete(supervision))),
      Effect.annotateLogs(Report.annotations(job))
    )
  }

  private biography(life: Life): Effect.Effect<void> {
    const { slots } = this.options
    return Effect.gen(this, function* () {
      const admission = yield* this.admission(life)
      if (admission !== "slot") return yield* this.turnedAway(life, admission)
      const outcome = yield* this.perform(life)
      yield* Effect.ensuring(
        this.conclude(life, outcome),
        Effect.sync(() => slots.resultGone())
      )
    })
  }

  private admission({ supervision }: Life): Effect.Effect<Admission> {
    const { slots } = this.options
    return Effect.flatMap(Clock.currentTimeMillis, (now) => {
      // The usual case, without a wait: a job was claimed for a slot that is free.
      if (Option.isNone(supervision.interruption) && slots.enterAtOnce()) return Effect.succeed<Admission>("slot")
      const ticket = slots.enter(now)
      return supervision.stoppable(ticket.wait, (reason) => Effect.sync(() => slots.withdraw(ticket, reason)))
    })
  }

  /** The handler never ran, so its job goes back as it came. */
  private turnedAway(life: Life, admission: Exclude<Admission, "slot">): Effect.Effect<void> {
    if (admission === "lost") return this.lost(life, "waiting for a slot")
    return this.write(life, admission === "canceled" ? Canceled() : Released(), 0)
  }

  /** From the slot to the outcome; none where nothing may be written. */
  private perform(life: Life): Effect.Effect<readonly [outcome: Option.Option<Outcome>, ran: number]> {
    const { slots, store } = this.options
    const { job, kind, supervision } = life
    const supervise: Job.Supervise = (handler) => supervision.supervise(Report.spanOf(job, handler))
    return Effect.gen(this, function* () {
      const started = yield* Clock.currentTimeMillis
      yield* slots.countSlot(1)
      const outcome = yield* kind.runnable.perform(job, this.leaseOf(life), supervise, store.detached).pipe(
        Effect.onExit(() =>
          Effect.flatMap(Clock.currentTimeMillis, (now) => {
            slots.handlerEnded(now - started)
            return slots.countSlot(-1)
          })
        )
      )
      const ran = (yield* Clock.currentTimeMillis) - started
      yield* Metric.update(kind.metrics.ran, ran / 1_000)
      if (Option.contains(supervision.interruption, "timeout")) yield* Metric.update(kind.metrics.timeouts, 1)
      return [outcome, ran] as const
    })
  }

  private leaseOf(life: Life): Job.AttemptLease {
    const { held, job, supervision } = life
    const { lease } = job
    return {
      jobId: lease.jobId,
      token: lease.token,
      attempt: lease.attempt,
      worker: lease.worker,
      jobType: job.type,
      queue: job.queue,
      attemptsLeft: job.attemptsLeft,
      lost: supervision.lostLease,
      renew: held.renew,
      completeEncoded: (effect) =>
        Effect.uninterruptibleMask((restore) =>
          Effect.flatMap(Lease.now, (at) => {
            const reason = held.distrust(at)
            if (reason !== undefined) {
              return Effect.fail(
                new LeaseLost({ jobId: lease.jobId, token: lease.token, during: "completeWith", reason })
              )
            }
            return Effect.tap(held.whileLocked(restore(this.options.store.completeWith(lease, effect))), () =>
              Effect.sync(() => {
                life.completed = true
              })
            )
          })
        )
    }
  }

  /** Writes what the attempt came to, or leaves its lease alone where nothing may be written. */
  private conclude(life: Life, [outcome, ran]: readonly [Option.Option<Outcome>, number]): Effect.Effect<void> {
    const { supervision } = life
    if (life.completed) return Report.ended(life, "completed", ran)
    if (Option.isNone(outcome)) {
      // A handler that heard of its cancel through `lease.lost` ended by it; the lease still stands.
      const canceled = Option.contains(supervision.interruption, "canceled")
      return canceled ? this.write(life, Canceled(), ran) : this.lost(life, "the handler")
    }
    const stopped = Option.contains(supervision.interruption, "shutdown")
    // The fiber of a stuck handler has not ended, so its job must not run elsewhere before the lease has lapsed (ruling 10).
    if (stopped && supervision.stuck) return this.leave(life, ran)
    if (outcome.value._tag === "Released" && this.options.unfinished === "expire") return this.leave(life, ran)
    return this.write(life, outcome.value, ran)
  }

  private write(life: Life, outcome: Outcome, ran: number): Effect.Effect<void> {
    const { redactor, settler } = this.options
    const { held, job, kind } = life
    return Effect.flatMap(Random.next, (random) => {
      const settlement = toSettlement(outcome, kind.runnable.job.retry, job.lease.attempt, random, redactor)
      return Effect.matchEffect(settler.settle(held, settlement, Report.verbs[outcome._tag]), {
        onFailure: (error) => this.unwritten(life, error),
        onSuccess: (state) => Report.ended(life, endingOf(outcome, state), ran, settlement)
      })
    })
  }

  private lost(life: Life, during: string): Effect.Effect<void> {
    const { jobId, token } = life.job.lease
    // A handler that fails with LeaseLost by itself knows of a loss that nobody else has noticed yet.
    const reason = life.supervision.lossReason ?? "superseded"
    return Report.unwritten(life, new LeaseLost({ jobId, token, during, reason }))
  }

  private unwritten(life: Life, error: SettlementLost): Effect.Effect<void> {
    return Report.unwritten(life, error)
  }

  private leave(life: Life, ran: number): Effect.Effect<void> {
    return Effect.suspend(() => {
      this.given.push(life.job.lease.jobId)
      return Report.ended(life, "unfinished", ran)
    })
  }
}

const endingOf = (outcome: Outcome, state: JobState): Metrics.Ending => {
  if (state === "canceled") return "canceled"
  switch (outcome._tag) {
    case "Completed":
      return "completed"
    case "Retry":
      return state === "dead" ? "dead" : "retry"
    case "Dead":
      return "dead"
    case "Snooze":
      return "snoozed"
    case "Canceled":
      return "canceled"
    case "Released":
      return "released"
  }
}
