/**
 * Starts the attempts of one queue, and knows which of them are under way.
 */
import { type Cause, Deferred, Effect, Exit, FiberId, type Scope } from "effect"
import type { JobId } from "../JobRecord.js"
import type { ClaimedJob } from "../JobStore.js"
import type * as Lease from "../Lease.js"
import { Roster } from "../Roster.js"
import * as TraceContext from "../TraceContext.js"
import { AttemptRuntime } from "./AttemptRuntime.js"
import { Claim, type Kind, Life, type Surroundings } from "./Life.js"

export class Executor {
  private readonly underWay = new Roster<Life>()
  /** Jobs that were not settled because the worker stopped. Their leases lapse on their own. */
  private readonly left: Array<JobId> = []
  private readonly idle = Effect.unsafeMakeLatch(true)
  private readonly dead = Deferred.unsafeMake<never>(FiberId.none)
  private readonly around: Surroundings

  private constructor(
    around: Omit<Surroundings, "ended" | "died">,
    private readonly runtimes: ReadonlyMap<Kind, AttemptRuntime>
  ) {
    this.around = { ...around, ended: (life) => this.ended(life), died: (cause) => this.died(cause) }
  }

  /** Attempts run in the context of this effect, with that of the layer of their handler. */
  static make(
    around: Omit<Surroundings, "ended" | "died" | "traced">,
    worker: string,
    kinds: ReadonlyMap<string, Kind>
  ): Effect.Effect<Executor> {
    const runtimes = Effect.forEach(kinds.values(), (kind) =>
      Effect.map(AttemptRuntime.make(kind.runnable, around.store, worker), (its) => [kind, its] as const)
    )
    return Effect.zipWith(
      runtimes,
      TraceContext.isCollected,
      (of, traced) => new Executor({ ...around, traced }, new Map(of))
    )
  }

  /** Completes when no attempt is under way. */
  get drained(): Effect.Effect<void> {
    return this.idle.await
  }

  /** Never returns; dies where an attempt died of a mistake in the library. */
  get failure(): Effect.Effect<never> {
    return Deferred.await(this.dead)
  }

  /** The jobs that a worker which ends now leaves to the end of their leases. */
  get unfinished(): ReadonlyArray<JobId> {
    return [...this.left, ...Array.from(this.underWay, ({ job }) => job.lease.jobId)]
  }

  /** Starts an attempt, or lines it up for a slot. `scope` is closed when its handler has ended. */
  start(kind: Kind, job: ClaimedJob, window: Lease.TrustWindow, scope: Scope.CloseableScope): void {
    const runtime = this.runtimes.get(kind)
    if (runtime === undefined) throw new Error(`An attempt of a job of type ${job.type} was started elsewhere`)
    const life = new Life(this.around, new Claim(job, kind, runtime, window, scope))
    life.underWay = this.underWay.add(life)
    this.idle.unsafeClose()
    this.around.slots.enter(life)
  }

  /** Tells every attempt that the worker stops: those that wait are given back, handlers are interrupted. */
  get stopAll(): Effect.Effect<void> {
    return Effect.sync(() => {
      for (const life of this.underWay) life.interrupt("shutdown")
    })
  }

  private ended(life: Life): void {
    if (life.underWay !== undefined) this.underWay.remove(life.underWay)
    if (life.left) this.left.push(life.job.lease.jobId)
    if (this.underWay.size === 0) this.idle.unsafeOpen()
  }

  private died(cause: Cause.Cause<never>): void {
    Deferred.unsafeDone(this.dead, Exit.failCause(cause))
  }
}
