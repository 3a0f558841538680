/**
 * Leases that a program claims and settles itself, as scoped resources.
 */
import { Deferred, Duration, Effect, Option, Random, type Scope } from "effect"
import * as Attempt from "../Attempt.js"
import * as Job from "../Job.js"
import { LeaseLost, type Permanent, type Retryable } from "../JobFailure.js"
import type { ClaimedJob, JobStore, Settlement } from "../JobStore.js"
import * as Lease from "../Lease.js"
import * as LeaseKeeper from "../LeaseKeeper.js"
import * as Outcome from "../Outcome.js"
import { AlreadySettled, type InTransaction, type InvalidOption, type StoreError } from "../QueueError.js"
import * as Setting from "../Setting.js"
import { type Settler, toSettlement } from "../Settler.js"
import * as Timer from "../Timer.js"

/** How to claim by hand. */
export interface ClaimOptions {
  /** 300 ms to 1 day, default 30 seconds. A fiber of the scope renews it at every third. */
  readonly lease?: Duration.DurationInput
  /**
   * What becomes of a lease that is not settled when its scope closes: `expire`, the default, leaves it to its end;
   * `release` gives the job back at once.
   */
  readonly onClose?: "expire" | "release"
}

export interface Services {
  readonly store: JobStore["Type"]
  readonly settler: Settler
  readonly worker: string
}

/** How long the close of a scope may take to write what becomes of its lease. */
const closeTime = Duration.seconds(5)

/** Claims the next due job of this type whose payload decodes; those that do not are dead with code `payload_invalid`. */
export const claim = <Type extends string, P, S, E>(
  services: Services,
  job: Job.Job<Type, P, S, E>,
  options: ClaimOptions
): Effect.Effect<Option.Option<Lease.HeldLease<P, S>>, InvalidOption | InTransaction | StoreError, Scope.Scope> =>
  Effect.gen(function* () {
    const duration = yield* Setting.duration("lease", options.lease, "30 seconds", "300 millis", "1 day")
    const onClose = yield* Setting.word("onClose", options.onClose, ["expire", "release"])
    yield* services.store.refuseTransaction("claim")
    const keeper = yield* LeaseKeeper.make(services.store, duration)
    while (true) {
      const hand = yield* Effect.acquireRelease(take(services, keeper, job, duration), (taken) =>
        Option.isSome(taken) ? taken.value.close(onClose) : Effect.void
      )
      if (Option.isNone(hand)) return Option.none()
      const decoded = yield* Effect.either(
        job.payload.decodeVersion(hand.value.job.payload, hand.value.job.payloadVersion)
      )
      if (decoded._tag === "Right") return Option.some(hand.value.heldLease(job, decoded.right))
      yield* hand.value.bury("payload_invalid", decoded.left.message)
    }
  })

const take = <Type extends string, P, S, E>(
  services: Services,
  keeper: LeaseKeeper.LeaseKeeper,
  job: Job.Job<Type, P, S, E>,
  duration: Duration.Duration
): Effect.Effect<Option.Option<Hand>, StoreError> =>
  Effect.gen(function* () {
    const window = Lease.trustFrom(yield* Lease.now, duration)
    const {
      jobs: [claimed]
    } = yield* services.store.detached(
      services.store.claim({
        queue: job.queue,
        types: [{ type: job.type, version: job.version }],
        worker: services.worker,
        lease: duration,
        limit: 1
      })
    )
    if (claimed === undefined) return Option.none()
    const loss = yield* Deferred.make<never, LeaseLost>()
    const lossBy = (reason: LeaseKeeper.LossReason) => Deferred.fail(loss, lossDuring(claimed.lease, "holding", reason))
    const held = keeper.hold(claimed.lease, window, { cancelRequested: lossBy("canceled"), lost: lossBy })
    return Option.some(new Hand(services, claimed, held, loss, yield* Effect.makeSemaphore(1)))
  })

/** A lease held by hand, on encoded values. */
class Hand {
  /** What every further settlement is answered with, once there was one or the lease is known to be lost. */
  private ended: LeaseLost | AlreadySettled | undefined

  constructor(
    private readonly services: Services,
    readonly job: ClaimedJob,
    private readonly held: LeaseKeeper.Held,
    private readonly loss: Deferred.Deferred<never, LeaseLost>,
    private readonly turns: Effect.Semaphore
  ) {}

  heldLease<Type extends string, P, S, E>(job: Job.Job<Type, P, S, E>, payload: P): Lease.HeldLease<P, S> {
    const { attempt, jobId, token, worker } = this.job.lease
    return {
      jobId,
      token,
      attempt,
      worker,
      jobType: this.job.type,
      queue: this.job.queue,
      attemptsLeft: this.job.attemptsLeft,
      payload,
      lost: Deferred.await(this.loss),
      renew: this.held.renew,
      complete: (output) =>
        Effect.flatMap(Job.outputText(job, output), (text) =>
          this.settle("complete", { _tag: "Complete", output: text })
        ),
      completeWith: (effect) =>
        this.completeWith(
          Effect.flatMap(effect, (value) => Effect.map(Job.outputText(job, value), (text) => [text, value] as const))
        ),
      fail: (failure) =>
        Effect.flatMap(this.settlementOf(job, failure), (settlement) => this.settle("fail", settlement)),
      snooze: (delay) =>
        Effect.flatMap(this.toSettlement(job, Outcome.Snooze({ delay })), (settlement) =>
          this.settle("snooze", settlement)
        ),
      release: this.settle("release", { _tag: "Release" })
    }
  }

  /** Ends a job whose payload can not be read. It may have been lost meanwhile, which is as good. */
  bury(code: string, message: string): Effect.Effect<void> {
    return this.write("fail", { _tag: "Bury", code, message }).pipe(
      Effect.zipRight(Effect.logWarning("Job is dead")),
      Effect.catchAll((error) => Effect.logWarning(error.message)),
      Effect.annotateLogs({ job_id: this.job.lease.jobId, job_type: this.job.type, error_code: code })
    )
  }

  /** What becomes of a lease that nobody settled. A job that was canceled meanwhile ends so in any case. */
  close(onClose: "expire" | "release"): Effect.Effect<void> {
    return Effect.flatMap(Deferred.isDone(this.loss), (lost) => {
      const ended =
        this.ended !== undefined || (onClose === "expire" && !lost)
          ? Effect.void
          : Timer.within(
              Effect.catchAll(this.write("release", { _tag: "Release" }), (error) => Effect.logDebug(error.message)),
              closeTime
            )
      return Effect.zipRight(ended, Effect.sync(this.letGo))
    })
  }

  private settle(verb: string, settlement: Settlement): Effect.Effect<void, Lease.SettleError> {
    return Effect.zipRight(this.services.store.refuseTransaction(verb), this.write(verb, settlement))
  }

  private write(verb: string, settlement: Settlement): Effect.Effect<void, Exclude<Lease.SettleError, InTransaction>> {
    const { lease } = this.job
    const settled = Effect.flatMap(this.services.settler.settle(this.held, settlement, verb), (state) =>
      state === "canceled" ? Effect.fail(lossDuring(lease, verb, "canceled")) : Effect.void
    )
    return this.once(settled)
  }

  private completeWith<A, E, R>(
    effect: Effect.Effect<readonly [output: string | null, value: A], E, R>
  ): Effect.Effect<A, E | Lease.SettleError, R> {
    const { held, services } = this
    const { lease } = this.job
    return this.once(
      Effect.flatMap(Lease.now, (at): Effect.Effect<A, E | Lease.SettleError, R> => {
        const reason = held.distrust(at)
        return reason === undefined
          ? held.whileLocked(services.store.completeWith(lease, effect))
          : Effect.fail(lossDuring(lease, "completeWith", reason))
      })
    )
  }

  /** One settlement at a time, and none after one that counted. */
  private once<A, E, R>(settlement: Effect.Effect<A, E, R>): Effect.Effect<A, E | LeaseLost | AlreadySettled, R> {
    const { jobId, token } = this.job.lease
    const attempt = Effect.suspend(
      (): Effect.Effect<A, E | LeaseLost | AlreadySettled, R> =>
        this.ended === undefined ? settlement : Effect.fail(this.ended)
    )
    return attempt.pipe(
      Effect.tap(() => this.end(new AlreadySettled({ jobId, token }))),
      Effect.tapError((error) =>
        error instanceof LeaseLost || error instanceof AlreadySettled ? this.end(error) : Effect.void
      ),
      this.turns.withPermits(1)
    )
  }

  private end(ended: LeaseLost | AlreadySettled): Effect.Effect<void> {
    return Effect.suspend(() => {
      this.ended ??= ended
      this.letGo()
      return ended instanceof LeaseLost ? Effect.asVoid(Deferred.fail(this.loss, ended)) : Effect.void
    })
  }

  private readonly letGo = (): void => this.held.forget()

  private settlementOf(job: Job.Definition, failure: Retryable | Permanent): Effect.Effect<Settlement> {
    return this.toSettlement(
      job,
      failure._tag === "Permanent"
        ? Outcome.Dead({ code: failure.code, message: failure.message })
        : Outcome.Retry({
            code: failure.code,
            message: failure.message,
            retryAfter: Option.fromNullable(failure.retryAfter)
          })
    )
  }

  private toSettlement(job: Job.Definition, outcome: Outcome.Outcome): Effect.Effect<Settlement> {
    return Effect.map(Effect.zip(Random.next, Attempt.Redactor), ([random, redactor]) =>
      toSettlement(outcome, job.retry, this.job.lease.attempt, random, redactor)
    )
  }
}

const lossDuring = (lease: Lease.Lease, during: string, reason: LeaseKeeper.LossReason): LeaseLost =>
  new LeaseLost({ jobId: lease.jobId, token: lease.token, during, reason })
