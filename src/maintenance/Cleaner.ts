/**
 * Deletes ended jobs when their retention is over. A job's age counts from its end.
 */
import { type Duration, Effect, Metric } from "effect"
import type { JobStore } from "../JobStore.js"
import * as Metrics from "../Metrics.js"
import * as Walk from "./Walk.js"

/** Where a state has no retention, its jobs are kept for ever. */
export type Retention = Parameters<JobStore["Type"]["clean"]>[0]

export const run = (store: JobStore["Type"], interval: Duration.Duration, retention: Retention): Effect.Effect<never> =>
  Walk.forever("clean", interval, (after) =>
    Effect.flatMap(store.clean(retention, after, Walk.batchSize), ({ cleaned, next }) =>
      Effect.as(Metric.update(Metrics.cleaned, cleaned), { next, idle: cleaned === 0 })
    )
  )
