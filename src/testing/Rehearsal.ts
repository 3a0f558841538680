/**
 * Rehearses what at-least-once delivery means for a handler: a process that dies, or stalls, at each of its steps.
 *
 * ```ts
 * const report = yield* Rehearsal.crash(ExportOrder, { orderId: 7 }, {
 *   world: FileStoreFake,        // other systems: they outlive the process
 *   handler: ExportOrderLive,    // the process: built anew for each
 *   observe: Effect.flatMap(FileStore, (files) => files.list)
 * })
 * expect(report).toBeIdempotent()   // of leasehold/testing/vitest; or look at report.failures
 * ```
 *
 * Each rehearsal has a world and a memory queue of its own. Its clock stands still while anything runs and jumps to the next
 * sleep when nothing does, so neither sleeps nor leases cost time. Handlers should do nothing real: work that a handler waits
 * for and that is not done after two turns of the event loop lets the clock run ahead.
 *
 * The job runs once for each point, about a hundred times for a small handler, at 10 to 40 milliseconds each: give such a test
 * a timeout of 30 seconds, and 2 minutes for a handler with up to 2,000 points.
 *
 * @module
 */
import { isDeepStrictEqual } from "node:util"
import {
  Clock,
  type Context,
  Data,
  Deferred,
  Duration,
  Effect,
  Equal,
  Fiber,
  Layer,
  Logger,
  LogLevel,
  Option,
  Random
} from "effect"
import type * as Job from "../Job.js"
import { isEnded, type JobId, type JobState } from "../JobRecord.js"
import type { JobStore } from "../JobStore.js"
import { MemoryTable } from "../memory/MemoryJobStore.js"
import * as Queue from "../Queue.js"
import type { Wakeup } from "../Wakeup.js"
import * as Attempts from "./Attempts.js"
import * as MemoryQueue from "./MemoryQueue.js"
import { type Fate, Process } from "./rehearsal/Process.js"
import { VirtualClock } from "./rehearsal/VirtualClock.js"

/** What the memory queue of a rehearsal provides to handler, world and observation. */
export type QueueServices = JobStore | Queue.Queue | Wakeup | MemoryTable

/** What to rehearse, and within which limits. */
export interface Options<Type extends string, W, A, EW, EH, EO> {
  /** The other systems, as fakes. Built once for each rehearsal; they outlive the process that dies. */
  readonly world: Layer.Layer<W, EW, QueueServices>
  /** The job's handler, from `job.toLayer`. Built by each process: what it keeps in memory dies with it. */
  readonly handler: Layer.Layer<Job.JobHandler<Type>, EH, W | QueueServices>
  /** What is compared: the state of the world after the job has ended. Leave out what may differ, such as times. */
  readonly observe: Effect.Effect<A, EO, W | QueueServices>
  /** Whether two observations are the same. Default: `Equal.equals`, or deeply the same structure. */
  readonly same?: (clean: A, observed: A) => boolean
  /** The most points of one rehearsal; default 2,000. Each takes 10 to 40 milliseconds, so raise the test's timeout. */
  readonly limit?: number
}

/** A point after which the world was not the same as after a clean run. */
export interface Failure<A> {
  /** Steps that the handler had made, of `Report.points`. */
  readonly point: number
  /** At that point, before anybody did more. */
  readonly left: A
  /** After the job was run to its end again. */
  readonly observed: A
  readonly state: JobState
}

/** What a rehearsal has seen. */
export interface Report<A> {
  /** How many points there were: each was rehearsed. */
  readonly points: number
  /** What a run without any fault leaves. */
  readonly clean: A
  /** None: the handler's effects are idempotent, as far as `observe` sees them. */
  readonly failures: ReadonlyArray<Failure<A>>
}

/** The handler has more steps than the limit: rehearse a smaller part, or raise it. */
export class TooManyPoints extends Data.TaggedError("TooManyPoints")<{
  readonly points: number
  readonly limit: number
}> {
  override get message() {
    return `The handler has ${this.points} steps; the limit is ${this.limit}. Rehearse a smaller part of it, or raise the limit.`
  }
}

/** The job did not end within a week of the rehearsal's time, or the handler took other steps than in its clean run. */
export class RehearsalStuck extends Data.TaggedError("RehearsalStuck")<{
  readonly point: number
  readonly reason: "unending" | "unreached"
}> {
  override get message() {
    return this.reason === "unending"
      ? `The job does not end (stopped at point ${this.point}; 0 is the clean run): a handler waits for ever, or snoozes or retries without end.`
      : `Point ${this.point} of the clean run was not reached again: the handler does not take the same steps each time.`
  }
}

/** What a rehearsal can fail with beside what the program's own effects do. */
export type RehearsalError = TooManyPoints | RehearsalStuck | Queue.EnqueueError | Queue.FindError

/** The shape that all rehearsals have. */
export type Rehearse = <Type extends string, P, S, E, W, A, EW, EH, EO>(
  job: Job.Job<Type, P, S, E>,
  payload: P,
  options: Options<Type, W, A, EW, EH, EO>
) => Effect.Effect<Report<A>, RehearsalError | EW | EH | EO>

/**
 * The process dies at every point of the handler, as by `kill -9`: no finalizer runs, open transactions are undone. When the
 * lease has ended another process runs the job again, to its end.
 *
 * A point is before each step of Effect's runtime, at each suspension, and after the handler has ended but nothing is recorded.
 * An attempt that is cut off is paid for: a job with `maxAttempts: 1` is dead after it.
 */
export const crash: Rehearse = (job, payload, options) => rehearse(job, payload, options, "dies", () => true)

/**
 * The process stalls at every point, as in a long pause, until its lease has ended and another one has run the job to its end.
 * Then it goes on, and does not know. What keeps it from doing harm is `lease.token`, looked at by the other system, or
 * `lease.completeWith`. Points are as in {@link crash}.
 */
export const stall: Rehearse = (job, payload, options) => rehearse(job, payload, options, "stalls", () => true)

/**
 * The job is delivered once more after it was done: the process dies when the handler has ended and nothing is recorded. The
 * last point of {@link crash} alone, which is the commonest way to meet a job twice.
 */
export const duplicate: Rehearse = (job, payload, options) =>
  rehearse(job, payload, options, "dies", (point, last) => point === last)

/** Long, so that a handler that sleeps is not renewed at every jump of the clock. */
const leaseLength = Duration.hours(1)
/** How long a process that stalls is waited for; it may hold the job's row, so that nobody can take the job over. */
const longestStall = Duration.toMillis(Duration.minutes(65))

const rehearse = <Type extends string, P, S, E, W, A, EW, EH, EO>(
  job: Job.Job<Type, P, S, E>,
  payload: P,
  options: Options<Type, W, A, EW, EH, EO>,
  fate: Fate,
  wanted: (point: number, last: number) => boolean
): Effect.Effect<Report<A>, RehearsalError | EW | EH | EO> =>
  Effect.gen(function* () {
    const { limit = 2_000, same = isSame } = options
    const clean = yield* play(job, payload, options, fate, 0)
    const points = clean.steps
    if (points > limit) return yield* new TooManyPoints({ points, limit })
    const failures: Array<Failure<A>> = []
    for (let point = 1; point <= points; point++) {
      if (!wanted(point, points)) continue
      const { left, observed, state } = yield* play(job, payload, options, fate, point)
      if (!same(clean.observed, observed)) failures.push({ point, left, observed, state })
    }
    return { points, clean: clean.observed, failures }
  })

const isSame = (a: unknown, b: unknown): boolean => Equal.equals(a, b) || isDeepStrictEqual(a, b)

/** One rehearsal: the job from its enqueue to its end, with a first process that stops at `point`; 0: it does not. */
const play = <Type extends string, P, S, E, W, A, EW, EH, EO>(
  job: Job.Job<Type, P, S, E>,
  payload: P,
  { handler, observe, world }: Options<Type, W, A, EW, EH, EO>,
  fate: Fate,
  point: number
): Effect.Effect<
  { readonly steps: number; readonly left: A; readonly observed: A; readonly state: JobState },
  RehearsalError | EW | EH | EO
> => {
  const clock = new VirtualClock()
  return Effect.gen(function* () {
    const scene = yield* Layer.build(Layer.provideMerge(world, MemoryQueue.layer))
    const inScene = Effect.provide(scene)
    const { id } = yield* inScene(Queue.enqueue(job, payload))
    const start = (process: Process, name: string) =>
      work(job, id, handler, process, name).pipe(
        inScene,
        Effect.withRandom(Random.make(name)),
        Effect.forkDaemon,
        (effect) => process.run(effect)
      )

    const first = new Process(point, fate)
    const firstFiber = yield* start(first, "first")
    const early = yield* clock.whilePassing(
      [first],
      Effect.raceFirst(Effect.as(Deferred.await(first.stopped), false), Effect.as(Fiber.join(firstFiber), true))
    )
    if (early && point > 0) return yield* new RehearsalStuck({ point, reason: "unreached" })
    if (!early && fate === "dies") yield* inScene(Effect.flatMap(MemoryTable, ({ dropConnections }) => dropConnections))
    const left = yield* inScene(observe)
    if (!early) {
      const second = new Process(0, "dies")
      const secondFiber = yield* start(second, "second")
      const end = Fiber.join(secondFiber)
      if (fate === "dies") yield* clock.whilePassing([second], end)
      else {
        const patience = Clock.sleep(longestStall)
        yield* clock.whilePassing([first, second], Effect.raceFirst(end, patience))
        first.resume()
        yield* clock.whilePassing([first, second], Effect.zipRight(Fiber.join(firstFiber), end))
      }
    }
    const { state } = yield* inScene(Queue.get(id))
    return { steps: first.steps, left, observed: yield* inScene(observe), state }
  }).pipe(
    Effect.scoped,
    Effect.catchTag("Unending", () => new RehearsalStuck({ point, reason: "unending" })),
    Effect.withClock(clock),
    // Hundreds of lives of the same job: nobody reads what each of them logs.
    Logger.withMinimumLogLevel(LogLevel.None)
  )
}

/** What a process does: builds its handler, and runs the job until it has ended, by this process or by another one. */
const work = <Type extends string, P, S, E, W, EH>(
  job: Job.Job<Type, P, S, E>,
  id: JobId,
  handler: Layer.Layer<Job.JobHandler<Type>, EH, W | QueueServices>,
  process: Process,
  name: string
) =>
  Effect.gen(function* () {
    const handlers: Context.Context<never> = yield* Layer.build(handler)
    const around = <B, F>(effect: Effect.Effect<B, F>) => process.counted(effect)
    const attempts = yield* Attempts.make({ jobs: [job], handlers, worker: name, lease: leaseLength, around })
    while (true) {
      const ended = yield* attempts.next
      const { dueAt, state } = yield* Queue.get(id)
      if (isEnded(state)) return
      const now = yield* Clock.currentTimeMillis
      if (Option.isSome(ended)) continue
      const due = Option.match(dueAt, { onNone: () => now, onSome: ({ epochMillis }) => epochMillis })
      yield* Clock.sleep(Duration.millis(due > now ? due - now : 60_000))
    }
  }).pipe(Effect.scoped)
