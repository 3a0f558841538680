/**
 * Watches over the handler of one attempt, and ends it for whatever reason comes first.
 */
import { Deferred, type Duration, Effect, type Exit, type Fiber, FiberId, Option } from "effect"
import { LeaseLost } from "../JobFailure.js"
import type { Lease } from "../Lease.js"
import type { Holder, LossReason } from "../LeaseKeeper.js"
import type { Interruption } from "../Outcome.js"
import * as Timer from "../Timer.js"

/** How a handler ended, and why it was interrupted if it was. */
export type Ended<A, E> = readonly [Exit.Exit<A, E>, Option.Option<Interruption>]

export interface Options {
  readonly lease: Lease
  /** None: the handler may run for as long as its lease is kept. */
  readonly timeout: Option.Option<Duration.Duration>
  /** How long a handler that is interrupted has to end. */
  readonly grace: Duration.Duration
  /** The attempt has not begun to run: it ends otherwise than by its handler. */
  readonly turnAway: (reason: Interruption) => void
  /** The handler is stuck: the attempt goes on without it. */
  readonly giveUp: Effect.Effect<void>
}

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
  private phase: "waiting" | "handler" | "over" = "waiting"
  /** The fiber of the attempt, while the handler runs in it. */
  private handler: Fiber.RuntimeFiber<unknown, unknown> | undefined
  private readonly timers: Array<Fiber.RuntimeFiber<unknown>> = []
  /** Made when somebody asks for it: few handlers do. */
  private loss: Deferred.Deferred<never, LeaseLost> | undefined

  constructor(private readonly options: Options) {}

  /** Never succeeds; fails as soon as the lease is lost or the job is to be canceled. */
  readonly lostLease: Effect.Effect<never, LeaseLost> = Effect.suspend(() => {
    this.loss ??= Deferred.unsafeMake(FiberId.none)
    return this.lossReason === undefined ? Deferred.await(this.loss) : Effect.fail(this.lossBy(this.lossReason))
  })

  get cancelRequested(): Effect.Effect<void> {
    return Effect.zipRight(this.tell("canceled"), this.interrupt("canceled"))
  }

  lost(reason: LossReason): Effect.Effect<void> {
    return Effect.zipRight(this.tell(reason), this.interrupt("lost"))
  }

  /** Ends the attempt, where it has not ended; returns at once. */
  interrupt(reason: Interruption): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (Option.isSome(this.interruption)) {
        if (reason === "lost") this.interruption = Option.some(reason)
        return Effect.void
      }
      this.interruption = Option.some(reason)
      if (this.phase === "waiting") this.options.turnAway(reason)
      return this.phase === "handler" ? this.stop : Effect.void
    })
  }

  /**
   * Runs a handler in the fiber that calls, which must not be interruptible itself; answers how it ended, and why it was
   * interrupted if it was. For a stuck handler it answers late, when the attempt is over.
   */
  supervise<A, E>(handler: Effect.Effect<A, E>): Effect.Effect<Ended<A, E>> {
    return Effect.withFiberRuntime<Ended<A, E>>((fiber) => {
      this.handler = fiber
      this.phase = "handler"
      const ran = Effect.map(Effect.exit(Effect.interruptible(handler)), (exit) => this.ended(exit))
      const { timeout } = this.options
      const timed = Option.isSome(timeout)
        ? Effect.zipRight(this.after(timeout.value, this.interrupt("timeout")), ran)
        : ran
      return Option.isSome(this.interruption) ? Effect.zipRight(this.stop, timed) : timed
    })
  }

  private ended<A, E>(exit: Exit.Exit<A, E>): Ended<A, E> {
    this.phase = "over"
    this.handler = undefined
    for (const timer of this.timers) timer.unsafeInterruptAsFork(FiberId.none)
    return [exit, this.interruption]
  }

  /** Interrupts the handler, and gives it up where it has not ended after its grace. */
  private get stop(): Effect.Effect<void> {
    return Effect.suspend(() => {
      this.handler?.unsafeInterruptAsFork(FiberId.none)
      const giveUp = Effect.suspend(() => {
        if (this.phase !== "handler") return Effect.void
        this.stuck = true
        return this.options.giveUp
      })
      return this.after(this.options.grace, giveUp)
    })
  }

  private after(duration: Duration.Duration, act: Effect.Effect<void>): Effect.Effect<void> {
    const timer = Effect.uninterruptible(Effect.zipRight(Effect.interruptible(Timer.sleep(duration)), act))
    return Effect.map(Effect.forkDaemon(timer), (fiber) => void this.timers.push(fiber))
  }

  private tell(reason: LossReason): Effect.Effect<unknown> {
    return Effect.suspend(() => {
      this.lossReason = reason
      return this.loss === undefined ? Effect.void : Deferred.fail(this.loss, this.lossBy(reason))
    })
  }

  private lossBy(reason: LossReason): LeaseLost {
    const { jobId, token } = this.options.lease
    return new LeaseLost({ jobId, token, during: "the handler", reason })
  }
}
