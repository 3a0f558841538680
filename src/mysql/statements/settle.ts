/**
 * Statements that only the holder of a lease may cause: settle and renew, in batches, each row behind its own fence.
 *
 * A batch is one packet: lock the rows by primary key in ascending order, reading what they say; write those that match
 * `running` and the token; commit. The locked read is the verdict, since nothing can change between it and the write.
 */
import type { Duration } from "effect"
import type { Settlement } from "../../JobStore.js"
import type { Lease } from "../../Lease.js"
import * as Literal from "../Literal.js"
import type { Tables } from "../Tables.js"

/**
 * What to do about rows that somebody else has locked. `NOWAIT`: fail the packet, which costs one round trip where nobody
 * does. `SKIP LOCKED`: leave them out, so that one stuck row does not stall its neighbours (ruling 3). `WAIT`: for as long as
 * `innodb_lock_wait_timeout`, where only one row is wanted.
 */
export type Contention = "NOWAIT" | "SKIP LOCKED" | "WAIT"

/** Locks rows by primary key and reads what decides about them. Rows that are missing in the answer are gone, or skipped. */
export const lockHeld = (tables: Tables, leases: ReadonlyArray<Lease>, contention: Contention): string =>
  `SELECT CAST(id AS CHAR) AS id, state, token, lease_owner, cancel_requested, attempts_left, max_attempts`
  + ` FROM ${tables.jobs} FORCE INDEX (PRIMARY) WHERE id IN (${Literal.sortedIds(leases.map(({ jobId }) => jobId))})`
  + ` ORDER BY ${tables.jobs}.id FOR UPDATE${contention === "WAIT" ? "" : ` ${contention}`}`

/** The same read without locks, with the ledger: what became of rows that did not match. */
export const readHeld = (tables: Tables, leases: ReadonlyArray<Lease>): string =>
  `SELECT CAST(id AS CHAR) AS id, state, token, lease_owner, cancel_requested, CAST(attempts AS CHAR) AS attempts`
  + ` FROM ${tables.jobs} FORCE INDEX (PRIMARY) WHERE id IN (${Literal.sortedIds(leases.map(({ jobId }) => jobId))})`

/**
 * The fence (law 2). The token alone would do as long as the database keeps what it has committed; where it does not, after a
 * failover of asynchronous replication or a restore, a token can be given out twice, but not to the same worker.
 */
const fence = "jobs.state = 1 AND jobs.token = item.token AND jobs.lease_owner = item.worker"

/** How each settlement is written into the ledger, and the state that it leads to where no cancel was requested. */
const written = {
  Complete: { outcome: "completed", state: 2, returned: 0 },
  RetryLater: { outcome: "retry", state: 0, returned: 0 },
  Bury: { outcome: "dead", state: 3, returned: 0 },
  Snooze: { outcome: "snoozed", state: 0, returned: 1 },
  Release: { outcome: "released", state: 0, returned: 1 },
  Cancel: { outcome: "canceled", state: 4, returned: 0 }
} as const

export const outcomeOf = (settlement: Settlement) => written[settlement._tag].outcome

/**
 * Writes the end of attempts whose rows are locked. By primary key. Zero rows for an item: its token is stale.
 *
 * A multi-table UPDATE assigns in no promised order, so nothing here reads a column that is assigned: the budget is only
 * changed by snooze and release, which do not read it. `cancel_requested` stays set, and turns every outcome into `canceled`
 * without output. All columns are ERROR ON ERROR: without it an over-long value would silently become NULL (measured).
 *
 * What all items have in common is no column but a literal: of the server's 65 to 70 µs for each of 64 plain completions, 15
 * went into columns that said the same for all (measured 2026-11-29).
 */
export const writeSettlements = (tables: Tables, settlements: ReadonlyArray<readonly [Lease, Settlement]>): string => {
  const items = toItems(settlements)
  const [first] = items
  const varying: Array<FieldName> = []
  const item = (name: FieldName): string => {
    if (items.some((other) => other[name] !== first?.[name])) {
      if (!varying.includes(name)) varying.push(name)
      return `item.${name}`
    }
    const value = first?.[name] ?? null
    if (value === null) return "NULL"
    return isNumber(name) ? Literal.digits(value) : Literal.name(value)
  }
  const now = "UTC_TIMESTAMP(6)"
  const canceled = "jobs.cancel_requested = 1"
  const dead = `${item("outcome")} = 'retry' AND jobs.attempts_left = 0`
  const outcome = `IF(${canceled}, 'canceled', IF(${dead}, 'dead', ${item("outcome")}))`
  const state = `IF(${canceled}, 4, IF(${dead}, 3, ${item("state")}))`
  const failed = `${item("outcome")} IN ('retry', 'dead', 'completed')`
  const assignments = [
    `jobs.attempts = IF(${item("code")} IS NULL,`
      + ` JSON_SET(jobs.attempts, '$[last].e', CAST(${now} AS CHAR), '$[last].o', ${outcome}),`
      + ` JSON_SET(jobs.attempts, '$[last].e', CAST(${now} AS CHAR), '$[last].o', ${outcome},`
      + ` '$[last].c', ${item("code")}, '$[last].m', ${item("message")}))`,
    `jobs.state = ${state}`,
    `jobs.due_at = IF(${state} = 0, ${now} + INTERVAL ${item("delay")} MICROSECOND, NULL)`,
    `jobs.finished_at = IF(${state} = 0, NULL, ${now})`,
    `jobs.attempts_left = LEAST(jobs.max_attempts, jobs.attempts_left + IF(${canceled}, 0, ${item("returned")}))`,
    `jobs.output = IF(${canceled}, NULL, ${item("output")})`,
    `jobs.error_code = IF(${failed}, ${item("code")}, jobs.error_code)`,
    `jobs.error_message = IF(${failed}, ${item("message")}, jobs.error_message)`,
    `jobs.lease_owner = NULL`
  ]
  const where = `jobs.state = 1 AND jobs.token = ${item("token")} AND jobs.lease_owner = ${item("worker")}`
  const columns = ["id" as const, ...varying]
  const rows = items.map((one) => columns.map((name) => one[name]))
  return (
    `UPDATE JSON_TABLE(${Literal.text(JSON.stringify(rows))}, '$[*]' COLUMNS (`
    + columns.map((name, index) => `${name} ${fieldTypes[name]} PATH '$[${index}]' ERROR ON ERROR`).join(", ")
    + `)) AS item STRAIGHT_JOIN ${tables.jobs} AS jobs FORCE INDEX (PRIMARY) ON jobs.id = item.id`
    + ` SET ${assignments.join(", ")} WHERE ${where}`
  )
}

const fieldTypes = {
  id: "BIGINT UNSIGNED",
  token: "BIGINT UNSIGNED",
  worker: "VARCHAR(64)",
  state: "TINYINT UNSIGNED",
  outcome: "VARCHAR(16)",
  returned: "TINYINT UNSIGNED",
  delay: "BIGINT",
  code: "VARCHAR(64)",
  message: "VARCHAR(1000)",
  output: "LONGTEXT"
} as const

type FieldName = keyof typeof fieldTypes
/** Numbers as digits: a JSON number above 2^53 would lose some on the way. */
type Fields = { readonly [Name in FieldName]: string | null }

const isNumber = (name: FieldName): boolean => fieldTypes[name].includes("INT")

const toItems = (settlements: ReadonlyArray<readonly [Lease, Settlement]>): ReadonlyArray<Fields> =>
  [...settlements]
    .sort(([a], [b]) => a.jobId.length - b.jobId.length || (a.jobId < b.jobId ? -1 : 1))
    .map(([lease, settlement]) => {
      const { outcome, returned, state } = written[settlement._tag]
      return {
        id: lease.jobId,
        token: String(lease.token),
        worker: lease.worker,
        state: String(state),
        outcome,
        returned: String(returned),
        delay: "delay" in settlement ? Literal.microseconds(settlement.delay) : "0",
        code: "code" in settlement ? settlement.code : null,
        message: "message" in settlement ? settlement.message : null,
        output: settlement._tag === "Complete" ? settlement.output : null
      }
    })

/** Extends locked leases by primary key, those with a cancel request too: their finalizers still run. Zero rows: stale. */
export const extend = (tables: Tables, leases: ReadonlyArray<Lease>, lease: Duration.Duration): string => {
  const items = [...leases]
    .sort((a, b) => a.jobId.length - b.jobId.length || (a.jobId < b.jobId ? -1 : 1))
    .map(({ jobId, token, worker }) => [Literal.digits(jobId), Literal.integer(token), worker])
  return (
    `UPDATE JSON_TABLE(${Literal.text(JSON.stringify(items))}, '$[*]' COLUMNS (`
    + `id BIGINT UNSIGNED PATH '$[0]' ERROR ON ERROR, token BIGINT UNSIGNED PATH '$[1]' ERROR ON ERROR,`
    + ` worker VARCHAR(64) PATH '$[2]' ERROR ON ERROR)) AS item`
    + ` STRAIGHT_JOIN ${tables.jobs} AS jobs FORCE INDEX (PRIMARY) ON jobs.id = item.id`
    + ` SET jobs.due_at = UTC_TIMESTAMP(6) + ${Literal.interval(lease)}`
    + ` WHERE ${fence}`
  )
}
