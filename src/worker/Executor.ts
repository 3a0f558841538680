/**
 * Starts the attempts of one queue, and knows which of them are under way.
 */
import { Cause, Context, Deferred, Effect, Exit, FiberId, FiberRef, FiberRefs, type HashMap, Runtime } from "effect"
import type { JobId } from "../JobRecord.js"
import type { ClaimedJob, JobStore } from "../JobStore.js"
import type * as Lease from "../Lease.js"
import { type Kind, Life, type Surroundings } from "./Life.js"
import * as Report from "./Report.js"

export class Executor {
  private readonly underWay = new Set<Life>()
  /** Jobs that were not settled because the worker stopped. Their leases lapse on their own. */
  private readonly left: Array<JobId> = []
  private readonly idle = Effect.unsafeMakeLatch(true)
  private readonly died = Deferred.unsafeMake<never>(FiberId.none)
  private readonly around: Surroundings

  private constructor(
    around: Omit<Surroundings, "fork" | "ended">,
    private readonly runtimes: ReadonlyMap<Kind, Runtime.Runtime<never>>
  ) {
    this.around = {
      ...around,
      fork: (life, effect) => this.fork(life, effect),
      ended: (life) => this.ended(life)
    }
  }

  /** Attempts run in the context of this effect, with that of the layer of their handler. */
  static make(
    around: Omit<Surroundings, "fork" | "ended" | "traced">,
    worker: string,
    kinds: ReadonlyMap<string, Kind>
  ): Effect.Effect<Executor> {
    const runtimes = Effect.forEach(kinds.values(), (kind) =>
      Effect.map(runtimeOf(kind, around.store, worker), (its) => [kind, its] as const)
    )
    return Effect.zipWith(runtimes, Report.isTraced, (of, traced) => new Executor({ ...around, traced }, new Map(of)))
  }

  /** Completes when no attempt is under way. */
  get drained(): Effect.Effect<void> {
    return this.idle.await
  }

  /** Never returns; dies where an attempt died of a mistake in the library. */
  get failure(): Effect.Effect<never> {
    return Deferred.await(this.died)
  }

  /** The jobs that a worker which ends now leaves to the end of their leases. */
  get unfinished(): ReadonlyArray<JobId> {
    return [...this.left, ...Array.from(this.underWay, ({ job }) => job.lease.jobId)]
  }

  /** Starts an attempt, or lines it up for a slot. */
  start(kind: Kind, job: ClaimedJob, window: Lease.TrustWindow): void {
    const life = new Life(this.around, job, kind, window)
    this.underWay.add(life)
    this.idle.unsafeClose()
    this.around.slots.enter(life)
  }

  /** Tells every attempt that the worker stops: those that wait are given back, handlers are interrupted. */
  get stopAll(): Effect.Effect<void> {
    return Effect.suspend(() =>
      Effect.forEach(Array.from(this.underWay), (life) => life.interrupt("shutdown"), { discard: true })
    )
  }

  private fork(life: Life, effect: Effect.Effect<void>): void {
    const ofKind = this.runtimes.get(life.kind)
    if (ofKind === undefined) throw new Error(`An attempt of a job of type ${life.job.type} was started elsewhere`)
    const runtime = Runtime.updateFiberRefs(ofKind, annotated(Report.annotate(life.job)))
    // Not at once: one handler's end starts the next, and so on, in ever deeper calls.
    const fiber = Runtime.runFork(runtime, effect, { immediate: false })
    fiber.addObserver((exit) => {
      life.end()
      if (Exit.isFailure(exit) && !Cause.isInterruptedOnly(exit.cause)) {
        Deferred.unsafeDone(this.died, Exit.failCause(exit.cause))
      }
    })
  }

  private ended(life: Life): void {
    this.underWay.delete(life)
    if (life.left) this.left.push(life.job.lease.jobId)
    if (this.underWay.size === 0) this.idle.unsafeOpen()
  }
}

/**
 * What the attempts of one job run in: made once, since to provide a context costs more than to run a short handler. The
 * context that a layer captured may hold a transaction, like the worker's own (TRAPS T1).
 */
const runtimeOf = (
  { runnable }: Kind,
  store: JobStore["Type"],
  worker: string
): Effect.Effect<Runtime.Runtime<never>> =>
  Effect.mapInputContext(
    Effect.map(
      store.detached(Effect.uninterruptible(Effect.runtime<never>())),
      Runtime.updateFiberRefs(annotated(Report.annotateKind(runnable.job.type, runnable.job.queue, worker)))
    ),
    (those: Context.Context<never>) => Context.merge(runnable.context, those)
  )

const annotated =
  (add: (those: HashMap.HashMap<string, unknown>) => HashMap.HashMap<string, unknown>) =>
  (refs: FiberRefs.FiberRefs): FiberRefs.FiberRefs =>
    FiberRefs.updateAs(refs, {
      fiberId: FiberId.none,
      fiberRef: FiberRef.currentLogAnnotations,
      value: add(FiberRefs.getOrDefault(refs, FiberRef.currentLogAnnotations))
    })
