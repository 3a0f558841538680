/**
 * Every metric of the library: name, unit, labels.
 *
 * The only labels are `queue`, `type` and `outcome`. Queues and types are those that the program's own jobs name, and outcomes
 * come from fixed lists, so the number of series is bounded whatever the jobs hold (scenario O2). Times are in seconds.
 *
 * @module
 */
import { Metric, MetricBoundaries, MetricLabel } from "effect"

/** A count that only rises. */
export type Counter = Metric.Metric.Counter<number>
/** How often which values occurred. */
export type Histogram = Metric.Metric.Histogram<number>

/** Labels that a program puts around a worker by `Effect.tagMetrics`, read once: for updates without an effect for each. */
export type Labels = ReadonlyArray<MetricLabel.MetricLabel>

const seconds = MetricBoundaries.exponential({ start: 0.001, factor: 2, count: 20 })
const counter = (name: string, description: string): Counter => Metric.counter(name, { description, incremental: true })

/**
 * Jobs that an enqueue created, by `queue` and `type`. In `Queue.withTransaction` they are counted when it has committed. In a
 * transaction of another client they are counted at once, also where it rolls back later: its end is not reported. Those of
 * `leasehold/adapters` are not counted.
 */
export const enqueued = counter("leasehold_jobs_enqueued_total", "Jobs created by enqueue")

/** Jobs that a worker claimed, by `queue` and `type`. */
export const claimed = counter("leasehold_jobs_claimed_total", "Jobs claimed by workers")

/**
 * Attempts that ended, by `queue`, `type` and `outcome`: `completed`, `retry`, `dead`, `snoozed`, `canceled`, `released`,
 * `lost` (nothing was written), `unfinished` (the worker stopped first).
 */
export const finished = counter("leasehold_attempts_finished_total", "Attempts that ended, by outcome")

/** Calls of `Queue.cancel`, by `outcome`: `canceled`, `requested`, `ended`. */
export const cancels = counter("leasehold_cancels_total", "Calls of cancel, by what they did")

/** From a job's due time to its claim by the database's clock, by `queue` and `type`. */
export const waited: Histogram = Metric.histogram("leasehold_job_wait_seconds", seconds, "From due to claimed")

/** How long handlers ran, by `queue` and `type`. */
export const ran: Histogram = Metric.histogram("leasehold_run_duration_seconds", seconds, "Run time of handlers")

/** Leases that were lost while they were held, by `queue` and `type`. */
export const leasesLost = counter("leasehold_leases_lost_total", "Leases lost while they were held")

/** Handlers that died of a defect, by `queue` and `type`. */
export const defects = counter("leasehold_defects_total", "Handlers that died of a defect")

/** Handlers that ran into their job's timeout, by `queue` and `type`. */
export const timeouts = counter("leasehold_timeouts_total", "Handlers that ran into their timeout")

/** Jobs of vanished holders that were ended by a claim or by the reaper, by `outcome`: `dead`, `canceled`. */
export const reaped = counter("leasehold_jobs_reaped_total", "Jobs of vanished holders that were ended")

/** Ended jobs that the cleaner deleted. */
export const cleaned = counter("leasehold_jobs_cleaned_total", "Ended jobs deleted by retention")

/** How long claims took, empty ones too, by `queue`. */
export const claimDuration: Histogram = Metric.histogram(
  "leasehold_claim_duration_seconds",
  seconds,
  "Time of one claim"
)

/** Leases that were to be renewed, by `outcome`: `renewed`, `lost`, `busy`, `failed`. */
export const renewals = counter("leasehold_renewals_total", "Renewed leases, by outcome")

/** Calls to the store that failed and are tried again, by `outcome`: the reason of the failure. */
export const faults = counter("leasehold_store_faults_total", "Failed calls to the database, by reason")

/** Handlers that run now, by `queue`. */
export const slotsInUse = Metric.gauge("leasehold_slots_in_use", { description: "Handlers that run now" })

/** Handlers that were given up because they ignore their interruption, and have not ended yet, by `queue`. */
export const stuckHandlers = Metric.gauge("leasehold_stuck_handlers", {
  description: "Handlers that ignored their interruption and still run"
})

/** Seconds since the last claim that the database answered, by `queue`; read every second. */
export const sinceClaim = Metric.gauge("leasehold_seconds_since_claim", {
  description: "Seconds since the last good claim"
})

/** How an attempt ended, as it is counted and logged. */
export type Ending = "completed" | "retry" | "dead" | "snoozed" | "canceled" | "released" | "lost" | "unfinished"

/**
 * A metric with its labels bound for good. `Metric.tagged` makes a new list of labels with each update and looks the series
 * up anew: that cost more than the rest of a no-op job (measured 2026-11-29). The same list is found at once.
 */
export const bind = <Type, In, Out>(
  metric: Metric.Metric<Type, In, Out>,
  labels: { readonly [Label in "queue" | "type" | "outcome"]?: string }
): Metric.Metric<Type, In, Out> => {
  const own = Object.entries(labels).map(([label, value]) => MetricLabel.make(label, value))
  const all = (extra: ReadonlyArray<MetricLabel.MetricLabel>) => (extra.length === 0 ? own : [...own, ...extra])
  return Metric.make(
    metric.keyType,
    (input, extra) => metric.unsafeUpdate(input, all(extra)),
    (extra) => metric.unsafeValue(all(extra)),
    (input, extra) => metric.unsafeModify(input, all(extra))
  )
}

/** The metrics of one job type, their labels bound once. */
export interface JobMetrics {
  readonly enqueued: Counter
  readonly claimed: Counter
  readonly waited: Histogram
  readonly ran: Histogram
  readonly leasesLost: Counter
  readonly defects: Counter
  readonly timeouts: Counter
  readonly finished: { readonly [E in Ending]: Counter }
}

/** The metrics of the jobs of one type. */
export const forJob = (job: { readonly queue: string; readonly type: string }): JobMetrics => {
  const { queue, type } = job
  const bound = <Type, In, Out>(metric: Metric.Metric<Type, In, Out>) => bind(metric, { queue, type })
  const ended = (outcome: Ending) => bind(finished, { queue, type, outcome })
  return {
    enqueued: bound(enqueued),
    claimed: bound(claimed),
    waited: bound(waited),
    ran: bound(ran),
    leasesLost: bound(leasesLost),
    defects: bound(defects),
    timeouts: bound(timeouts),
    finished: {
      completed: ended("completed"),
      retry: ended("retry"),
      dead: ended("dead"),
      snoozed: ended("snoozed"),
      canceled: ended("canceled"),
      released: ended("released"),
      lost: ended("lost"),
      unfinished: ended("unfinished")
    }
  }
}
