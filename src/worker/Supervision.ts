/**
 * Watches over the handler of one attempt, and ends it for whatever reason comes first.
 */
import { Deferred, type Duration, Effect, Exit, type Fiber, FiberId, Option } from "effect"
import { LeaseLost } from "../JobFailure.js"
import type { Lease } from "../Lease.js"
import type { Holder, LossReason } from "../LeaseKeeper.js"
import type { Interruption } from "../Outcome.js"
import * as Timer from "../Timer.js"

/** The attempt that is watched over. */
export interface Supervised {
  readonly lease: Lease
  /** None: the handler may run for as long as its lease is kept. */
  readonly timeout: Option.Option<Duration.Duration>
  /** How long a handler that is interrupted has to end. */
  readonly grace: Duration.Duration
  /** Starts an effect in a fiber of its own, where it can not be interrupted. */
  readonly fork: (effect: Effect.Effect<void>) => Fiber.RuntimeFiber<void>
  /** The attempt has not begun to run: it ends otherwise than by its handler. */
  readonly withdraw: (reason: Interruption) => void
  /** The handler is stuck: the attempt goes on without it. */
  readonly giveUp: () => void
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
  private handler: Fiber.RuntimeFiber<unknown, unknown> | undefined
  private readonly timers: Array<Fiber.RuntimeFiber<unknown>> = []
  /** Made when somebody asks for it: few handlers do. */
  private loss: Deferred.Deferred<never, LeaseLost> | undefined

  constructor(private readonly attempt: Supervised) {}

  /** Never succeeds; fails as soon as the lease is lost or the job is to be canceled. */
  get lostLease(): Effect.Effect<never, LeaseLost> {
    return Effect.suspend(() => {
      this.loss ??= Deferred.unsafeMake(FiberId.none)
      return this.lossReason === undefined ? Deferred.await(this.loss) : Effect.fail(this.lossBy(this.lossReason))
    })
  }

  get cancelRequested(): Effect.Effect<void> {
    return Effect.sync(() => {
      this.tell("canceled")
      this.interrupt("canceled")
    })
  }

  lost(reason: LossReason): Effect.Effect<void> {
    return Effect.sync(() => {
      this.tell(reason)
      this.interrupt("lost")
    })
  }

  /** Ends the attempt, where it has not ended; returns at once. */
  interrupt(reason: Interruption): void {
    if (Option.isSome(this.interruption)) {
      if (reason === "lost") this.interruption = Option.some(reason)
      return
    }
    this.interruption = Option.some(reason)
    if (this.phase === "waiting") this.attempt.withdraw(reason)
    if (this.phase === "handler") this.stop()
  }

  /** Watches over the handler that runs in the fiber which `start` answers, and that may have ended by then. */
  supervise<A, E>(start: () => Fiber.RuntimeFiber<Exit.Exit<A, E>>, ended: (exit: Exit.Exit<A, E>) => void): void {
    this.phase = "handler"
    const handler = start()
    if (handler.unsafePoll() === null) {
      this.handler = handler
      const { timeout } = this.attempt
      if (Option.isSome(timeout)) this.after(timeout.value, () => this.interrupt("timeout"))
      // Somebody did so while the handler took its first steps.
      if (Option.isSome(this.interruption)) handler.unsafeInterruptAsFork(FiberId.none)
    }
    handler.addObserver(
      once((exit) => {
        this.phase = "over"
        this.handler = undefined
        for (const timer of this.timers) timer.unsafeInterruptAsFork(FiberId.none)
        ended(Exit.flatten(exit))
      })
    )
  }

  /** Interrupts the handler, and gives it up where it has not ended after its grace. */
  private stop(): void {
    this.handler?.unsafeInterruptAsFork(FiberId.none)
    this.after(this.attempt.grace, () => {
      if (this.phase !== "handler") return
      this.stuck = true
      this.attempt.giveUp()
    })
  }

  private after(duration: Duration.Duration, act: () => void): void {
    this.timers.push(this.attempt.fork(Effect.map(Effect.interruptible(Timer.sleep(duration)), act)))
  }

  private tell(reason: LossReason): void {
    this.lossReason = reason
    if (this.loss !== undefined) Deferred.unsafeDone(this.loss, Effect.fail(this.lossBy(reason)))
  }

  private lossBy(reason: LossReason): LeaseLost {
    const { jobId, token } = this.attempt.lease
    return new LeaseLost({ jobId, token, during: "the handler", reason })
  }
}

/**
 * Calls once, and lets go of what it calls. V8 puts the list of a fiber's observers into the old generation from the start
 * (seen with Node 20), so that without this all that the attempt holds would outlive it until the next full collection.
 */
const once = <A>(call: (value: A) => void): ((value: A) => void) => {
  let pending: typeof call | undefined = call
  return (value) => {
    const due = pending
    pending = undefined
    due?.(value)
  }
}
