/**
 * Works on jobs: claims them, runs their handlers under leases, and writes how they ended.
 *
 * @module
 */
import { Clock, Context, Duration, Effect, Layer } from "effect"
import * as Attempt from "./Attempt.js"
import * as Job from "./Job.js"
import { JobStore } from "./JobStore.js"
import * as Maintenance from "./Maintenance.js"
import * as Metrics from "./Metrics.js"
import type { InvalidName, InvalidOption, ShutdownTimeout, StoreError } from "./QueueError.js"
import * as Restarting from "./Restarting.js"
import { Wakeup } from "./Wakeup.js"
import type { Kind } from "./worker/Life.js"
import { check, type Options, type Settings } from "./worker/Settings.js"
import * as Shift from "./worker/Shift.js"

export type { Options } from "./worker/Settings.js"

/** How a queue of a worker fares. */
export interface QueueHealth {
  readonly queue: string
  /**
   * For longer than three polls and ten seconds, claims have not been answered, or results that wait to be written met nothing
   * but faults.
   */
  readonly stalled: boolean
  /** Since a claim was last answered, or was not needed because every slot was taken. */
  readonly sinceClaim: Duration.Duration
  readonly running: number
  readonly waiting: number
  /** Results of handlers that have ended, which are not durable yet. */
  readonly unwritten: number
  /** What the last claim failed with, until one succeeds; else so of the worker's settlements, and of its renewals. */
  readonly fault: StoreError | undefined
}

/** `good` while a worker runs and none of its queues has stalled. */
export interface Health {
  readonly status: "good" | "bad"
  readonly worker: string
  readonly queues: ReadonlyArray<QueueHealth>
}

/** A worker that runs in a layer. */
export class Worker extends Context.Tag("leasehold/Worker")<
  Worker,
  {
    readonly id: string
    /** Its health at this moment. Asks nobody. */
    readonly health: Effect.Effect<Health>
  }
>() {}

/** The health of the worker in the context. */
export const health: Effect.Effect<Health, never, Worker> = Effect.flatMap(Worker, (worker) => worker.health)

/** What a worker of these jobs needs: their handlers, a store, and the wake-ups of this process. */
export type Requirements<Jobs extends ReadonlyArray<Job.Any>> = Job.HandlersOf<Jobs[number]> | JobStore | Wakeup

/**
 * Checks the options and makes a worker that does not work yet: `run` does, once at a time, until it is interrupted.
 *
 * For programs that want the health of a worker that they run themselves.
 */
export const make = <const Jobs extends ReadonlyArray<Job.Any>>(
  options: Options<Jobs>
): Effect.Effect<
  Worker["Type"] & { readonly run: Effect.Effect<never, ShutdownTimeout> },
  InvalidName | InvalidOption,
  Requirements<Jobs>
> =>
  Effect.gen(function* () {
    const settings = yield* check(options)
    const maintenance = options.maintenance === false ? Effect.never : yield* Maintenance.make(options.maintenance)
    const services: Shift.Services = {
      store: yield* JobStore,
      wakeup: yield* Wakeup,
      kinds: kindsOf(settings, yield* Effect.context<Job.HandlersOf<Jobs[number]>>()),
      maintenance,
      redactor: yield* Attempt.Redactor
    }
    let lines: ReadonlyArray<Shift.Line> | undefined
    return {
      id: settings.worker,
      health: Effect.suspend(() => healthOf(settings, lines)),
      run: Shift.run(settings, services, (started) => {
        lines = started
      }).pipe(
        Effect.ensuring(
          Effect.sync(() => {
            lines = undefined
          })
        )
      )
    }
  })

/**
 * Works until it is interrupted, then stops gracefully: see `shutdown` for what becomes of the jobs under way.
 *
 * Fails with `InvalidOption` or `InvalidName` before anything starts, and with `ShutdownTimeout` after a stop that left
 * jobs to the end of their leases. Faults of the database are logged and tried again for ever; `Worker.make` has a health.
 * A stop ends within `grace` and four times `interruptGrace`.
 */
export const run = <const Jobs extends ReadonlyArray<Job.Any>>(
  options: Options<Jobs>
): Effect.Effect<never, InvalidName | InvalidOption | ShutdownTimeout, Requirements<Jobs>> =>
  Effect.flatMap(make(options), (worker) => worker.run)

/**
 * A worker for as long as the layer lives. Releasing the layer stops it as `run` stops; the jobs that it leaves are logged.
 */
export const layer = <const Jobs extends ReadonlyArray<Job.Any>>(
  options: Options<Jobs>
): Layer.Layer<Worker, InvalidName | InvalidOption, Requirements<Jobs>> =>
  Layer.scoped(
    Worker,
    Effect.tap(make(options), (worker) => Effect.forkScoped(Restarting.forever(`Worker ${worker.id}`, worker.run)))
  )

const kindsOf = (
  settings: Settings,
  handlers: Context.Context<never>
): ReadonlyMap<string, ReadonlyMap<string, Kind>> => {
  const queues = new Map<string, Map<string, Kind>>()
  for (const job of settings.jobs) {
    const kinds = queues.get(job.queue) ?? new Map<string, Kind>()
    // The types of this module's functions ask for exactly these handlers.
    kinds.set(job.type, {
      runnable: Context.unsafeGet(handlers, Job.handlerTag(job.type)),
      metrics: Metrics.forJob(job)
    })
    queues.set(job.queue, kinds)
  }
  return queues
}

const healthOf = (settings: Settings, lines: ReadonlyArray<Shift.Line> | undefined): Effect.Effect<Health> =>
  Effect.map(Clock.currentTimeMillis, (now) => {
    const patience = Math.max(3 * Duration.toMillis(settings.poll), 10_000)
    const queues = (lines ?? []).map(
      ({ progress, queue, renewing, settling, slots }): QueueHealth => ({
        queue,
        stalled: progress.since(now) > patience || (slots.unwritten > 0 && now - (settling()?.since ?? now) > patience),
        sinceClaim: Duration.millis(progress.since(now)),
        running: slots.busy,
        waiting: slots.waiting,
        unwritten: slots.unwritten,
        fault: progress.fault ?? settling()?.last ?? (slots.busy > 0 ? renewing()?.last : undefined)
      })
    )
    const good = lines !== undefined && queues.every(({ stalled }) => !stalled)
    return { status: good ? "good" : "bad", worker: settings.worker, queues }
  })
