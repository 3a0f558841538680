/**
 * One run of a worker, from its start to the end of its stop.
 */
import { Cause, Clock, Duration, Effect, Exit, Fiber, FiberRef, HashSet, Logger, Metric, Scope } from "effect"
import type * as FaultLog from "../FaultLog.js"
import type { JobId } from "../JobRecord.js"
import type { JobStore } from "../JobStore.js"
import * as LeaseKeeper from "../LeaseKeeper.js"
import * as Metrics from "../Metrics.js"
import { ShutdownTimeout } from "../QueueError.js"
import * as Settler from "../Settler.js"
import * as Timer from "../Timer.js"
import type { Wakeup } from "../Wakeup.js"
import * as ClaimLoop from "./ClaimLoop.js"
import { Executor } from "./Executor.js"
import type { Kind } from "./Life.js"
import type { Settings } from "./Settings.js"
import { Slots } from "./Slots.js"

export interface Services {
  readonly store: JobStore["Type"]
  readonly wakeup: Wakeup["Type"]
  /** The worker's jobs by queue, then type. */
  readonly kinds: ReadonlyMap<string, ReadonlyMap<string, Kind>>
  readonly maintenance: Effect.Effect<never>
  readonly redactor: (text: string) => string
}

/** One queue of a worker that runs. */
export interface Line {
  readonly queue: string
  readonly slots: Slots
  readonly executor: Executor
  readonly progress: ClaimLoop.Progress
  /** The faults that settlements, and renewals, of the worker meet now. */
  readonly settling: () => FaultLog.Row | undefined
  readonly renewing: () => FaultLog.Row | undefined
}

/**
 * Works until it is interrupted, then stops in phases, each of them bounded (law 9):
 *
 * 1. Nothing is claimed any more. Jobs that wait for a slot are given back.
 * 2. Handlers go on for `grace`, their leases are renewed, their results are written.
 * 3. Handlers are interrupted and have `interruptGrace` to end. Jobs of those that ended are given back, or left to the end
 *    of their lease where `unfinished` is `expire`; those of the others are left in any case.
 * 4. What is not written after another `interruptGrace` is left, too.
 *
 * Fails with `ShutdownTimeout`, beside the interruption, where jobs were left. Dies where a loop died.
 */
export const run = (
  settings: Settings,
  services: Services,
  onStart: (lines: ReadonlyArray<Line>) => void
): Effect.Effect<never, ShutdownTimeout> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const shift = yield* Scope.extend(start(settings, services), scope)
      onStart(shift.lines)
      const annotations = { worker_id: settings.worker, queues: Array.from(settings.queues.keys()).join(" ") }
      yield* Effect.annotateLogs(Effect.logInfo("Worker started"), annotations)
      const exit = yield* Effect.exit(restore(shift.serve))
      const unfinished = yield* aside(shift.stop)
      // What is still under way now was given up; it must not keep the worker from ending.
      yield* aside(Timer.within(Scope.close(scope, Exit.void), settings.interruptGrace))
      yield* Effect.annotateLogs(
        unfinished.length === 0
          ? Effect.logInfo("Worker stopped")
          : Effect.logWarning("Worker stopped; some jobs are left to the end of their leases"),
        { ...annotations, unfinished: unfinished.length, jobs: unfinished.slice(0, 50).join(" ") }
      )
      if (unfinished.length === 0) return yield* exit
      const timeout = new ShutdownTimeout({ unfinished })
      const died = Exit.isFailure(exit) && !Cause.isInterruptedOnly(exit.cause)
      return yield* died ? Effect.failCause(Cause.sequential(exit.cause, Cause.fail(timeout))) : timeout
    })
  ).pipe(services.store.detached, withGuardedLoggers)

/** A logger of the program that throws must not end a worker, nor a handler that logs (scenario H9). */
const withGuardedLoggers = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.locallyWith(
    effect,
    FiberRef.currentLoggers,
    HashSet.map((logger) =>
      Logger.make((options) => {
        try {
          logger.log(options)
        } catch {
          // There is nobody left to tell.
        }
      })
    )
  )

/** Runs an effect that may be interrupted in its parts, for a fiber that was interrupted itself. */
const aside = <A, E>(effect: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.flatMap(Effect.forkDaemon(Effect.interruptible(effect)), Fiber.join)

const start = (settings: Settings, services: Services) =>
  Effect.gen(function* () {
    const { store } = services
    const keeper = yield* LeaseKeeper.make(store, settings.lease)
    const settler = yield* Settler.make(store)
    const labels = yield* FiberRef.get(FiberRef.currentMetricLabels)
    const clock = yield* Effect.clock
    const lines: Array<Line> = []
    const loops: Array<Effect.Effect<never>> = [keeper.failure, services.maintenance]
    for (const [queue, { ahead, concurrency }] of settings.queues) {
      const slots = new Slots(queue, concurrency, ahead, labels)
      const kinds = services.kinds.get(queue) ?? new Map<string, Kind>()
      const { interruptGrace, unfinished } = settings
      const { redactor } = services
      const executor = yield* Executor.make(
        { store, keeper, settler, slots, clock, labels, interruptGrace, unfinished, redactor },
        settings.worker,
        kinds
      )
      const progress = new ClaimLoop.Progress(clock.unsafeCurrentTimeMillis())
      const signal = yield* services.wakeup.subscribe(queue)
      lines.push({ queue, slots, executor, progress, settling: settler.faults, renewing: keeper.faults })
      loops.push(
        executor.failure,
        ClaimLoop.run({ ...settings, store, queue, kinds, slots, executor, signal, labels }, progress)
      )
    }
    loops.push(pulse(lines, settings.poll))
    const serve = Effect.zipRight(Effect.all(loops, { concurrency: "unbounded", discard: true }), Effect.never)
    // The loops are a fiber of their own, so that the stop does not wait for a claim that hangs.
    const fiber = yield* Effect.forkDaemon(Effect.interruptible(serve))
    return { lines, serve: Fiber.join(fiber), stop: stop(settings, lines, fiber) }
  })

const stop = (
  settings: Settings,
  lines: ReadonlyArray<Line>,
  loops: Fiber.Fiber<never>
): Effect.Effect<ReadonlyArray<JobId>> =>
  Effect.gen(function* () {
    const { grace, interruptGrace } = settings
    for (const { slots } of lines) slots.close()
    yield* Timer.within(Fiber.interrupt(loops), interruptGrace)
    const drained = Effect.forEach(lines, ({ executor }) => executor.drained, { discard: true })
    yield* Timer.within(drained, grace)
    yield* Effect.forEach(lines, ({ executor }) => executor.stopAll, { discard: true })
    yield* Timer.within(drained, Duration.times(interruptGrace, 2))
    return lines.flatMap(({ executor }) => executor.unfinished)
  })

/** Keeps the gauge of the last good claim true also where a claim hangs. */
const pulse = (lines: ReadonlyArray<Line>, poll: Duration.Duration): Effect.Effect<never> => {
  const gauges = lines.map((line) => [line, Metrics.bind(Metrics.sinceClaim, { queue: line.queue })] as const)
  return Effect.flatMap(Clock.currentTimeMillis, (now) =>
    Effect.forEach(gauges, ([{ progress }, gauge]) => Metric.set(gauge, progress.since(now) / 1_000), {
      discard: true
    })
  ).pipe(Effect.zipRight(Timer.sleep(Duration.max(poll, Duration.seconds(1)))), Effect.forever)
}
