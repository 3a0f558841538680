/**
 * What the attempts on one type of job run in: the services that the layer of their handler captured, within those of the worker.
 *
 * Made once. To provide services to each attempt, or to annotate its logs, by effects around it would cost several times what
 * the fiber itself does (measured 2026-11-29: 40 µs and more, against 5 µs this way).
 */
import { Context, Effect, type Fiber, FiberId, FiberRef, FiberRefs, LogLevel, Runtime, Scope } from "effect"
import type * as Job from "../Job.js"
import type { ClaimedJob, JobStore } from "../JobStore.js"
import * as Payload from "../Payload.js"
import * as Report from "./Report.js"

export class AttemptRuntime {
  private constructor(
    private readonly runtime: Runtime.Runtime<never>,
    /** What a fiber inherits from the worker. Nobody joins the fibers of attempts, so it is worked out once for all. */
    private readonly inherited: FiberRefs.FiberRefs,
    private readonly annotations: Report.Annotations,
    private readonly leastLevel: LogLevel.LogLevel,
    /** Bytes that an output may have. */
    readonly outputLimit: number
  ) {}

  /** The context that a layer captured may hold a transaction, like that of this effect (TRAPS T1): it is left out. */
  static make({ context, job }: Job.Runnable, store: JobStore["Type"], worker: string): Effect.Effect<AttemptRuntime> {
    return Effect.mapInputContext(
      store.detached(
        Effect.map(Effect.uninterruptible(Effect.runtime<never>()), (runtime) => {
          const { fiberRefs } = runtime
          const outer = FiberRefs.getOrDefault(fiberRefs, FiberRef.currentLogAnnotations)
          return new AttemptRuntime(
            runtime,
            FiberRefs.forkAs(fiberRefs, FiberId.unsafeMake()),
            Report.annotateKind(outer, job.type, job.queue, worker),
            FiberRefs.getOrDefault(fiberRefs, FiberRef.currentMinimumLogLevel),
            Context.get(runtime.context, Payload.Limit)
          )
        })
      ),
      (those: Context.Context<never>) => Context.merge(context, those)
    )
  }

  /** Whether a line of that level is logged. */
  logs(level: LogLevel.LogLevel): boolean {
    return LogLevel.lessThanEqual(this.leastLevel, level)
  }

  /** The annotations of an attempt, for {@link fork}. */
  annotate(job: ClaimedJob): Report.Annotations {
    return Report.annotate(this.annotations, job)
  }

  /** Runs an effect in a fiber of its own, at once: where it never waits, it is over on return. It can not be interrupted. */
  fork<A, E>(
    effect: Effect.Effect<A, E, Scope.Scope>,
    annotations: Report.Annotations,
    scope: Scope.Scope
  ): Fiber.RuntimeFiber<A, E> {
    const { context, runtimeFlags } = this.runtime
    const runtime = Runtime.make({
      context: Context.add(context, Scope.Scope, scope),
      fiberRefs: none,
      runtimeFlags
    })
    return Runtime.runFork(runtime, effect, {
      // The same as to set one reference after the other, in one copy instead of four.
      updateRefs: (provided, fiberId) => {
        const locals = new Map(this.inherited.locals)
        for (const [ref, value] of provided.locals) locals.set(ref, value)
        locals.set(FiberRef.currentLogAnnotations, [[fiberId, annotations]])
        return FiberRefs.unsafeMake(locals)
      }
    })
  }
}

const none = FiberRefs.empty()
