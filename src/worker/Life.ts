/**
 * One attempt, from the claim to its durable end: `Life.run` reads from top to bottom.
 *
 * An attempt that runs is one fiber, which only its handler's part can interrupt; one that waits for a slot is none. What
 * happens to every job is written with few effects: at thousands of jobs in a second, each of them counts.
 */
import { type Clock, type Duration, Effect, Exit, FiberId, Metric, Option, Random } from "effect"
import type * as Job from "../Job.js"
import { LeaseLost } from "../JobFailure.js"
import type { JobState } from "../JobRecord.js"
import type { ClaimedJob, JobStore } from "../JobStore.js"
import * as Lease from "../Lease.js"
import type { Held, LeaseKeeper } from "../LeaseKeeper.js"
import * as Metrics from "../Metrics.js"
import { Canceled, fromExit, type Interruption, type Outcome, Released } from "../Outcome.js"
import { type Settler, toSettlement } from "../Settler.js"
import * as Report from "./Report.js"
import type { Slots, Ticket, TurnedAway } from "./Slots.js"
import { Supervision } from "./Supervision.js"

/** What a worker knows about one type of job. */
export interface Kind {
  readonly runnable: Job.Runnable
  readonly metrics: Metrics.JobMetrics
}

/** What the attempts of one queue have in common. */
export interface Surroundings {
  readonly store: JobStore["Type"]
  readonly keeper: LeaseKeeper
  readonly settler: Settler
  readonly slots: Slots
  readonly clock: Clock.Clock
  /** Labels that the program has put around the worker. */
  readonly labels: Metrics.Labels
  /** Whether anybody collects spans. */
  readonly traced: boolean
  readonly interruptGrace: Duration.Duration
  readonly unfinished: "release" | "expire"
  readonly redactor: (text: string) => string
  /** Runs an effect of an attempt in a fiber of its own, which can not be interrupted, and calls `Life.end` when it is over. */
  readonly fork: (life: Life, effect: Effect.Effect<void>) => void
  readonly ended: (life: Life) => void
}

export class Life implements Ticket {
  /** When it began to wait for a slot, in milliseconds. */
  readonly since: number
  private readonly supervision: Supervision
  private readonly held: Held
  /** `completeWith` has written the outcome. */
  private completed = false
  /** The worker stops, and its job is left to the end of the lease. */
  left = false
  private started = 0
  private settling = false
  private over = false

  constructor(
    private readonly around: Surroundings,
    readonly job: ClaimedJob,
    readonly kind: Kind,
    window: Lease.TrustWindow
  ) {
    this.since = around.clock.unsafeCurrentTimeMillis()
    this.supervision = new Supervision({
      lease: job.lease,
      timeout: kind.runnable.job.timeout,
      grace: around.interruptGrace,
      turnAway: (reason) => around.slots.withdraw(this, reason),
      giveUp: Effect.suspend(() => this.giveUp)
    })
    this.held = around.keeper.hold(job.lease, window, this.supervision)
  }

  /** Ends the attempt for that reason, where it has not ended; returns at once. */
  interrupt(reason: Interruption): Effect.Effect<void> {
    return this.supervision.interrupt(reason)
  }

  /** It has its slot. */
  begin(): void {
    this.around.fork(this, this.run)
  }

  /** It gets no slot. The handler never ran, so the job goes back as it came. */
  turnAway(reason: TurnedAway): void {
    this.around.fork(
      this,
      reason === "lost"
        ? this.lost("waiting for a slot")
        : this.write(reason === "canceled" ? Canceled() : Released(), 0)
    )
  }

  /** It is over, in whatever way. */
  end(): void {
    if (this.over) return
    this.over = true
    this.held.forget()
    if (this.settling) this.around.slots.resultGone()
    this.around.ended(this)
  }

  private get run(): Effect.Effect<void> {
    return Effect.flatMap(this.perform, ({ outcome, ran }) =>
      this.supervision.stuck
        ? this.countStuck(-1, Effect.logInfo("A handler that was given up has ended"))
        : this.conclude(outcome, ran)
    )
  }

  /** From the slot to the outcome; none where nothing may be written. */
  private get perform(): Effect.Effect<{ readonly outcome: Option.Option<Outcome>; readonly ran: number }> {
    return Effect.suspend(() => {
      const { clock, slots } = this.around
      const { job, kind, supervision } = this
      this.started = clock.unsafeCurrentTimeMillis()
      const supervise: Job.Supervise = (handler) =>
        supervision.supervise(this.around.traced ? Report.inSpan(job, handler) : handler)
      slots.countSlot(1)
      return Effect.map(kind.runnable.perform(job, this.lease, supervise), (outcome) => {
        const ran = clock.unsafeCurrentTimeMillis() - this.started
        if (!supervision.stuck) this.handlerEnded(ran)
        return { outcome, ran }
      })
    })
  }

  private handlerEnded(ran: number): void {
    const { labels, slots } = this.around
    const { metrics } = this.kind
    this.settling = true
    slots.countSlot(-1)
    slots.handlerEnded(ran)
    metrics.ran.unsafeUpdate(ran / 1_000, labels)
    if (Option.contains(this.supervision.interruption, "timeout")) metrics.timeouts.unsafeUpdate(1, labels)
  }

  /** Goes on without a handler that ignores its interruption, in another fiber. */
  private get giveUp(): Effect.Effect<void> {
    const { clock } = this.around
    return Effect.suspend(() => {
      const ran = clock.unsafeCurrentTimeMillis() - this.started
      this.handlerEnded(ran)
      // An interruption is judged by its reason alone.
      const outcome = fromExit(Exit.interrupt(FiberId.none), this.supervision.interruption, {
        success: (never: never) => never,
        failure: (never: never) => never
      })
      const warning = Effect.logWarning("The handler ignores its interruption and was given up")
      const concluded = Effect.ensuring(
        this.conclude(outcome, ran),
        Effect.sync(() => this.end())
      )
      return Effect.zipRight(this.countStuck(1, warning), concluded)
    }).pipe(Effect.annotateLogs(Report.annotations(this.job)))
  }

  private countStuck(change: 1 | -1, said: Effect.Effect<void>): Effect.Effect<void> {
    return Effect.zipRight(Metric.modify(Metrics.bind(Metrics.stuckHandlers, { queue: this.job.queue }), change), said)
  }

  /** What the handler gets beside the payload. */
  private get lease(): Job.AttemptLease {
    const { held, job, supervision } = this
    const { attempt, jobId, token, worker } = job.lease
    return {
      jobId,
      token,
      attempt,
      worker,
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
              return Effect.fail(new LeaseLost({ jobId, token, during: "completeWith", reason }))
            }
            return Effect.tap(held.whileLocked(restore(this.around.store.completeWith(job.lease, effect))), () =>
              Effect.sync(() => {
                this.completed = true
              })
            )
          })
        )
    }
  }

  /** Writes what the attempt came to, or leaves its lease alone where nothing may be written. */
  private conclude(outcome: Option.Option<Outcome>, ran: number): Effect.Effect<void> {
    const { supervision } = this
    if (this.completed) return Report.ended(this, "completed", ran)
    if (Option.isNone(outcome)) {
      // A handler that heard of its cancel through `lease.lost` ended by it; the lease still stands.
      const canceled = Option.contains(supervision.interruption, "canceled")
      return canceled ? this.write(Canceled(), ran) : this.lost("the handler")
    }
    const stopped = Option.contains(supervision.interruption, "shutdown")
    // The fiber of a stuck handler has not ended, so its job must not run elsewhere before the lease has lapsed (ruling 10).
    if (stopped && supervision.stuck) return this.leave(ran)
    if (outcome.value._tag === "Released" && this.around.unfinished === "expire") return this.leave(ran)
    return this.write(outcome.value, ran)
  }

  private write(outcome: Outcome, ran: number): Effect.Effect<void> {
    // Only a retry has a jitter.
    return outcome._tag === "Retry"
      ? Effect.flatMap(Random.next, (random) => this.settle(outcome, ran, random))
      : this.settle(outcome, ran, 0)
  }

  private settle(outcome: Outcome, ran: number, random: number): Effect.Effect<void> {
    const { redactor, settler } = this.around
    const { retry } = this.kind.runnable.job
    const settlement = toSettlement(outcome, retry, this.job.lease.attempt, random, redactor)
    return Effect.matchEffect(settler.settle(this.held, settlement, Report.verbs[outcome._tag]), {
      onFailure: (error) => Report.unwritten(this, error),
      onSuccess: (state) => Report.ended(this, endingOf(outcome, state), ran, settlement)
    })
  }

  private lost(during: string): Effect.Effect<void> {
    const { jobId, token } = this.job.lease
    // A handler that fails with LeaseLost by itself knows of a loss that nobody else has noticed yet.
    const reason = this.supervision.lossReason ?? "superseded"
    return Report.unwritten(this, new LeaseLost({ jobId, token, during, reason }))
  }

  private leave(ran: number): Effect.Effect<void> {
    return Effect.suspend(() => {
      this.left = true
      return Report.ended(this, "unfinished", ran)
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
