/**
 * The jobs of a torture. What a handler does with one was decided by whoever enqueued it, from the seed.
 */
import { Schema } from "effect"
import { Job, RetryPolicy } from "../../src/index.js"

/**
 * How an attempt ends, after `millis` of work. `retry`, `snooze` and `die`: so on its first attempt, then it succeeds. `spin`:
 * on its first attempt it blocks the event loop for `millis`, so that nothing else in its process runs.
 */
export const Ending = Schema.Literal("succeed", "retry", "snooze", "bury", "die", "spin")

const payload = {
  /** Names the enqueue that made the job. */
  ref: Schema.Number,
  millis: Schema.Number,
  ending: Ending
}

/** Whose handler answered. */
const success = Schema.Struct({ token: Schema.Number, worker: Schema.String })

const retry = RetryPolicy.exponential({ maxAttempts: 8, base: "50 millis", max: "1 second" })

/** Writes its effect in a commit of its own. */
export const Plain = Job.make("torture.plain", {
  payload,
  success,
  retry,
  queue: "torture.plain",
  timeout: "20 seconds"
})

/** Writes its effect by `completeWith`. */
export const Exact = Job.make("torture.exact", {
  payload,
  success,
  retry,
  queue: "torture.exact",
  timeout: "20 seconds"
})

/** As `Plain`, but a few long ones that never wait for a slot: from them it is seen how long a takeover takes. */
export const Watched = Job.make("torture.watched", {
  payload,
  success,
  retry,
  queue: "torture.watched",
  timeout: "20 seconds"
})

export type Payload = Schema.Struct.Type<typeof payload>

export const lease = "2 seconds"
export const poll = "200 millis"

/** What a worker process of the torture is told at its start. */
export interface Orders {
  /** Through a proxy of its own. */
  readonly url: string
  /** To the server itself: what handlers saw is written past all faults of the network. */
  readonly historyUrl: string
  readonly workerId: string
}
