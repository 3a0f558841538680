/**
 * Keeps leases: renews all of a holder's leases together, and tells each holder in time when one is no longer to be trusted.
 *
 * Two fibers do it, so that neither can hold up the other. One renews, at every third of the lease. One watches the trust
 * windows and asks nobody: however a renewal fails or hangs, a holder hears of the end of its lease before that end comes in
 * the database (law 1, scenarios C7, C8, C9).
 */
import { Cause, Deferred, Duration, Effect, FiberSet, Metric, type Scope } from "effect"
import * as FaultLog from "./FaultLog.js"
import { LeaseLost } from "./JobFailure.js"
import type { JobStore, Renewal } from "./JobStore.js"
import * as Lease from "./Lease.js"
import * as Metrics from "./Metrics.js"
import { type StoreError, StoreUnavailable } from "./QueueError.js"
import { type Place, Roster } from "./Roster.js"
import * as Timer from "./Timer.js"

export type LossReason = LeaseLost["reason"]

/** Whom the keeper tells. Both effects are short: they run in the keeper's own fibers. */
export interface Holder {
  /** Somebody asked to cancel the job. The lease still stands and is renewed. At most once. */
  readonly cancelRequested: Effect.Effect<void>
  /** Nothing may be written under this lease any more; the keeper has let go of it. At most once. */
  readonly lost: (reason: LossReason) => Effect.Effect<void>
}

/** A lease in the keeper's care, until it is forgotten. */
export interface Held {
  readonly lease: Lease.Lease
  /** Why nothing may be written under the lease any more; undefined while it is trusted at `at`, the present. */
  readonly distrust: (at: Lease.Instant) => LossReason | undefined
  /**
   * Renews this lease now. Fails with `LeaseLost` also when the job is to be canceled, and with `StoreUnavailable` where
   * somebody keeps the job's row locked for half a second.
   */
  readonly renew: Effect.Effect<void, LeaseLost | StoreError>
  /**
   * Leaves the lease out of renewals while `effect` holds the job's row locked, and for good once it succeeds, since it
   * settles the job. The trust window goes on, so `effect` has what is left of it.
   */
  readonly whileLocked: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  /**
   * The attempt is over, and from here its settlement alone decides who owned the job: a renewal that crosses the
   * settlement would find the job ended and report a loss. The lease is renewed until it is forgotten.
   */
  readonly conclude: () => void
  /** Ends the care. To be called in any case. */
  readonly forget: () => void
}

export interface LeaseKeeper {
  /** Takes a lease into care from now on. `window` is the one that opened before the lease was asked for. */
  readonly hold: (lease: Lease.Lease, window: Lease.TrustWindow, holder: Holder) => Held
  /** Never returns; dies where one of the keeper's fibers died of a mistake in the library. All leases are lost then. */
  readonly failure: Effect.Effect<never>
  /** The faults that renewals meet now. */
  readonly faults: () => FaultLog.Row | undefined
}

/** Leases that one call renews. */
const batchSize = 1_000
/** Calls that may be under way at once: one that hangs must not keep the next from trying another connection. */
const mostCalls = 3
/** How often a renewal by hand finds its row locked before it gives up: after 0.3 to 0.6 seconds. */
const mostBusy = 6

/**
 * A keeper of leases of one duration, for as long as the scope is open.
 *
 * Renewals that fail are tried again after a fifteenth of the lease, with jitter, for as long as there is a lease to renew.
 */
export const make = (
  store: JobStore["Type"],
  lease: Duration.Duration
): Effect.Effect<LeaseKeeper, never, Scope.Scope> =>
  Effect.gen(function* () {
    const scope = yield* Effect.scope
    const failed = yield* Deferred.make<never>()
    const fork = yield* FiberSet.makeRuntime<never, void>()
    const care = new Care(store, lease, (effect) => void fork(effect))
    const loop = (effect: Effect.Effect<never>) =>
      effect.pipe(
        Effect.onError((cause) =>
          Cause.isInterruptedOnly(cause)
            ? Effect.void
            : Effect.zipRight(care.loseAll, Deferred.failCause(failed, cause))
        ),
        store.detached,
        Effect.interruptible,
        Effect.forkIn(scope)
      )
    yield* loop(renewals(care))
    yield* loop(watch(care))
    return {
      hold: (held, window, holder) => care.hold(held, window, holder),
      failure: Deferred.await(failed),
      faults: care.faults.current
    }
  })

const renewals = (care: Care): Effect.Effect<never> => {
  const third = Duration.millis(Math.floor(Duration.toMillis(care.lease) / 3))
  const soon = Timer.sleepSome(Duration.times(care.lease, 1 / 15), 0.5)
  // A store call can not be interrupted: this loop does not wait for one that hangs, and neither does the end of the scope.
  const round = (age: number) =>
    Effect.suspend(() => (care.calls < mostCalls ? care.renewOlder(age) : Effect.succeed(false))).pipe(
      Effect.disconnect,
      Effect.timeoutTo({ duration: third, onTimeout: () => false, onSuccess: (done) => done })
    )
  const retries = Effect.repeat(Effect.zipRight(soon, round(1 / 3)), { until: (done) => done })
  return care.holdsSome.await.pipe(
    Effect.zipRight(Timer.sleep(third)),
    Effect.zipRight(round(1 / 8)),
    Effect.flatMap((done) => (done ? Effect.void : retries)),
    Effect.forever
  )
}

const watch = (care: Care): Effect.Effect<never> =>
  care.holdsSome.await.pipe(
    Effect.zipRight(
      Effect.flatMap(Lease.now, (at) => {
        const pause = care.nextEnd(at)
        care.watchedUntil = at.monotonic + pause
        return Timer.sleep(Duration.millis(pause))
      })
    ),
    Effect.zipRight(care.expire),
    Effect.forever
  )

/** All leases in one keeper's care. */
class Care {
  readonly entries = new Roster<Entry>()
  readonly holdsSome = Effect.unsafeMakeLatch(false)
  readonly faults = FaultLog.make("renew")
  /** Calls under way. */
  calls = 0
  /** When the watch looks next, on the monotonic clock. */
  watchedUntil = 0

  constructor(
    readonly store: JobStore["Type"],
    readonly lease: Duration.Duration,
    private readonly fork: (effect: Effect.Effect<void>) => void
  ) {}

  hold(lease: Lease.Lease, window: Lease.TrustWindow, holder: Holder): Held {
    const entry = new Entry(this, lease, window, holder)
    entry.place = this.entries.add(entry)
    this.holdsSome.unsafeOpen()
    const ends = window.openedAt.monotonic + Duration.toMillis(window.length)
    if (ends < this.watchedUntil) {
      // A claim whose answer took long has a short window, which can end before the watch looks again.
      this.fork(
        Effect.flatMap(Lease.now, (at) =>
          Effect.zipRight(Timer.sleep(Duration.millis(Lease.trustLeft(window, at))), this.expire)
        )
      )
    }
    return entry
  }

  remove(entry: Entry): void {
    if (entry.place !== undefined) this.entries.remove(entry.place)
    if (this.entries.size === 0) this.holdsSome.unsafeClose()
  }

  /**
   * Milliseconds to the first end of a window. Timers stand still while a host sleeps, so the clocks are looked at after a
   * tenth of the lease at the latest.
   */
  nextEnd(at: Lease.Instant): number {
    let first = Duration.toMillis(this.lease) / 10
    for (const { window } of this.entries) {
      const left = Lease.trustLeft(window, at)
      first = Math.min(first, left > 0 ? left : monotonicLeft(window, at))
    }
    return Math.max(first, 0)
  }

  /**
   * Lets go of the leases whose window has ended. Where only the wall clock says so, either the host slept or somebody set
   * the clock (scenario I2): nothing is written under such a lease, and it is asked for at once; the answer decides.
   */
  readonly expire: Effect.Effect<void> = Effect.flatMap(Lease.now, (at) => {
    const ended = Array.from(this.entries).filter(({ window }) => Lease.trustLeft(window, at) <= 0)
    const doubtful = ended.filter((entry) => !entry.locked && monotonicLeft(entry.window, at) > 0)
    const over = ended.filter(({ window }) => monotonicLeft(window, at) <= 0)
    const ask = doubtful.length === 0 || this.calls >= mostCalls ? Effect.void : Effect.forkDaemon(this.renew(doubtful))
    return Effect.zipRight(
      ask,
      Effect.forEach(over, (entry) => entry.lose("expired"), { discard: true })
    )
  })

  readonly loseAll: Effect.Effect<void> = Effect.suspend(() =>
    Effect.forEach(Array.from(this.entries), (entry) => entry.lose("expired"), { discard: true })
  )

  /** Renews what was not renewed for that share of a lease; answers whether nothing is left to be tried again soon. */
  renewOlder(share: number): Effect.Effect<boolean> {
    return Effect.flatMap(Lease.now, (at) => {
      const age = share * Duration.toMillis(this.lease)
      const due = Array.from(this.entries).filter(
        (entry) => !entry.locked && at.monotonic - entry.window.openedAt.monotonic >= age
      )
      return this.renew(due)
    })
  }

  private renew(entries: ReadonlyArray<Entry>): Effect.Effect<boolean> {
    const batches: Array<ReadonlyArray<Entry>> = []
    for (let from = 0; from < entries.length; from += batchSize) batches.push(entries.slice(from, from + batchSize))
    return Effect.map(
      Effect.forEach(batches, (batch) => this.renewTogether(batch), { concurrency: mostCalls }),
      (done) => done.every((each) => each)
    )
  }

  private renewTogether(batch: ReadonlyArray<Entry>): Effect.Effect<boolean> {
    return this.call(batch).pipe(
      Effect.flatMap((renewals) => {
        const busy = batch.filter((_, index) => renewals[index]?._tag === "Busy")
        // A row that somebody has locked is asked for alone, so that it holds up no other (ruling 3).
        return Effect.forEach(busy, (entry) => this.call([entry]), { concurrency: mostCalls }).pipe(
          Effect.map((alone) => alone.every(([renewal]) => renewal?._tag !== "Busy"))
        )
      }),
      Effect.tap(() => this.faults.recovered),
      Effect.catchAll((error) =>
        this.faults.report(error).pipe(Effect.zipRight(Metric.update(outcomes.failed, batch.length)), Effect.as(false))
      )
    )
  }

  /** One call to the store. The new windows open before it is sent. */
  call(batch: ReadonlyArray<Entry>): Effect.Effect<ReadonlyArray<Renewal>, StoreError> {
    const sent = Effect.flatMap(Lease.now, (openedAt) => {
      const leases = batch.map((entry) => entry.lease)
      return this.store
        .renew(leases, this.lease)
        .pipe(
          Effect.tap((renewals) =>
            Effect.forEach(
              batch,
              (entry, index) =>
                entry.answered(renewals[index] ?? { _tag: "Busy" }, Lease.trustFrom(openedAt, this.lease)),
              { discard: true }
            )
          )
        )
    })
    return Effect.acquireUseRelease(
      Effect.sync(() => this.calls++),
      () => sent,
      () => Effect.sync(() => this.calls--)
    )
  }
}

class Entry implements Held {
  /** Its place among those in care; left when the care ends. */
  place: Place<Entry> | undefined
  locked = false
  private concluded = false
  private canceled = false
  private lostReason: LossReason | undefined

  constructor(
    private readonly care: Care,
    readonly lease: Lease.Lease,
    public window: Lease.TrustWindow,
    private readonly holder: Holder
  ) {}

  distrust(at: Lease.Instant): LossReason | undefined {
    return this.lostReason ?? (Lease.trustLeft(this.window, at) > 0 ? undefined : "expired")
  }

  get renew(): Effect.Effect<void, LeaseLost | StoreError> {
    return this.renewAfter(0)
  }

  /** Mostly the lock is that of another renewal of the same lease, the keeper's own for instance, and gone in a moment. */
  private renewAfter(busy: number): Effect.Effect<void, LeaseLost | StoreError> {
    return Effect.flatMap(Lease.now, (at) => {
      const reason = this.distrust(at)
      if (reason !== undefined) return Effect.fail(this.lossDuring("renew", reason))
      return Effect.flatMap(this.care.call([this]), ([renewal]) =>
        (renewal === undefined || renewal._tag === "Busy") && busy < mostBusy
          ? Effect.zipRight(
              Timer.sleepSome(Duration.millis(10 * 2 ** busy), 0.5),
              Effect.suspend(() => this.renewAfter(busy + 1))
            )
          : this.verdict(renewal ?? { _tag: "Busy" })
      )
    })
  }

  private verdict(renewal: Renewal): Effect.Effect<void, LeaseLost | StoreError> {
    switch (renewal._tag) {
      case "Lost":
        return Effect.fail(this.lossDuring("renew", renewal.reason))
      case "Renewed":
        return renewal.cancelRequested ? Effect.fail(this.lossDuring("renew", "canceled")) : Effect.void
      case "Busy":
        return Effect.fail(new StoreUnavailable({ verb: "renew", reason: "lock_wait", code: "row_locked" }))
    }
  }

  conclude(): void {
    this.concluded = true
  }

  private get cared(): boolean {
    return this.place?.roster !== undefined
  }

  forget(): void {
    this.care.remove(this)
  }

  whileLocked<A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> {
    return Effect.suspend(() => {
      this.locked = true
      return Effect.onExit(effect, (exit) =>
        Effect.sync(() => {
          this.locked = exit._tag === "Success"
        })
      )
    })
  }

  lossDuring(during: string, reason: LossReason): LeaseLost {
    return new LeaseLost({ jobId: this.lease.jobId, token: this.lease.token, during, reason })
  }

  /** What the store said about this lease. Late answers, and answers that cross a settlement, change nothing. */
  answered(renewal: Renewal, window: Lease.TrustWindow): Effect.Effect<void> {
    return Effect.suspend(() => {
      const counted = Metric.update(outcomes[renewal._tag], 1)
      if (!this.cared || this.locked || renewal._tag === "Busy") return counted
      if (renewal._tag === "Lost") {
        return this.concluded ? counted : Effect.zipRight(counted, this.lose(renewal.reason))
      }
      if (window.openedAt.monotonic > this.window.openedAt.monotonic) this.window = window
      if (!renewal.cancelRequested || this.canceled) return counted
      this.canceled = true
      return Effect.zipRight(counted, this.holder.cancelRequested)
    })
  }

  lose(reason: LossReason): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (this.lostReason !== undefined || !this.cared) return Effect.void
      this.lostReason = reason
      this.care.remove(this)
      return this.holder.lost(reason)
    })
  }
}

const monotonicLeft = ({ length, openedAt }: Lease.TrustWindow, at: Lease.Instant): number =>
  Duration.toMillis(length) - (at.monotonic - openedAt.monotonic)

const outcomeOf = (outcome: string) => Metrics.bind(Metrics.renewals, { outcome })
const outcomes = {
  Renewed: outcomeOf("renewed"),
  Lost: outcomeOf("lost"),
  Busy: outcomeOf("busy"),
  failed: outcomeOf("failed")
}
