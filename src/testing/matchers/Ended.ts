/**
 * Whether a job of a queue has ended as wanted.
 */
import { Option } from "effect"
import type * as Job from "../../Job.js"
import type { Snapshot } from "../Snapshot.js"
import * as Listing from "./Listing.js"
import * as Stored from "./Stored.js"
import type { Equals, Verdict } from "./Verdict.js"

export const succeeded = <Type extends string, P, S, E>(
  snapshot: Snapshot,
  job: Job.Job<Type, P, S, E>,
  result: S | undefined,
  equals: Equals
): Verdict =>
  Listing.verdict(snapshot, job.type, {
    wanted: `job "${job.type}" to have succeeded${result === undefined ? "" : " with this result"}`,
    inState: ({ state }) => state === "succeeded",
    differences: ({ record }) =>
      result === undefined || Stored.hasResult(job, record, result, equals) ? [] : ["its result differs"]
  })

export const died = (snapshot: Snapshot, job: Job.Any, code: string | undefined): Verdict =>
  Listing.verdict(snapshot, job.type, {
    wanted: `job "${job.type}" to be dead${code === undefined ? "" : ` of "${code}"`}`,
    inState: ({ state }) => state === "dead",
    // Each line tells the error of its job.
    differences: ({ record: { errorCode } }) =>
      code === undefined || Option.contains(errorCode, code) ? [] : ["its error differs"]
  })
