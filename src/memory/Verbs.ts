/**
 * The verbs of the contract that write, each as one transaction: a pure function from the table to an answer and a new
 * table.
 */
import { DateTime, Duration, Either, HashMap, HashSet, Option } from "effect"
import { isEnded, JobId, type JobRecord } from "../JobRecord.js"
import type {
  CancelAnswer,
  Claimed,
  ClaimedJob,
  ClaimRequest,
  Cursor,
  EndedJob,
  Enqueued,
  JobFilter,
  NewJob,
  Refusal,
  Renewal,
  Settlement,
  SettleVerdict,
  Walked
} from "../JobStore.js"
import type { Lease } from "../Lease.js"
import { IdempotencyConflict, JobNotEnded, JobNotFound } from "../QueueError.js"
import * as Acts from "./Acts.js"
import * as Table from "./Table.js"

/** What a transaction answers and leaves behind. */
export type Change<A> = readonly [answer: A, table: Table.Table]

/** The same act for each item, in order, each on what the one before left. */
const inTurn = <Item, A>(
  table: Table.Table,
  items: ReadonlyArray<Item>,
  act: (table: Table.Table, item: Item) => Change<A>
): Change<ReadonlyArray<A>> => {
  const answers: Array<A> = []
  const left = items.reduce((at, item) => {
    const [answer, next] = act(at, item)
    answers.push(answer)
    return next
  }, table)
  return [answers, left]
}

export const enqueue = (
  table: Table.Table,
  jobs: ReadonlyArray<NewJob>,
  now: DateTime.Utc
): Change<Either.Either<ReadonlyArray<Enqueued>, IdempotencyConflict>> => {
  const [answers, filled] = inTurn(table, jobs, (at, job) => enqueueOne(at, job, table, now))
  const all = Either.all(answers)
  // All or nothing: a conflict anywhere leaves the table as it was.
  return [all, Either.isRight(all) ? filled : table]
}

const enqueueOne = (
  table: Table.Table,
  job: NewJob,
  before: Table.Table,
  now: DateTime.Utc
): Change<Either.Either<Enqueued, IdempotencyConflict>> => {
  const first = Option.flatMap(job.idempotency, ({ key, scope }) =>
    HashMap.get(table.keys, Table.keyOf(scope, key))
  ).pipe(Option.flatMap((id) => HashMap.get(table.rows, id)))
  if (Option.isSome(first)) {
    const {
      idempotency,
      record: { id }
    } = first.value
    const same = Option.getEquivalence<string>((a, b) => a === b)(
      Option.map(idempotency, ({ fingerprint }) => fingerprint),
      Option.map(job.idempotency, ({ fingerprint }) => fingerprint)
    )
    if (same) return [Either.right({ id, created: false }), table]
    // A job of the same call is undone with it: its id will mean nothing.
    const jobId = HashMap.has(before.rows, id) ? Option.some(id) : Option.none()
    return [Either.left(new IdempotencyConflict({ jobId, jobType: job.type })), table]
  }
  const lastId = table.lastId + 1
  const id = JobId.make(String(lastId))
  const record = newRecord(id, job, now)
  return [
    Either.right({ id, created: true }),
    Table.insert({ ...table, lastId }, { record, idempotency: job.idempotency, traceContext: job.traceContext })
  ]
}

const newRecord = (id: JobId, job: NewJob, now: DateTime.Utc): JobRecord => {
  const firstDueAt = Option.match(job.due, {
    onNone: () => now,
    onSome: (due) => ("at" in due ? due.at : DateTime.addDuration(now, due.after))
  })
  return {
    id,
    queue: job.queue,
    type: job.type,
    priority: job.priority,
    state: "pending",
    token: 0,
    attempt: 0,
    attemptsLeft: job.maxAttempts,
    maxAttempts: job.maxAttempts,
    worker: Option.none(),
    payload: job.payload,
    payloadVersion: job.payloadVersion,
    output: Option.none(),
    errorCode: Option.none(),
    errorMessage: Option.none(),
    cancelRequested: false,
    enqueuedAt: now,
    firstDueAt,
    // What is due in the past is due now: else a made-up date would overtake everything that waits.
    dueAt: Option.some(DateTime.max(firstDueAt, now)),
    finishedAt: Option.none(),
    attempts: []
  }
}

export const claim = (table: Table.Table, request: ClaimRequest, now: DateTime.Utc): Change<Claimed> => {
  if (HashSet.has(table.paused, request.queue)) return [{ jobs: [], ended: [], more: false }, table]
  const versions = new Map(request.types.map(({ type, version }) => [type, version]))
  const candidates = unlocked(table, Array.from(HashMap.values(table.rows)))
    .filter(
      ({ record }) =>
        record.queue === request.queue
        && record.payloadVersion <= (versions.get(record.type) ?? 0)
        && isDue(record, now)
    )
    .sort(byClaim)
  const { lease, worker } = request
  const taken = candidates
    .slice(0, request.limit)
    .flatMap((row) =>
      Option.toArray(Option.map(Acts.claim(row.record, worker, lease, now), (record) => ({ row, record })))
    )
  return [
    {
      jobs: taken.flatMap(({ record, row }) =>
        record.state === "running" ? [asClaimed(row, record, worker, now)] : []
      ),
      ended: taken.flatMap(({ record }) => asEnded(record)),
      more: candidates.length > request.limit
    },
    Table.update(
      table,
      taken.map(({ record }) => record)
    )
  ]
}

/** With a running job taken over by `worker`, as if its lease had ended just now; unchanged where it may not be taken over. */
export const takeOver = (
  table: Table.Table,
  record: JobRecord,
  worker: string,
  lease: Duration.Duration,
  now: DateTime.Utc
): Table.Table =>
  Table.update(table, Option.toArray(Acts.claim({ ...record, dueAt: Option.some(now) }, worker, lease, now)))

const unlocked = (table: Table.Table, rows: ReadonlyArray<Table.Row>): ReadonlyArray<Table.Row> =>
  rows.filter(({ record }) => !HashMap.has(table.locks, record.id))

const dueTime = (record: JobRecord): number =>
  Option.match(record.dueAt, { onNone: () => Infinity, onSome: ({ epochMillis }) => epochMillis })

const isDue = (record: JobRecord, now: DateTime.Utc): boolean => dueTime(record) <= now.epochMillis

const byClaim = (a: Table.Row, b: Table.Row): number =>
  a.record.priority - b.record.priority || dueTime(a.record) - dueTime(b.record) || Table.byId(a, b)

const asClaimed = (row: Table.Row, record: JobRecord, worker: string, now: DateTime.Utc): ClaimedJob => ({
  lease: { jobId: record.id, token: record.token, attempt: record.attempt, worker },
  queue: record.queue,
  type: record.type,
  priority: record.priority,
  payload: record.payload,
  payloadVersion: record.payloadVersion,
  attemptsLeft: record.attemptsLeft,
  maxAttempts: record.maxAttempts,
  waited: Duration.millis(now.epochMillis - dueTime(row.record)),
  traceContext: row.traceContext
})

const asEnded = ({ id, queue, state, type }: JobRecord): ReadonlyArray<EndedJob> =>
  state === "dead" || state === "canceled" ? [{ id, queue, type, state }] : []

export const renew = (
  table: Table.Table,
  leases: ReadonlyArray<Lease>,
  duration: Duration.Duration,
  now: DateTime.Utc
): Change<ReadonlyArray<Renewal>> =>
  inTurn(table, leases, (at, lease): Change<Renewal> => {
    if (HashMap.has(at.locks, lease.jobId)) return [{ _tag: "Busy" }, at]
    const record = Table.find(at, lease.jobId)
    if (Option.isNone(record)) return [{ _tag: "Lost", reason: "superseded" }, at]
    return Option.match(Acts.renew(record.value, lease, duration, now), {
      onNone: () => [{ _tag: "Lost", reason: Acts.lossOf(record.value) }, at],
      onSome: (renewed) => [{ _tag: "Renewed", cancelRequested: renewed.cancelRequested }, Table.update(at, [renewed])]
    })
  })

export const settle = (
  table: Table.Table,
  settlements: ReadonlyArray<readonly [Lease, Settlement]>,
  now: DateTime.Utc
): Change<ReadonlyArray<SettleVerdict>> =>
  inTurn(table, settlements, (at, [lease, settlement]): Change<SettleVerdict> => {
    if (HashMap.has(at.locks, lease.jobId)) return [{ _tag: "Busy" }, at]
    const record = Table.find(at, lease.jobId)
    if (Option.isNone(record)) return [{ _tag: "Unknown" }, at]
    return Option.match(Acts.settle(record.value, lease, settlement, now), {
      onNone: () => [Acts.readBack(record.value, lease, settlement), at],
      onSome: (settled) => [{ _tag: "Recorded", state: settled.state }, Table.update(at, [settled])]
    })
  })

export const cancel = (
  table: Table.Table,
  id: JobId,
  now: DateTime.Utc
): Change<Either.Either<CancelAnswer, JobNotFound>> => {
  const record = Table.find(table, id)
  if (Option.isNone(record)) return [Either.left(new JobNotFound({ jobId: id })), table]
  return Option.match(Acts.cancel(record.value, now), {
    onNone: () => [Either.right({ _tag: "ended", state: record.value.state }), table],
    onSome: (canceled) => [
      Either.right({ _tag: isEnded(canceled.state) ? "canceled" : "requested" }),
      Table.update(table, [canceled])
    ]
  })
}

export const retry = (
  table: Table.Table,
  id: JobId,
  now: DateTime.Utc
): Change<Either.Either<string, JobNotFound | JobNotEnded>> => {
  const record = Table.find(table, id)
  if (Option.isNone(record)) return [Either.left(new JobNotFound({ jobId: id })), table]
  return Option.match(Acts.retry(record.value, now), {
    onNone: () => [Either.left(new JobNotEnded({ jobId: id, state: record.value.state })), table],
    onSome: (retried) => [Either.right(retried.queue), Table.update(table, [retried])]
  })
}

export const retryAll = (
  table: Table.Table,
  filter: JobFilter,
  after: Cursor,
  limit: number,
  now: DateTime.Utc
): Change<Walked & { readonly retried: number; readonly queues: ReadonlyArray<string> }> => {
  const { next, rows } = Table.walk(table, after, limit)
  const retried = rows.flatMap(({ record }) => (matches(filter)(record) ? Option.toArray(Acts.retry(record, now)) : []))
  const queues = Array.from(new Set(retried.map(({ queue }) => queue)))
  return [{ next, retried: retried.length, queues }, Table.update(table, retried)]
}

export const matches =
  (filter: JobFilter) =>
  (record: JobRecord): boolean =>
    (filter.queue === undefined || filter.queue === record.queue)
    && (filter.type === undefined || filter.type === record.type)
    && (filter.state === undefined || filter.state === record.state)

export const setPaused = (table: Table.Table, queue: string, paused: boolean): Change<void> => [
  undefined,
  { ...table, paused: paused ? HashSet.add(table.paused, queue) : HashSet.remove(table.paused, queue) }
]

export const reap = (
  table: Table.Table,
  after: Cursor,
  limit: number,
  now: DateTime.Utc
): Change<Walked & { readonly ended: ReadonlyArray<EndedJob> }> => {
  const { next, rows } = Table.walk(table, after, limit)
  const ended = unlocked(table, rows).flatMap(({ record }) => Option.toArray(Acts.reap(record, now)))
  return [{ next, ended: ended.flatMap(asEnded) }, Table.update(table, ended)]
}

export const clean = (
  table: Table.Table,
  retention: { readonly [State in "succeeded" | "dead" | "canceled"]?: Duration.Duration },
  after: Cursor,
  limit: number,
  now: DateTime.Utc
): Change<Walked & { readonly cleaned: number }> => {
  const { next, rows } = Table.walk(table, after, limit)
  const gone = rows.filter(({ record: { finishedAt, state } }) => {
    const kept = state === "pending" || state === "running" ? undefined : retention[state]
    return (
      kept !== undefined
      && Option.exists(finishedAt, (end) => now.epochMillis - end.epochMillis > Duration.toMillis(kept))
    )
  })
  return [{ next, cleaned: gone.length }, Table.remove(table, gone)]
}

/** So many refused late writes are remembered of one job: the first ones. */
const mostRefusals = 20

export const recordRefusals = (
  table: Table.Table,
  refusals: ReadonlyArray<Refusal>,
  now: DateTime.Utc
): Change<void> => [
  undefined,
  {
    ...table,
    refusals: refusals.reduce((all, { lease: { jobId, token, worker }, verb }) => {
      const known = Option.getOrElse(HashMap.get(all, jobId), () => [])
      return known.length < mostRefusals && HashMap.has(table.rows, jobId)
        ? HashMap.set(all, jobId, [...known, { token, verb, worker, at: now }])
        : all
    }, table.refusals)
  }
]
