/**
 * What is told about jobs whose holder vanished, and which a claim or the reaper has ended.
 */
import { Effect, Metric } from "effect"
import type { EndedJob } from "../JobStore.js"
import * as Metrics from "../Metrics.js"

/** Counts and logs them, each as a warning. */
export const report = (jobs: ReadonlyArray<EndedJob>): Effect.Effect<void> =>
  Effect.forEach(
    jobs,
    (job) =>
      Metric.update(Metrics.bind(Metrics.reaped, { outcome: job.state }), 1).pipe(
        Effect.zipRight(
          Effect.logWarning(
            job.state === "dead"
              ? "Job is dead: its worker vanished and its budget is spent"
              : "Job canceled: its worker vanished"
          )
        ),
        Effect.annotateLogs({ job_id: job.id, job_type: job.type, queue: job.queue, error_code: "lease_expired" })
      ),
    { discard: true }
  )
