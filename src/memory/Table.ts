/**
 * The memory store's tables, as one immutable value: each change of it is a transaction.
 */
import { type Deferred, HashMap, HashSet, Option } from "effect"
import type { JobId, JobRecord } from "../JobRecord.js"
import type { Cursor, NewJob, QueueCount, RefusalRecord } from "../JobStore.js"

/** A job with the columns that a record does not show. */
export interface Row {
  readonly record: JobRecord
  readonly idempotency: NewJob["idempotency"]
  readonly traceContext: Option.Option<string>
}

export interface Table {
  readonly lastId: number
  readonly rows: HashMap.HashMap<JobId, Row>
  /** The jobs by {@link keyOf}. */
  readonly keys: HashMap.HashMap<string, JobId>
  readonly paused: HashSet.HashSet<string>
  readonly refusals: HashMap.HashMap<JobId, ReadonlyArray<RefusalRecord>>
  /** The rows that a `completeWith` has locked; each is done when its row is unlocked. */
  readonly locks: HashMap.HashMap<JobId, Deferred.Deferred<void>>
}

export const empty: Table = {
  lastId: 0,
  rows: HashMap.empty(),
  keys: HashMap.empty(),
  paused: HashSet.empty(),
  refusals: HashMap.empty(),
  locks: HashMap.empty()
}

/** One text for each pair of scope and key, and another one for any other pair. */
export const keyOf = (scope: string, key: string): string => JSON.stringify([scope, key])

export const find = (table: Table, id: JobId): Option.Option<JobRecord> =>
  Option.map(HashMap.get(table.rows, id), ({ record }) => record)

/** Ids have no leading zeros, so the longer one is the larger one. */
export const byId = (a: Row, b: Row): number =>
  a.record.id.length - b.record.id.length || (a.record.id < b.record.id ? -1 : 1)

/** The rows with ids above the cursor, by id. */
export const above = (table: Table, after: Cursor): ReadonlyArray<Row> => {
  const from = BigInt(after)
  return Array.from(HashMap.values(table.rows))
    .filter(({ record }) => BigInt(record.id) > from)
    .sort(byId)
}

/** The next rows of a walk, and where it goes on: none where fewer were left than it may look at. */
export const walk = (
  table: Table,
  after: Cursor,
  limit: number
): { readonly rows: ReadonlyArray<Row>; readonly next: Option.Option<Cursor> } => {
  const rows = above(table, after).slice(0, limit)
  const last = rows.at(-1)
  return { rows, next: last === undefined || rows.length < limit ? Option.none() : Option.some(last.record.id) }
}

export const counts = (table: Table): ReadonlyArray<QueueCount> => {
  const groups = new Map<string, QueueCount>()
  for (const {
    record: { queue, state }
  } of HashMap.values(table.rows)) {
    const group = `${queue} ${state}`
    groups.set(group, { queue, state, count: (groups.get(group)?.count ?? 0) + 1 })
  }
  return Array.from(groups.values())
}

export const insert = (table: Table, row: Row): Table => ({
  ...table,
  rows: HashMap.set(table.rows, row.record.id, row),
  keys: Option.match(row.idempotency, {
    onNone: () => table.keys,
    onSome: ({ key, scope }) => HashMap.set(table.keys, keyOf(scope, key), row.record.id)
  })
})

/** With other records for rows that are there. */
export const update = (table: Table, records: ReadonlyArray<JobRecord>): Table => ({
  ...table,
  rows: HashMap.mutate(table.rows, (rows) => {
    for (const record of records) HashMap.modify(rows, record.id, (row) => ({ ...row, record }))
  })
})

/** Without these rows, their keys and their refusals. */
export const remove = (table: Table, gone: ReadonlyArray<Row>): Table => {
  const ids = gone.map(({ record }) => record.id)
  const keys = gone.flatMap(({ idempotency }) => Option.toArray(idempotency).map(({ key, scope }) => keyOf(scope, key)))
  return {
    ...table,
    rows: HashMap.removeMany(table.rows, ids),
    keys: HashMap.removeMany(table.keys, keys),
    refusals: HashMap.removeMany(table.refusals, ids)
  }
}

/** Without these jobs. */
export const removeAll = (table: Table, ids: ReadonlyArray<JobId>): Table =>
  remove(
    table,
    ids.flatMap((id) => Option.toArray(HashMap.get(table.rows, id)))
  )
