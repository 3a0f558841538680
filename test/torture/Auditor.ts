/**
 * Reads a torture's records and says what must not have happened.
 */
import { Effect } from "effect"
import { all, type Check, type Kind, lateEvents } from "./Checks.js"
import type { Query } from "./Records.js"
import * as Recoveries from "./Recoveries.js"

export interface Finding {
  readonly kind: Kind
  readonly finding: string
  /** How many rows show it. */
  readonly count: number
  /** The first few of them. */
  readonly examples: ReadonlyArray<string>
}

export interface Audit {
  readonly findings: ReadonlyArray<Finding>
  /** Jobs that were ever committed, and how often one was claimed. */
  readonly jobs: number
  readonly claims: number
  readonly ended: { readonly [State in "succeeded" | "dead" | "canceled"]: number }
  readonly effects: number
  readonly refusals: number
  readonly lateEvents: number
  readonly recoveries: Recoveries.Recoveries
}

/** How many examples of a finding are told. */
const told = 5

export const audit = (query: Query): Effect.Effect<Audit> =>
  Effect.gen(function* () {
    const findings = yield* Effect.forEach(all, (check) => run(query, check))
    const [totals] = yield* query(
      "SELECT COALESCE(SUM(act = 'insert'), 0) AS jobs,"
        + " COALESCE(SUM(act = 'update' AND new_state = 1 AND new_token <> old_token), 0) AS claims,"
        + " COALESCE(SUM(act = 'update' AND old_state <> 2 AND new_state = 2), 0) AS succeeded,"
        + " COALESCE(SUM(act = 'update' AND old_state <> 3 AND new_state = 3), 0) AS dead,"
        + " COALESCE(SUM(act = 'update' AND old_state <> 4 AND new_state = 4), 0) AS canceled FROM audit_changes"
    )
    const number = (name: string) => Number(totals?.[name] ?? 0)
    const count = (table: string) =>
      Effect.map(query(`SELECT COUNT(*) AS count FROM ${table}`), ([row]) => Number(row?.["count"] ?? 0))
    return {
      findings: findings.filter((finding) => finding.count > 0),
      jobs: number("jobs"),
      claims: number("claims"),
      ended: { succeeded: number("succeeded"), dead: number("dead"), canceled: number("canceled") },
      effects: yield* count("audit_effects"),
      refusals: yield* count("leasehold_refusals"),
      lateEvents: Number((yield* query(lateEvents))[0]?.["count"] ?? 0),
      recoveries: yield* Recoveries.read(query)
    }
  })

const run = (query: Query, { finding, kind, statement }: Check): Effect.Effect<Finding> =>
  Effect.map(query(statement), (rows) => ({
    kind,
    finding,
    count: rows.length,
    examples: rows.slice(0, told).map((row) => `job ${String(row["job_id"])}: ${String(row["detail"])}`)
  }))

/** How many rows speak against the library, by kind. */
export const countOf = (findings: ReadonlyArray<Finding>, kind: Kind): number =>
  findings.filter((finding) => finding.kind === kind).reduce((sum, { count }) => sum + count, 0)

/** The value below which this share of sorted ones lies; none of none. */
export const percentile = (sorted: ReadonlyArray<number>, share: number): number | null => {
  const value = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]
  return value === undefined ? null : Math.round(value)
}
