/**
 * Ends the jobs of vanished holders which no claim may take over: those without budget, and those that were canceled.
 *
 * Claims do the same on their way; the reaper is for queues that nobody claims any more. Both raise the token in the act, so
 * it happens once whoever comes first (law 2).
 */
import { type Duration, Effect } from "effect"
import type { JobStore } from "../JobStore.js"
import * as Vanished from "./Vanished.js"
import * as Walk from "./Walk.js"

export const run = (store: JobStore["Type"], interval: Duration.Duration): Effect.Effect<never> =>
  Walk.forever("reap", interval, (after) =>
    Effect.flatMap(store.reap(after, Walk.batchSize), ({ ended, next }) =>
      Effect.as(Vanished.report(ended), { next, idle: ended.length === 0 })
    )
  )
