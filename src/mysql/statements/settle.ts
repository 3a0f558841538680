/**
 * Statements that only the holder of a lease may cause: settle and renew, in batches, each row behind its own fence.
 *
 * A batch is first one statement that commits by itself, and writes the rows that are as nearly all are: held under their
 * token, locked by nobody else, with no cancel requested. Its count of rows is the verdict on all of them together. Where it
 * falls short, the batch is told apart in one packet: lock the rows by primary key in ascending order, reading what they say;
 * write those that match `running` and the token; commit. There the locked read is the verdict, since nothing can change
 * between it and the write; what the first statement has written is found in the ledger.
 *
 * Without the first statement a lone completion took 1.5 to 1.8 ms instead of 1.1, and 1.1 ms of the server's CPU instead of 0.7;
 * of 32 together each cost the process 29 to 37 µs instead of 13 to 22 (measured 2026-11-30).
 */
import { type Duration, Option } from "effect"
import type { Settlement } from "../../JobStore.js"
import type { Lease } from "../../Lease.js"
import * as Ends from "../Ends.js"
import * as Literal from "../Literal.js"
import type { Value } from "../Session.js"
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
  + ` FROM ${tables.jobs} FORCE INDEX (PRIMARY) WHERE id IN (${idsOf(leases)})`
  + ` ORDER BY ${tables.jobs}.id FOR UPDATE${contention === "WAIT" ? "" : ` ${contention}`}`

/**
 * The rows of a batch that nobody else has locked, locked in ascending order. {@link apart} keeps the server from merging it into
 * the statement around it, which would wait for the others (measured: 1205). The state is read since a statement that reads ids
 * alone walks over the whole table where statistics are wrong, whatever index it is told to use.
 */
const unlocked = (tables: Tables, ids: string): string =>
  `(SELECT id AS held_id FROM ${tables.jobs} FORCE INDEX (PRIMARY) WHERE id IN (${ids})`
  + ` AND state = 1 FOR UPDATE SKIP LOCKED) AS held`

const idsOf = (leases: ReadonlyArray<Lease>): string => Literal.sortedIds(leases.map(({ jobId }) => jobId))

const apart = "/*+ NO_MERGE(held) */"

/** The same read without locks, with the ledger: what became of rows that did not match. */
export const readHeld = (tables: Tables, leases: ReadonlyArray<Lease>): string =>
  `SELECT CAST(id AS CHAR) AS id, state, token, lease_owner, cancel_requested, CAST(attempts AS CHAR) AS attempts`
  + ` FROM ${tables.jobs} FORCE INDEX (PRIMARY) WHERE id IN (${idsOf(leases)})`

/**
 * The fence (law 2). The token alone would do as long as the database keeps what it has committed; where it does not, after a
 * failover of asynchronous replication or a restore, a token can be given out twice, but not to the same worker.
 */
const fence = "jobs.state = 1 AND jobs.token = item.token AND jobs.lease_owner = item.worker"

/**
 * Writes ends of attempts just as their settlements say, by primary key. Rows that it does not count are held under another
 * token or not at all, locked by somebody else, or to end otherwise than the settlement says.
 */
export const settle = (tables: Tables, settlements: ReadonlyArray<readonly [Lease, Settlement]>): string => {
  const items = new Ends.Items(settlements)
  const others = ["jobs.cancel_requested = 0"]
  if (items.mayBe("outcome", "retry")) others.push(`NOT (${deadByBudget(items)})`)
  const fenced = [fenceOf(items), ...others].join(" AND ")
  const held = unlocked(tables, idsOf(settlements.map(([lease]) => lease)))
  const source = items.isUniform ? held : `${items.table} STRAIGHT_JOIN ${held} ON held.held_id = item.id`
  return write(tables, source, plainly(items.said), fenced)
}

const write = (tables: Tables, source: string, assignments: ReadonlyArray<string>, fenced: string): string =>
  `UPDATE ${apart} ${source} STRAIGHT_JOIN ${tables.jobs} AS jobs FORCE INDEX (PRIMARY) ON jobs.id = held.held_id`
  + ` SET ${assignments.join(", ")} WHERE ${fenced}`

/** What is written where nothing is overruled. */
const plainly = (said: Ends.Says): ReadonlyArray<string> => assign(said, said)

/** Sizes of {@link complete}, ascending: larger batches gain nothing by it. Unused places repeat the first id. */
export const completeSizes = [1, 2, 4] as const
type CompleteSize = (typeof completeSizes)[number]

/**
 * {@link settle} for up to `size` completions without output, by one worker and under one token, as nearly all small batches are:
 * one of a few texts, to be prepared, since of the server's 0.9 ms for a lone one 0.15 to 0.2 went into parsing (measured
 * 2026-11-30).
 */
export const complete = (tables: Tables, size: CompleteSize): string =>
  write(
    tables,
    unlocked(tables, Array.from({ length: size }, () => Literal.boundNumber).join(", ")),
    plainly(Ends.saidBy({ _tag: "Complete", output: null })),
    `jobs.state = 1 AND jobs.token = ${Literal.boundNumber} AND jobs.lease_owner = ? AND jobs.cancel_requested = 0`
  )

/** The values of {@link complete}; none where the settlements are others. */
export const completeValues = (
  settlements: ReadonlyArray<readonly [Lease, Settlement]>
): Option.Option<{ readonly size: CompleteSize; readonly values: ReadonlyArray<Value> }> => {
  const [first] = settlements
  const size = completeSizes.find((most) => most >= settlements.length)
  if (first === undefined || size === undefined) return Option.none()
  const [{ token, worker }] = first
  const alike = settlements.every(
    ([lease, settlement]) =>
      settlement._tag === "Complete" && settlement.output === null && lease.token === token && lease.worker === worker
  )
  if (!alike) return Option.none()
  const ids = Array.from({ length: size }, (_, place) => settlements[place]?.[0].jobId ?? first[0].jobId)
  return Option.some({ size, values: [...ids, String(token), worker] })
}

/**
 * Writes the ends of attempts whose rows are locked, by primary key. Zero rows for an item: its token is stale.
 * `cancel_requested` stays set, and turns every outcome into `canceled` without output.
 */
export const writeSettlements = (tables: Tables, settlements: ReadonlyArray<readonly [Lease, Settlement]>): string => {
  const items = new Ends.Items(settlements)
  const canceled = "jobs.cancel_requested = 1"
  const ends = { outcome: ["'canceled'", "'dead'"], state: ["4", "3"] } as const
  const assignments = assign(items.said, (name) => {
    const own = items.said(name).sql
    if (name === "output") return { sql: `IF(${canceled}, NULL, ${own})` }
    if (name === "returned") return { sql: `IF(${canceled}, 0, ${own})` }
    const [whenCanceled, whenDead] = ends[name]
    return { sql: `IF(${canceled}, ${whenCanceled}, IF(${deadByBudget(items)}, ${whenDead}, ${own}))` }
  })
  return (
    `UPDATE ${items.table} STRAIGHT_JOIN ${tables.jobs} AS jobs FORCE INDEX (PRIMARY) ON jobs.id = item.id`
    + ` SET ${assignments.join(", ")} WHERE ${fenceOf(items)}`
  )
}

/** A retry without budget; never NULL, which is what a budget without end would make of `=`. */
const deadByBudget = (items: Ends.Items): string =>
  `${items.said("outcome").sql} = 'retry' AND jobs.attempts_left <=> 0`

const fenceOf = (items: Ends.Items): string =>
  `jobs.state = 1 AND jobs.token = ${items.said("token").sql} AND jobs.lease_owner = ${items.said("worker").sql}`

/**
 * What an end writes; `decided` says what becomes of the fields that a cancel or the end of the budget may overrule. What is known
 * here already is not asked of the server, which would parse and resolve it for each statement.
 *
 * A multi-table UPDATE assigns in no promised order, so nothing here reads a column that is assigned: the budget is only
 * changed by snooze and release, which do not read it.
 */
const assign = (
  says: Ends.Says,
  decided: (name: "outcome" | "state" | "returned" | "output") => Ends.Said
): ReadonlyArray<string> => {
  const now = "UTC_TIMESTAMP(6)"
  const [outcome, state, returned] = [decided("outcome"), decided("state"), decided("returned")]
  const [said, code, message] = [says("outcome"), says("code"), says("message")]
  const ended = `'$[last].e', CAST(${now} AS CHAR), '$[last].o', ${outcome.sql}`
  const assignments = [
    `jobs.attempts = ${Ends.either(
      Ends.is(code, null),
      `${code.sql} IS NULL`,
      `JSON_SET(jobs.attempts, ${ended})`,
      `JSON_SET(jobs.attempts, ${ended}, '$[last].c', ${code.sql}, '$[last].m', ${message.sql})`
    )}`,
    `jobs.state = ${state.sql}`,
    `jobs.due_at = ${Ends.either(
      Ends.is(state, "0"),
      `${state.sql} = 0`,
      `${now} + INTERVAL ${says("delay").sql} MICROSECOND`,
      "NULL"
    )}`,
    `jobs.finished_at = ${Ends.either(Ends.is(state, "0"), `${state.sql} = 0`, "NULL", now)}`,
    `jobs.output = ${decided("output").sql}`,
    `jobs.lease_owner = NULL`
  ]
  const failed = Ends.is(said, "retry", "dead", "completed")
  const tried = `${said.sql} IN ('retry', 'dead', 'completed')`
  if (failed !== false) {
    assignments.push(`jobs.error_code = ${Ends.either(failed, tried, code.sql, "jobs.error_code")}`)
    assignments.push(`jobs.error_message = ${Ends.either(failed, tried, message.sql, "jobs.error_message")}`)
  }
  if (Ends.is(returned, "0") !== true) {
    assignments.push(`jobs.attempts_left = LEAST(jobs.max_attempts, jobs.attempts_left + ${returned.sql})`)
  }
  return assignments
}

/**
 * Extends leases by primary key. Rows that it does not count are held under another token or not at all, locked by somebody
 * else, or to be canceled.
 */
export const renew = (tables: Tables, leases: ReadonlyArray<Lease>, lease: Duration.Duration): string =>
  `UPDATE ${apart} ${leaseTable(leases)} STRAIGHT_JOIN ${unlocked(tables, idsOf(leases))} ON held.held_id = item.id`
  + ` STRAIGHT_JOIN ${tables.jobs} AS jobs FORCE INDEX (PRIMARY) ON jobs.id = held.held_id`
  + ` SET ${extended(lease)} WHERE ${fence} AND jobs.cancel_requested = 0`

/** Extends locked leases by primary key, those with a cancel request too: their finalizers still run. Zero rows: stale. */
export const extend = (tables: Tables, leases: ReadonlyArray<Lease>, lease: Duration.Duration): string =>
  `UPDATE ${leaseTable(leases)} STRAIGHT_JOIN ${tables.jobs} AS jobs FORCE INDEX (PRIMARY) ON jobs.id = item.id`
  + ` SET ${extended(lease)} WHERE ${fence}`

const extended = (lease: Duration.Duration): string => `jobs.due_at = UTC_TIMESTAMP(6) + ${Literal.interval(lease)}`

const leaseTable = (leases: ReadonlyArray<Lease>): string => {
  const items = [...leases]
    .sort((a, b) => a.jobId.length - b.jobId.length || (a.jobId < b.jobId ? -1 : 1))
    .map(({ jobId, token, worker }) => [Literal.digits(jobId), Literal.integer(token), worker])
  return (
    `JSON_TABLE(${Literal.text(JSON.stringify(items))}, '$[*]' COLUMNS (`
    + `id BIGINT UNSIGNED PATH '$[0]' ERROR ON ERROR, token BIGINT UNSIGNED PATH '$[1]' ERROR ON ERROR,`
    + ` worker VARCHAR(64) PATH '$[2]' ERROR ON ERROR)) AS item`
  )
}
