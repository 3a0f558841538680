/**
 * Whether a queue holds a job that was enqueued as wanted.
 */
import { DateTime, Duration, Option } from "effect"
import type * as Job from "../../Job.js"
import type { When } from "../../Queue.js"
import type { Snapshot, SnapshotJob } from "../Snapshot.js"
import * as Listing from "./Listing.js"
import * as Stored from "./Stored.js"
import type { Equals, Verdict } from "./Verdict.js"

/** How a job was enqueued: the options of `Queue.enqueue` that can be seen in the queue. What is left out does not matter. */
export type EnqueuedAs = When & {
  readonly priority?: number
  /** The key that it bears, be it from the enqueue or from the job's `idempotencyKey`. `scope`: default none. */
  readonly idempotency?: { readonly scope?: string; readonly key: string }
}

export const enqueued = <Type extends string, P, S, E>(
  snapshot: Snapshot,
  job: Job.Job<Type, P, S, E>,
  payload: P | undefined,
  options: EnqueuedAs,
  equals: Equals
): Verdict => {
  const any = payload === undefined && Object.keys(options).length === 0
  return Listing.verdict(snapshot, job.type, {
    wanted: `job "${job.type}" in the queue${any ? "" : " as described"}`,
    inState: () => true,
    differences: (row) => [
      ...(payload === undefined || Stored.hasPayload(job, row.record, payload, equals) ? [] : ["its payload differs"]),
      ...differences(row, options)
    ]
  })
}

const differences = (
  { idempotency, record: { enqueuedAt, firstDueAt, priority: itsPriority } }: SnapshotJob,
  { delay, idempotency: identity, priority, runAt }: EnqueuedAs
): ReadonlyArray<string> => {
  const found: Array<string> = []
  const itsDelay = Duration.millis(Math.max(0, DateTime.distance(enqueuedAt, firstDueAt)))
  if (delay !== undefined && !Duration.equals(itsDelay, delay)) found.push(`its delay is ${Duration.format(itsDelay)}`)
  if (runAt !== undefined && !DateTime.Equivalence(firstDueAt, runAt)) {
    found.push(`it was first due at ${DateTime.formatIso(firstDueAt)}`)
  }
  if (priority !== undefined && itsPriority !== priority) found.push(`its priority is ${itsPriority}`)
  if (identity !== undefined) {
    const { key, scope = "" } = identity
    if (Option.isNone(idempotency)) found.push("it has no key")
    else if (idempotency.value.key !== key || idempotency.value.scope !== scope) found.push("its scope or key differs")
  }
  return found
}
