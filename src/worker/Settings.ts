/**
 * A worker's options, and what they are after they were checked.
 */
import { type Duration, Effect, Option } from "effect"
import type * as Job from "../Job.js"
import type * as Maintenance from "../Maintenance.js"
import { type InvalidName, InvalidOption } from "../QueueError.js"
import * as Setting from "../Setting.js"
import * as WorkerId from "../WorkerId.js"

/** Written inline, or kept apart with `satisfies Worker.Options`. */
export interface Options<Jobs extends ReadonlyArray<Job.Any> = ReadonlyArray<Job.Any>> {
  /** The jobs to work on; each needs its handler, from `job.toLayer`. Other jobs of the same queues are left alone. */
  readonly jobs: Jobs
  /** How to work on the jobs' queues. A queue that is left out has the defaults; one that no job uses is refused. */
  readonly queues?: {
    readonly [queue: string]: {
      /** Handlers at once: 1 to 10,000, default 10. */
      readonly concurrency?: number
      /**
       * Jobs that may be claimed ahead of a free slot: 0 to 1,000; default twenty times `concurrency`, but 64 to 600, and for
       * more than 600 handlers as many as those, up to 1,000. Never more are than
       *
       * - should start within 200 ms by how long handlers took of late, and their results to become durable: none while either is long;
       * - twice as many as were begun in the last 200 ms or more, and one for each slot beside;
       * - hold about 16 million characters of payloads, by those of the last claims.
       *
       * They are renewed while they wait, and one that waited for a second is given back.
       */
      readonly prefetch?: number
    }
  }
  /** How long a claim or a renewal holds a job: 300 ms to 1 day, default 30 seconds. Renewed at every third. */
  readonly lease?: Duration.DurationInput
  /** The longest time between two looks for due jobs: 10 ms to 1 day, default 1 second. */
  readonly poll?: Duration.DurationInput
  readonly shutdown?: {
    /** How long handlers may go on after a stop: 0 to 365 days, default 25 seconds. */
    readonly grace?: Duration.DurationInput
    /**
     * What becomes of a job whose handler was interrupted by a stop: `release`, the default, gives it back, due at once and
     * without cost to its budget; `expire` leaves it until its lease has run out.
     */
    readonly unfinished?: "release" | "expire"
  }
  /**
   * How long a handler may take to end when it is interrupted, by a timeout, a cancel, a lost lease or a stop: 10 ms to
   * 1 hour, default 5 seconds. One that takes longer is given up: its slot is free again, what it answers is dropped, and
   * `leasehold_stuck_handlers` counts it until it ends.
   */
  readonly interruptGrace?: Duration.DurationInput
  /** Reaps and cleans beside the work, by default; `false`: not here. */
  readonly maintenance?: false | Maintenance.Options
  /** Names this worker in leases and ledgers. Default: host, process and a random part. */
  readonly workerId?: string
}

/** What all the options came to. */
export interface Settings {
  readonly worker: string
  readonly jobs: ReadonlyArray<Job.Any>
  readonly queues: ReadonlyMap<string, QueueSettings>
  readonly lease: Duration.Duration
  readonly poll: Duration.Duration
  readonly grace: Duration.Duration
  readonly interruptGrace: Duration.Duration
  readonly unfinished: "release" | "expire"
}

export interface QueueSettings {
  readonly concurrency: number
  /** Jobs that may be claimed ahead of a free slot. */
  readonly ahead: number
}

const defaultConcurrency = 10
const mostAhead = 1_000
/**
 * Jobs claimed ahead by default: with fewer, a queue of short jobs would spend its time on claims. 600 instead of 200 at 32 slots made
 * drains and lives a tenth faster (2026-11-30, medians of six in turn).
 */
const aheadOf = (concurrency: number): number =>
  Math.min(mostAhead, Math.max(concurrency, Math.min(600, Math.max(64, 20 * concurrency))))

/** Checks all options; fails with the first that is out of range, named as it was written. */
export const check = (options: Options): Effect.Effect<Settings, InvalidOption | InvalidName> =>
  Effect.gen(function* () {
    const shutdown = options.shutdown ?? {}
    return {
      worker: yield* Setting.name("worker id", options.workerId ?? WorkerId.make()),
      jobs: yield* checkJobs(options.jobs),
      queues: yield* checkQueues(options.jobs, options.queues ?? {}),
      lease: yield* Setting.duration("lease", options.lease, "30 seconds", "300 millis", "1 day"),
      poll: yield* Setting.duration("poll", options.poll, "1 second", "10 millis", "1 day"),
      grace: yield* Setting.duration("shutdown.grace", shutdown.grace, "25 seconds", "0 millis", "365 days"),
      interruptGrace: yield* Setting.duration(
        "interruptGrace",
        options.interruptGrace,
        "5 seconds",
        "10 millis",
        "1 hour"
      ),
      unfinished: yield* Setting.word("shutdown.unfinished", shutdown.unfinished, ["release", "expire"])
    }
  })

const checkJobs = (
  jobs: ReadonlyArray<Job.Any>
): Effect.Effect<ReadonlyArray<Job.Any>, InvalidOption | InvalidName> => {
  if (jobs.length === 0)
    return Effect.fail(new InvalidOption({ option: "jobs", value: "[]", accepted: "one job or more" }))
  const types = new Set<string>()
  for (const job of jobs) {
    if (Option.isSome(job.invalid)) return Effect.fail(job.invalid.value)
    if (types.has(job.type)) {
      return Effect.fail(new InvalidOption({ option: "jobs", value: job.type, accepted: "each job type once" }))
    }
    types.add(job.type)
  }
  return Effect.succeed(jobs)
}

const checkQueues = (
  jobs: ReadonlyArray<Job.Any>,
  given: NonNullable<Options["queues"]>
): Effect.Effect<ReadonlyMap<string, QueueSettings>, InvalidOption | InvalidName> =>
  Effect.gen(function* () {
    const used = new Set(jobs.map((job) => job.queue))
    for (const queue of Object.keys(given)) {
      yield* Setting.name("queue", queue)
      if (!used.has(queue)) {
        // A misspelt queue would otherwise leave the real one at its defaults, silently.
        const accepted = `a queue of one of the jobs: ${Array.from(used).join(", ")}`
        return yield* new InvalidOption({ option: `queues.${queue}`, value: queue, accepted })
      }
    }
    const queues = new Map<string, QueueSettings>()
    for (const queue of used) {
      const { concurrency: wanted, prefetch } = given[queue] ?? {}
      const option = `queues.${queue}`
      const concurrency = yield* Setting.wholeNumber(`${option}.concurrency`, wanted, defaultConcurrency, 1, 10_000)
      const ahead = yield* Setting.wholeNumber(`${option}.prefetch`, prefetch, aheadOf(concurrency), 0, mostAhead)
      queues.set(queue, { concurrency, ahead })
    }
    return queues
  })
