/**
 * What there is to see: each order beside its job, as both stand in the database.
 */
import type { SqlError } from "@effect/sql"
import { Array, type Cause, DateTime, Duration, Effect, Option, Order as Ordering } from "effect"
import { type Attempt, JobRecord, Queue, type QueueError } from "leasehold"
import { ExportOrder } from "./ExportOrder.js"
import { type Order, Orders } from "./Orders.js"

export interface Line {
  readonly order: number
  readonly item: string
  readonly orderStatus: Order["status"]
  readonly job: JobRecord.JobId
  readonly state: JobRecord.JobState
  readonly attempt: number
  /** Who holds the job, while it runs. */
  readonly worker: Option.Option<string>
  /** What happened in the attempts before: the last error, or that a worker vanished. */
  readonly trouble: Option.Option<string>
  /** How long it takes until a pending job is due, or until the lease of a running one ends. */
  readonly dueIn: Duration.Duration
  /** The job had ended before the board was made. */
  readonly old: boolean
}

export type BoardError = SqlError.SqlError | QueueError.StoreError | QueueError.InvalidOption | Cause.TimeoutException

export interface Board {
  /** Reads the database; answers the lines, by order. */
  readonly read: Effect.Effect<ReadonlyArray<Line>, BoardError>
}

export const isOpen = (line: Line): boolean => !JobRecord.isEnded(line.state)

const pageSize = 500

/** Orders that are placed at the same time commit in any sequence: one may appear so far behind others with higher numbers. */
const late = 100

/** A board of all orders that the database has or gets. */
export const make: Effect.Effect<Board, BoardError, Orders | Queue.Queue> = Effect.gen(function* () {
  const orders = yield* Orders
  const queue = yield* Queue.Queue
  const lines = new Map<number, Line>()
  let firstOrder = 0
  let beforeJob = ""
  let began = false

  const jobs = Effect.gen(function* () {
    const found = new Map<string, JobRecord.JobRecord>()
    for (let after = beforeJob, full = true; full; ) {
      const page = yield* queue.list({ queue: ExportOrder.queue, type: ExportOrder.type, after, limit: pageSize })
      for (const job of page) found.set(job.id, job)
      after = page.at(-1)?.id ?? after
      full = page.length === pageSize
    }
    return found
  })

  /** What has ended does not change any more, so the next reading starts where something can. */
  const skipEnded = () => {
    const all = [...lines.values()]
    const open = all.filter(isOpen)
    const last = Math.max(0, ...lines.keys())
    firstOrder = Math.max(0, Math.min(last - late, ...open.map(({ order }) => order)))
    const ids = all.filter(({ order }) => order >= firstOrder).map(({ job }) => BigInt(job))
    const before = Array.isNonEmptyArray(ids) ? Array.min(ids, Ordering.bigint) - BigInt(late) : 0n
    beforeJob = before > 0n ? String(before) : ""
  }

  const read = Effect.gen(function* () {
    // Jobs first: where a job is seen to have succeeded, its order was exported before.
    const found = yield* jobs
    for (const order of yield* orders.list(firstOrder)) {
      const job = found.get(order.job)
      if (job !== undefined)
        lines.set(order.id, lineOf(order, job, lines.get(order.id)?.old ?? (!began && JobRecord.isEnded(job.state))))
    }
    skipEnded()
    return [...lines.values()].sort((one, other) => one.order - other.order)
  }).pipe(Effect.timeout("5 seconds"))

  yield* read
  began = true
  return { read }
})

const lineOf = (order: Order, job: JobRecord.JobRecord, old: boolean): Line => ({
  old,
  order: order.id,
  item: order.item,
  orderStatus: order.status,
  job: job.id,
  state: job.state,
  attempt: job.attempt,
  worker: job.state === "running" ? job.worker : Option.none(),
  trouble: troubleOf(job),
  dueIn: Option.match(job.dueAt, {
    onNone: () => Duration.zero,
    onSome: (due) => Duration.millis(Math.max(0, DateTime.toEpochMillis(due) - order.readAt / 1_000))
  })
})

/** The ledger tells it: the last attempt that ended otherwise than well. */
const troubleOf = (job: JobRecord.JobRecord): Option.Option<string> =>
  Option.map(
    Array.findLast(job.attempts, ({ outcome }) =>
      Option.exists(outcome, (how) => how !== "completed" && how !== "released")
    ),
    (attempt) => `attempt ${attempt.attempt}: ${describe(attempt)}`
  )

const describe = (attempt: Attempt.Attempt): string =>
  Option.getOrElse(
    Option.orElse(attempt.errorMessage, () => attempt.errorCode),
    () => (Option.contains(attempt.outcome, "expired") ? "its worker vanished, the lease ran out" : "ended early")
  )
