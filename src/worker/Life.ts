/**
 * One attempt, from the claim to its durable end.
 *
 * Only the handler is an effect with a fiber. What happens around it, to every job, are plain calls that return at once: `begin`
 * when there is a slot, `handlerEnded`, and the settler's answer. At thousands of jobs in a second each effect counts.
 */
import {
  Cause,
  type Clock,
  type Duration,
  Effect,
  Either,
  Exit,
  type Fiber,
  FiberId,
  LogLevel,
  Option,
  Random,
  Scope
} from "effect"
import type * as Job from "../Job.js"
import { LeaseLost } from "../JobFailure.js"
import type { JobState } from "../JobRecord.js"
import type { ClaimedJob, JobStore, Settlement } from "../JobStore.js"
import type * as Lease from "../Lease.js"
import type { Held, LeaseKeeper } from "../LeaseKeeper.js"
import * as Metrics from "../Metrics.js"
import { Canceled, fromExit, type Interruption, type Outcome, Released } from "../Outcome.js"
import type { Place } from "../Roster.js"
import { type SettlementLost, type Settler, toSettlement } from "../Settler.js"
import type { AttemptRuntime } from "./AttemptRuntime.js"
import { HandlersLease } from "./HandlersLease.js"
import * as Report from "./Report.js"
import type { Slots, Ticket, TurnedAway } from "./Slots.js"
import { type Supervised, Supervision } from "./Supervision.js"

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
  /** An attempt is over. */
  readonly ended: (life: Life) => void
  /** An attempt died of a mistake in the library. */
  readonly died: (cause: Cause.Cause<never>) => void
}

/** One claimed job, and what its attempt runs in. */
export class Claim {
  /**
   * @param window opened when the claim was sent
   * @param scope closed when the handler has ended
   */
  constructor(
    readonly job: ClaimedJob,
    readonly kind: Kind,
    readonly runtime: AttemptRuntime,
    readonly window: Lease.TrustWindow,
    readonly scope: Scope.CloseableScope
  ) {}
}

export class Life implements Ticket, Supervised {
  /** When it began to wait for a slot, in milliseconds. */
  readonly since: number
  inLine: Place<Ticket> | undefined
  /** Where the executor counts it. */
  underWay: Place<Life> | undefined
  readonly job: ClaimedJob
  readonly metrics: Metrics.JobMetrics
  private readonly supervision: Supervision
  private readonly held: Held
  private annotations: Report.Annotations | undefined
  /** `completeWith` has written the outcome. */
  private completed = false
  /** The worker stops, and its job is left to the end of the lease. */
  left = false
  private started = 0
  private settling = false
  private over = false

  constructor(
    private readonly around: Surroundings,
    private readonly claim: Claim
  ) {
    const { job, kind, window } = claim
    this.job = job
    this.metrics = kind.metrics
    this.since = around.clock.unsafeCurrentTimeMillis()
    this.supervision = new Supervision(this)
    this.held = around.keeper.hold(job.lease, window, this.supervision)
  }

  get labels(): Metrics.Labels {
    return this.around.labels
  }

  get lease(): Lease.Lease {
    return this.job.lease
  }

  get timeout(): Option.Option<Duration.Duration> {
    return this.claim.kind.runnable.job.timeout
  }

  get grace(): Duration.Duration {
    return this.around.interruptGrace
  }

  /** Ends the attempt for that reason, where it has not ended; returns at once. */
  interrupt(reason: Interruption): void {
    this.guarded(() => this.supervision.interrupt(reason))
  }

  /** It has its slot. */
  begin(): void {
    this.guarded(() => {
      const { around, job, supervision } = this
      const { kind, runtime, scope } = this.claim
      this.started = around.clock.unsafeCurrentTimeMillis()
      around.slots.countSlot(1)
      const lease = new HandlersLease(job, this.held, supervision, around.store, () => {
        this.completed = true
      })
      kind.runnable.perform(job, lease, (handler, judge) => {
        const scoped = Effect.onExit(handler, (exit) => Scope.close(scope, exit))
        const seen = around.traced ? Report.inSpan(job, scoped) : scoped
        supervision.supervise(
          // As a value: a fiber that fails is logged by Effect, with all that the failure holds (law 8).
          () => this.fork(Effect.exit(Effect.interruptible(seen))),
          (exit) => this.guarded(() => this.handlerEnded(judge(exit, supervision.interruption, runtime.outputLimit)))
        )
      })
    })
  }

  /** It gets no slot. The handler never ran, so the job goes back as it came. */
  turnAway(reason: TurnedAway): void {
    this.guarded(() =>
      reason === "lost"
        ? this.lost("waiting for a slot")
        : this.write(reason === "canceled" ? Canceled() : Released(), 0)
    )
  }

  /** It takes itself out of the line. */
  withdraw(reason: Interruption): void {
    this.around.slots.withdraw(this, reason)
  }

  /** Starts an effect in the attempt's surroundings, where it can not be interrupted. */
  fork<A, E>(effect: Effect.Effect<A, E, Scope.Scope>): Fiber.RuntimeFiber<A, E> {
    const { runtime, scope } = this.claim
    this.annotations ??= runtime.annotate(this.job)
    return runtime.fork(effect, this.annotations, scope)
  }

  /** Logs a line, which is only made where somebody reads it: at this place it would be the dearest part of a short job. */
  log(level: LogLevel.LogLevel, line: () => Effect.Effect<void>): void {
    if (this.claim.runtime.logs(level)) this.fork(line())
  }

  private handlerEnded(outcome: Option.Option<Outcome>): void {
    if (this.supervision.stuck) {
      this.countStuck(-1)
      this.log(LogLevel.Info, () => Effect.logInfo("A handler that was given up has ended"))
    } else this.conclude(outcome, this.leaveSlot())
  }

  /** Goes on without a handler that ignores its interruption. */
  giveUp(): void {
    this.guarded(() => this.goOnWithout())
  }

  private goOnWithout(): void {
    const ran = this.leaveSlot()
    this.countStuck(1)
    this.log(LogLevel.Warning, () => Effect.logWarning("The handler ignores its interruption and was given up"))
    // An interruption is judged by its reason alone.
    const outcome = fromExit(Exit.interrupt(FiberId.none), this.supervision.interruption, {
      success: (never: never) => never,
      failure: (never: never) => never
    })
    this.conclude(outcome, ran)
  }

  /** Answers how long the handler ran, in milliseconds. */
  private leaveSlot(): number {
    const { clock, labels, slots } = this.around
    const { metrics } = this
    const ran = clock.unsafeCurrentTimeMillis() - this.started
    this.settling = true
    slots.countSlot(-1)
    slots.handlerEnded(ran)
    metrics.ran.unsafeUpdate(ran / 1_000, labels)
    if (Option.contains(this.supervision.interruption, "timeout")) metrics.timeouts.unsafeUpdate(1, labels)
    return ran
  }

  private countStuck(change: 1 | -1): void {
    Metrics.bind(Metrics.stuckHandlers, { queue: this.job.queue }).unsafeModify(change, this.around.labels)
  }

  /** Writes what the attempt came to, or leaves its lease alone where nothing may be written. */
  private conclude(outcome: Option.Option<Outcome>, ran: number): void {
    const { interruption } = this.supervision
    if (this.completed) this.end("completed", ran)
    else if (Option.isSome(outcome)) this.concludeBy(outcome.value, ran)
    // A handler that heard of its cancel through `lease.lost` ended by it; the lease still stands.
    else if (Option.contains(interruption, "canceled")) this.write(Canceled(), ran)
    else this.lost("the handler")
  }

  private concludeBy(outcome: Outcome, ran: number): void {
    const { interruption, stuck } = this.supervision
    const unfinished =
      // The fiber of a stuck handler has not ended, so its job must not run elsewhere before the lease has lapsed (ruling 10).
      (stuck && Option.contains(interruption, "shutdown"))
      || (outcome._tag === "Released" && this.around.unfinished === "expire")
    if (unfinished) {
      this.left = true
      this.end("unfinished", ran)
    } else this.write(outcome, ran)
  }

  private write(outcome: Outcome, ran: number): void {
    // Only a retry has a jitter.
    if (outcome._tag === "Retry") {
      this.fork(Effect.map(Random.next, (random) => this.guarded(() => this.settle(outcome, ran, random))))
    } else this.settle(outcome, ran, 0)
  }

  private settle(outcome: Outcome, ran: number, random: number): void {
    const { redactor, settler } = this.around
    const { retry } = this.claim.kind.runnable.job
    const settlement = toSettlement(outcome, retry, this.job.lease.attempt, random, redactor)
    settler.send(this.held, settlement, Report.verbs[outcome._tag], (exit) =>
      this.guarded(() => {
        if (Exit.isSuccess(exit)) this.end(endingOf(outcome, exit.value), ran, settlement)
        else this.notSettled(exit.cause)
      })
    )
  }

  private notSettled(cause: Cause.Cause<SettlementLost>): void {
    const error = Cause.failureOrCause(cause)
    if (Either.isLeft(error)) this.unwritten(error.left)
    else {
      // Interrupted: the settler is gone with the worker.
      if (!Cause.isInterruptedOnly(error.right)) this.around.died(error.right)
      this.letGo()
    }
  }

  private lost(during: string): void {
    const { jobId, token } = this.job.lease
    // A handler that fails with LeaseLost by itself knows of a loss that nobody else has noticed yet.
    const reason = this.supervision.lossReason ?? "superseded"
    this.unwritten(new LeaseLost({ jobId, token, during, reason }))
  }

  private unwritten(error: SettlementLost): void {
    Report.unwritten(this, error)
    this.letGo()
  }

  private end(ending: Metrics.Ending, ran: number, settlement?: Settlement): void {
    Report.ended(this, ending, ran, settlement)
    this.letGo()
  }

  /** It is over, in whatever way. */
  private letGo(): void {
    if (this.over) return
    this.over = true
    this.held.forget()
    if (this.settling) this.around.slots.resultGone(this.around.clock.unsafeCurrentTimeMillis() - this.started)
    this.around.ended(this)
  }

  /** A mistake of the library ends the worker, which says so, instead of leaving a job that nobody ends. */
  private guarded(step: () => void): void {
    try {
      step()
    } catch (mistake) {
      this.around.died(Cause.die(mistake))
    }
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
