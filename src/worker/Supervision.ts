/**
 * Runs the handler of one attempt in a fiber of its own, and ends it for whatever reason comes first.
 */
import { Deferred, type Duration, Effect, Exit, Fiber, FiberId, Metric, Option } from "effect"
import { LeaseLost } from "../JobFailure.js"
import type { Lease } from "../Lease.js"
import type { Holder, LossReason } from "../LeaseKeeper.js"
import * as Metrics from "../Metrics.js"
import type { Interruption } from "../Outcome.js"
import * as Timer from "../Timer.js"

/**
 * One attempt's supervision.
 *
 * A handler that is interrupted has `grace` to end. One that ignores it for longer is *stuck*: the attempt goes on without
 * it, by the reason of the interruption. Its slot is given back, so that stuck handlers never starve the other jobs; what
 * it answers later is dropped; the gauge `leasehold_stuck_handlers` counts it until it ends.
 */
export class Supervision implements Holder {
  /** Why the handler was interrupted: the first reason, but a lost lease overrules all, since nothing may be written then. */
  interruption: Option.Option<Interruption> = Option.none()
  /** Why the lease is lost, or is to end: set where `interruption` is `lost` or `canceled`. */
  lossReason: LossReason | undefined
  /** The handler was given up. */
  stuck = false
  /** Stands while the attempt can be ended from outside: before that, and after, there is nothing to end. */
  private stop: ((reason: Interruption) => Effect.Effect<void>) | undefined
  /** Made when somebody asks for it: few handlers do. */
  private loss: Deferred.Deferred<never, LeaseLost> | undefined

  constructor(
    private readonly lease: Lease,
    private readonly queue: string,
    private readonly timeout: Option.Option<Duration.Duration>,
    private readonly grace: Duration.Duration
  ) {}

  /** Never succeeds; fails as soon as the lease is lost or the job is to be canceled. */
  get lostLease(): Effect.Effect<never, LeaseLost> {
    return Effect.suspend(() => {
      this.loss ??= Deferred.unsafeMake(FiberId.none)
      return this.lossReason === undefined ? Deferred.await(this.loss) : Effect.fail(this.lossBy(this.lossReason))
    })
  }

  get cancelRequested(): Effect.Effect<void> {
    return Effect.zipRight(this.tell("canceled"), this.interrupt("canceled"))
  }

  lost(reason: LossReason): Effect.Effect<void> {
    return Effect.zipRight(this.tell(reason), this.interrupt("lost"))
  }

  /** Ends the attempt, where it has not ended; returns at once. */
  interrupt(reason: Interruption): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { stop } = this
      if (Option.isSome(this.interruption)) {
        if (reason === "lost") this.interruption = Option.some(reason)
        return Effect.void
      }
      this.interruption = Option.some(reason)
      return stop === undefined ? Effect.void : stop(reason)
    })
  }

  /** Runs `wait`, which `stop` ends where the attempt is interrupted, also where it already was. */
  stoppable<A>(wait: Effect.Effect<A>, stop: (reason: Interruption) => Effect.Effect<void>): Effect.Effect<A> {
    return Effect.suspend(() => {
      this.stop = stop
      const waited = Option.isNone(this.interruption) ? wait : Effect.zipRight(stop(this.interruption.value), wait)
      return Effect.map(waited, (answer) => {
        this.stop = undefined
        return answer
      })
    })
  }

  /** Runs a handler until it ends or is given up; answers how it ended, and why it was interrupted if it was. */
  supervise<A, E>(
    handler: Effect.Effect<A, E>
  ): Effect.Effect<readonly [Exit.Exit<A, E>, Option.Option<Interruption>]> {
    return Effect.suspend(() => {
      const ended = Deferred.unsafeMake<Option.Option<Exit.Exit<A, E>>>(FiberId.none)
      const timers: Array<Fiber.RuntimeFiber<unknown>> = []
      const after = (duration: Duration.Duration, act: Effect.Effect<unknown>) =>
        Effect.map(Effect.forkDaemon(Effect.zipRight(Timer.sleep(duration), act)), (timer) => void timers.push(timer))
      // A fiber that succeeds with how the handler ended: one that fails has its whole error logged by Effect at level debug,
      // cause included, which may hold the payload (law 8).
      return Effect.forkDaemon(Effect.exit(Effect.interruptible(handler))).pipe(
        Effect.flatMap((fiber) => {
          fiber.addObserver((exit) => Deferred.unsafeDone(ended, Effect.succeed(Option.some(Exit.flatten(exit)))))
          const wait = this.stoppable(Deferred.await(ended), () => {
            fiber.unsafeInterruptAsFork(FiberId.none)
            const giveUp = Effect.flatMap(Deferred.succeed(ended, Option.none()), (given) =>
              given ? this.countStuck(fiber) : Effect.void
            )
            return after(this.grace, Effect.uninterruptible(giveUp))
          })
          return Option.isSome(this.timeout)
            ? Effect.zipRight(after(this.timeout.value, this.interrupt("timeout")), wait)
            : wait
        }),
        Effect.ensuring(
          Effect.sync(() => {
            for (const timer of timers) timer.unsafeInterruptAsFork(FiberId.none)
          })
        ),
        Effect.map((exit) => [Option.getOrElse(exit, () => Exit.interrupt(FiberId.none)), this.interruption] as const)
      )
    })
  }

  private countStuck(handler: Fiber.RuntimeFiber<unknown, unknown>): Effect.Effect<void> {
    return Effect.suspend(() => {
      this.stuck = true
      const gauge = Metrics.bind(Metrics.stuckHandlers, { queue: this.queue })
      return Metric.modify(gauge, 1).pipe(
        Effect.zipRight(Effect.logWarning("The handler ignores its interruption and was given up")),
        Effect.zipRight(
          Fiber.await(handler).pipe(
            Effect.zipRight(Metric.modify(gauge, -1)),
            Effect.zipRight(Effect.logInfo("A handler that was given up has ended")),
            Effect.forkDaemon
          )
        )
      )
    })
  }

  private tell(reason: LossReason): Effect.Effect<unknown> {
    return Effect.suspend(() => {
      this.lossReason = reason
      return this.loss === undefined ? Effect.void : Deferred.fail(this.loss, this.lossBy(reason))
    })
  }

  private lossBy(reason: LossReason): LeaseLost {
    const { jobId, token } = this.lease
    return new LeaseLost({ jobId, token, during: "the handler", reason })
  }
}
