/**
 * Looks through the jobs of a snapshot, and tells them in words. Payloads, results and keys are only in these where the snapshot
 * was asked to show them.
 */
import { Option } from "effect"
import type { JobRecord } from "../../JobRecord.js"
import type { Snapshot, SnapshotJob } from "../Snapshot.js"
import type { Verdict } from "./Verdict.js"

/** What an assertion looks for among the jobs of one type. */
export interface Question {
  /** In words, after "expected". */
  readonly wanted: string
  /** Whether a job is in the state that is looked for. */
  readonly inState: (record: JobRecord) => boolean
  /** What else about a job is not as wanted, in words. */
  readonly differences: (row: SnapshotJob) => ReadonlyArray<string>
}

interface Candidate {
  readonly record: JobRecord
  readonly differences: ReadonlyArray<string>
  readonly found: boolean
}

/** Passes where at least one job of the type is as wanted. */
export const verdict = (snapshot: Snapshot, type: string, question: Question): Verdict => {
  const candidates = snapshot.jobs
    .filter(({ record }) => record.type === type)
    .map((row): Candidate => {
      const inState = question.inState(row.record)
      const differences = inState ? question.differences(row) : []
      return { record: row.record, differences, found: inState && differences.length === 0 }
    })
  const found = candidates.filter((candidate) => candidate.found)
  const pass = found.length > 0
  return {
    pass,
    message: () => {
      const head = pass
        ? `expected no ${question.wanted}, but there ${found.length === 1 ? "is one" : `are ${found.length}`}:`
        : `expected a ${question.wanted}, but there is none:`
      const lines = [...told(snapshot, pass ? found : candidates), ...others(snapshot, type)]
      return [head, ...(lines.length === 0 ? ["the queue is empty"] : lines)].join("\n  ")
    }
  }
}

/** How many jobs are told one by one. */
const most = 20

const told = ({ showPayloads }: Snapshot, candidates: ReadonlyArray<Candidate>): ReadonlyArray<string> => {
  const left = candidates.length - most
  return [
    ...candidates
      .slice(0, most)
      .flatMap(({ differences, record }) => [
        [`job ${record.id} is ${standing(record)}`, ...differences].join(", "),
        ...(showPayloads ? [`  payload ${record.payload ?? "none"}`] : []),
        ...(showPayloads && Option.isSome(record.output) ? [`  result ${record.output.value}`] : [])
      ]),
    ...(left > 0 ? [`and ${left} more of this type`] : []),
    ...(candidates.length > 0 && !showPayloads
      ? ["payloads and results are told where the test takes TestQueue.snapshot({ showPayloads: true })"]
      : [])
  ]
}

/** How a job stands: a dead one, or one that waits for a retry, with its last error. */
const standing = ({ attempt, errorCode, errorMessage, state }: JobRecord): string => {
  if (attempt === 0 || (state !== "dead" && state !== "pending")) return state
  const error = [errorCode, errorMessage].flatMap(Option.toArray).filter((text) => text !== "")
  const after = `${state} after ${attempt} ${attempt === 1 ? "attempt" : "attempts"}`
  return error.length === 0 ? after : `${after} (${error.join(": ")})`
}

/** The jobs of other types, which may be what the program enqueued instead. */
const others = ({ jobs }: Snapshot, type: string): ReadonlyArray<string> => {
  const counts = new Map<string, number>()
  for (const { record } of jobs) {
    if (record.type !== type) counts.set(record.type, (counts.get(record.type) ?? 0) + 1)
  }
  if (counts.size === 0) return []
  return [`of other types: ${Array.from(counts, ([other, count]) => `${count} × "${other}"`).join(", ")}`]
}
