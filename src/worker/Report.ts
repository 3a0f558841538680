/**
 * What a worker tells about attempts: logs, metrics, spans. Never a payload, an output or a key (law 8).
 */
import { Duration, Effect, HashMap, LogLevel, Option } from "effect"
import type { ClaimedJob, Settlement } from "../JobStore.js"
import type * as Metrics from "../Metrics.js"
import type { Outcome } from "../Outcome.js"
import type { SettlementLost } from "../Settler.js"
import * as TraceContext from "../TraceContext.js"

/** What is told about, and how. */
interface Attempted {
  readonly metrics: Metrics.JobMetrics
  readonly labels: Metrics.Labels
  /** Logs a line in the attempt's surroundings, if that level is logged. */
  readonly log: (level: LogLevel.LogLevel, line: () => Effect.Effect<void>) => void
}

/** Of everything that is logged during an attempt, the handler's own lines too. */
export type Annotations = HashMap.HashMap<string, unknown>

/** The verb of each outcome, as it stands in the ledger of refusals. */
export const verbs: { readonly [Tag in Outcome["_tag"]]: string } = {
  Completed: "complete",
  Retry: "fail",
  Dead: "fail",
  Snooze: "snooze",
  Canceled: "cancel",
  Released: "release"
}

/** The annotations of everything that is logged during an attempt, the handler's own lines too. */
export const annotations = (job: ClaimedJob) => ({
  ...annotationsOfKind(job.type, job.queue, job.lease.worker),
  ...annotationsOfJob(job)
})

const annotationsOfKind = (type: string, queue: string, worker: string) => ({
  job_type: type,
  queue,
  worker_id: worker
})

const annotationsOfJob = (job: ClaimedJob) => ({
  job_id: job.lease.jobId,
  attempt: job.lease.attempt,
  max_attempts: Option.getOrElse(job.maxAttempts, () => "unlimited" as const),
  lease_token: job.lease.token
})

/** What {@link annotate} fills in: a key that is there already is replaced at less than half of what a new one costs. */
const blank: Record<keyof ReturnType<typeof annotationsOfJob>, string> = {
  job_id: "",
  attempt: "",
  max_attempts: "",
  lease_token: ""
}

/** Adds the annotations that all attempts of a worker on one type of job have, and room for those of an attempt. */
export const annotateKind = (those: Annotations, type: string, queue: string, worker: string): Annotations =>
  HashMap.union(those, HashMap.fromIterable(Object.entries({ ...annotationsOfKind(type, queue, worker), ...blank })))

/** Fills in the annotations of an attempt. */
export const annotate = (those: Annotations, job: ClaimedJob): Annotations =>
  HashMap.mutate(those, (all) => {
    for (const [key, value] of Object.entries(annotationsOfJob(job))) HashMap.set(all, key, value)
  })

/**
 * The span of one run, linked to the trace that the job was enqueued in. Not made where nobody collects it: it would cost as
 * much as the rest of a short attempt.
 */
export const inSpan = <A, E, R>(job: ClaimedJob, handler: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.withSpan(handler, "leasehold.run", {
    root: true,
    kind: "consumer",
    captureStackTrace: false,
    attributes: annotations(job),
    links: Option.match(Option.flatMap(job.traceContext, TraceContext.parse), {
      onNone: () => [],
      onSome: (span) => [{ _tag: "SpanLink" as const, span, attributes: {} }]
    })
  })

const messages: { readonly [E in Metrics.Ending]: string } = {
  completed: "Job completed",
  retry: "Job failed and is tried again",
  dead: "Job is dead",
  snoozed: "Job snoozed",
  canceled: "Job canceled",
  released: "Job given back",
  lost: "Lease lost, nothing was written",
  unfinished: "The worker stops and leaves the job to the end of its lease"
}

/** An attempt whose end is durable, or was left open on purpose. `ran` is the handler's time in milliseconds. */
export const ended = (attempt: Attempted, ending: Metrics.Ending, ran: number, settlement?: Settlement): void => {
  const { labels, metrics } = attempt
  metrics.finished[ending].unsafeUpdate(1, labels)
  const code = settlement !== undefined && "code" in settlement ? settlement.code : undefined
  if (code === "defect") metrics.defects.unsafeUpdate(1, labels)
  const level = ending === "retry" || ending === "dead" || ending === "unfinished" ? LogLevel.Warning : LogLevel.Info
  attempt.log(level, () => {
    const delay = settlement !== undefined && "delay" in settlement ? settlement.delay : undefined
    return Effect.annotateLogs(Effect.logWithLevel(level, messages[ending]), {
      duration_ms: ran,
      ...(code === undefined ? {} : { error_code: code }),
      ...(delay === undefined ? {} : { delay_ms: Math.round(Duration.toMillis(delay)) })
    })
  })
}

/** An attempt whose outcome was not written, or not by this settlement. */
export const unwritten = (attempt: Attempted, error: SettlementLost): void => {
  const { labels, metrics } = attempt
  metrics.finished.lost.unsafeUpdate(1, labels)
  if (error._tag === "LeaseLost") metrics.leasesLost.unsafeUpdate(1, labels)
  const level = error._tag === "OutcomeUnknown" ? LogLevel.Error : LogLevel.Warning
  attempt.log(level, () =>
    Effect.annotateLogs(Effect.logWithLevel(level, error.message), {
      error_code: error._tag === "LeaseLost" ? error.reason : error._tag
    })
  )
}
