/**
 * Payloads and results as they are stored, compared with what a test expects.
 */
import { Effect, Exit, Option } from "effect"
import type * as Job from "../../Job.js"
import type { JobRecord } from "../../JobRecord.js"
import type { Equals } from "./Verdict.js"

// Assertions answer at once. A schema that can not, because it waits for something, is seen as one that does not fit.
const holds = <A>(decoded: Effect.Effect<A, unknown>, expected: A, equals: Equals): boolean => {
  const exit = Effect.runSyncExit(decoded)
  return Exit.isSuccess(exit) && equals(exit.value, expected)
}

export const hasPayload = <Type extends string, P, S, E>(
  job: Job.Job<Type, P, S, E>,
  { payload, payloadVersion }: JobRecord,
  expected: P,
  equals: Equals
): boolean => holds(job.payload.decodeVersion(payload, payloadVersion), expected, equals)

export const hasResult = <Type extends string, P, S, E>(
  job: Job.Job<Type, P, S, E>,
  { output }: JobRecord,
  expected: S,
  equals: Equals
): boolean => holds(job.success.decode(Option.getOrNull(output)), expected, equals)
