/**
 * Scenarios A1 and A5: a claim that has not committed keeps nothing from its neighbour, and what has ended costs a claim nothing.
 */
import { expect, layer } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { type ClaimRequest, JobStore } from "../../src/JobStore.js"
import * as Statements from "../../src/mysql/statements/claim.js"
import { Database, type Outside, outside, store } from "../support/Mysql.js"
import {
  freezeStatistics,
  isolations,
  type Measured,
  measure,
  numbers,
  patience,
  rowsAround,
  seedMany,
  tables
} from "../support/Plan.js"
import { lockWait } from "../support/ServerState.js"

const batch = 10
const due = 200
/** So many ended jobs lie around; a million of them with LEASEHOLD_PLAN_ROWS=1000000. */
const history = rowsAround(100_000)

const request = (queue: string): ClaimRequest => ({
  queue,
  types: [{ type: "count", version: 1 }],
  worker: "worker-1",
  lease: Duration.seconds(30),
  limit: batch
})

const levels = (count: number) => Array.from({ length: count }, (_, priority) => ({ priority, from: undefined }))

/** Due jobs of one queue, with SQL for the priority and the due time of job `n`. */
const seedDue = ({ query }: Outside, queue: string, count: number, priority: string, at: string) =>
  query(
    `INSERT INTO leasehold_jobs (queue, type, priority, enqueued_at, first_due_at, due_at) ${numbers(count)}`
      + ` ?, 'count', ${priority}, UTC_TIMESTAMP(6), ${at}, ${at} FROM numbers`,
    [queue]
  )

const equalTimes = "TIMESTAMP'2026-01-01 00:00:00'"
const apart = `${equalTimes} + INTERVAL (n * 7 % 200) SECOND`

const backlogs = [
  { name: "all due at one instant", priority: "5", at: equalTimes },
  { name: "due one after the other", priority: "5", at: apart },
  { name: "of six priorities", priority: "n % 6", at: apart }
]

/** What a claim locks and keeps until it commits, and what another one gets meanwhile. */
const beside = (queue: string, statement: string) =>
  Effect.gen(function* () {
    const holder = yield* outside((yield* Database).url)
    yield* holder.query("SET SESSION transaction_isolation = 'READ-COMMITTED', time_zone = '+00:00'")
    yield* holder.query("START TRANSACTION")
    const first = (yield* holder.query(statement)).map(({ id }) => String(id))
    const [elapsed, { jobs }] = yield* Effect.timed((yield* JobStore).claim(request(queue)))
    const [locks] = yield* holder.query(
      "SELECT COUNT(*) AS count FROM performance_schema.data_locks WHERE object_schema = DATABASE()"
        + " AND lock_type = 'RECORD' AND thread_id = PS_CURRENT_THREAD_ID()"
    )
    yield* holder.query("ROLLBACK")
    return {
      first,
      second: jobs.map(({ lease }) => String(lease.jobId)),
      millis: Duration.toMillis(elapsed),
      locks: Number(locks?.["count"])
    }
  })

/** A full batch of its own at once, while the other holds two locks for each of its rows. */
const isFree = ({ first, locks, millis, second }: Effect.Effect.Success<ReturnType<typeof beside>>): boolean =>
  first.length === batch
  && second.length === batch
  && second.every((id) => !first.includes(id))
  && millis < lockWait
  && locks <= 2 * batch + 10

/** What a claim of `batch` may cost, whatever has ended. */
const isCheap = ({ locks, plans, read }: Measured): boolean =>
  plans.join() === "range jobs_claim false"
  && read <= batch + 2 * 10 + 5
  && Object.values(locks).every((count) => count <= batch + 10)

layer(store, { excludeTestServices: true, timeout: "3 minutes" })("a claim beside others", (it) => {
  for (const { at, name, priority } of backlogs) {
    it.scoped(`A1: before its COMMIT takes nothing from its neighbour, with jobs ${name}`, () =>
      Effect.gen(function* () {
        const session = yield* outside((yield* Database).url)
        // Jobs of a queue on either side of it in the index.
        for (const queue of ["beside.a", "beside.b", "beside.c"]) {
          yield* session.query("DELETE FROM leasehold_jobs WHERE queue = ?", [queue])
          yield* seedDue(session, queue, due, priority, at)
        }
        const statement = Statements.lock(tables, request("beside.b"), levels(10))
        const seen = yield* beside("beside.b", statement)
        expect(isFree(seen), JSON.stringify(seen)).toBe(true)
        // A worker of two queues asks for each by itself; one list for both sorts, and locks all that it sorts.
        const both = statement
          .replace("jobs.queue = 'beside.b'", "jobs.queue IN ('beside.a', 'beside.b')")
          .replace("ORDER BY jobs.queue, jobs.priority, jobs.due_at", "ORDER BY jobs.due_at")
        const planted = yield* beside("beside.b", both)
        expect(both).not.toBe(statement)
        expect(isFree(planted), JSON.stringify(planted)).toBe(false)
      })
    )
  }

  it.scoped(
    "A5: reads as much with a long history, with statistics that are true, from before it, and all pending",
    () =>
      Effect.gen(function* () {
        const session = yield* outside((yield* Database).url)
        const past = "UTC_TIMESTAMP(6) - INTERVAL 60 DAY"
        yield* seedMany(
          session,
          history,
          "queue, type, priority, state, token, attempt, due_at, enqueued_at, first_due_at, finished_at",
          `'history', 'count', n % 6, 2 + n % 2, 1, 1, NULL, ${past}, ${past}, ${past}`
        )
        yield* seedDue(session, "history", 50, "5", apart)
        yield* session.query("ANALYZE TABLE leasehold_jobs")
        const statement = Statements.lock(tables, request("history"), levels(10))
        const allPending =
          "UPDATE mysql.innodb_index_stats SET stat_value = 1 WHERE database_name = DATABASE()"
          + " AND table_name = 'leasehold_jobs' AND stat_name LIKE 'n_diff%' AND index_name <> 'PRIMARY'"
        const statistics = [
          Effect.void,
          freezeStatistics(session, 0),
          freezeStatistics(session, 1),
          Effect.zipRight(session.query(allPending), freezeStatistics(session, history))
        ]
        for (const [index, freeze] of statistics.entries()) {
          yield* freeze
          for (const isolation of isolations) {
            const measured = yield* measure(session, { statement, isolation })
            expect(measured.rows).toBe(batch)
            expect(isCheap(measured), `statistics ${index}, ${isolation}: ${JSON.stringify(measured)}`).toBe(true)
          }
        }
        const planted = statement.replace("FORCE INDEX (jobs_claim)", "FORCE INDEX (PRIMARY)")
        const walked = yield* measure(session, { statement: planted, isolation: "READ-COMMITTED" })
        expect(isCheap(walked), JSON.stringify(walked)).toBe(false)
        expect(walked.read).toBeGreaterThan(history)
      }),
    patience
  )
})
