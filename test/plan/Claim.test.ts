import { expect, layer } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { JobId } from "../../src/JobRecord.js"
import type { ClaimRequest } from "../../src/JobStore.js"
import * as Statements from "../../src/mysql/statements/claim.js"
import { mostClaimed } from "../../src/worker/ClaimLoop.js"
import { Database, type Outside, outside, store } from "../support/Mysql.js"
import {
  freezeStatistics,
  type Isolation,
  isolations,
  type Measured,
  measure,
  patience,
  rowsAround,
  seedMany,
  tables
} from "../support/Plan.js"

const batch = 10
const request: ClaimRequest = {
  queue: "plan.b",
  types: [{ type: "count", version: 1 }],
  worker: "worker-1",
  lease: Duration.seconds(30),
  limit: batch
}
/** So many jobs are not due yet. */
const delayed = rowsAround(20_000)
const tenLevels = Array.from({ length: 10 }, (_, priority) => ({ priority, from: undefined }))

const times = "enqueued_at, first_due_at, due_at"
/** The columns of pending jobs, and values for them: the due time is that of the job whose number is `n`. */
const pending = `queue, type, priority, ${times}`
const values = (queue: string, priority: string, due: string, type = "'count'") =>
  `'${queue}', ${type}, ${priority}, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), ${due}`
const secondsAgo = "UTC_TIMESTAMP(6) - INTERVAL n SECOND"

/** Three queues of 4,000 due jobs each, one of which sorts before the one that is claimed. */
const seed = (session: Outside) =>
  Effect.forEach(
    ["plan.a", "plan.b", "plan.c"],
    (queue) => seedMany(session, 4_000, pending, values(queue, "5", secondsAgo)),
    { discard: true }
  )

/** What a claim may cost: the rows of its batch, a key for each range, and little more; never the backlog. */
const isCheap = (measured: Measured, levels: number): boolean =>
  measured.plans.join() === "range jobs_claim false"
  && measured.read <= batch + 2 * levels + 5
  && Object.values(measured.locks).every((locks) => locks <= batch + levels)

layer(store, { excludeTestServices: true, timeout: "2 minutes" })("the plan of the claim", (it) => {
  it.scoped(
    "reads and locks what it takes and no more, with true and with frozen statistics, at both isolation levels",
    () =>
      Effect.gen(function* () {
        const database = yield* Database
        const session = yield* outside(database.url)
        yield* seed(session)
        const [middle] = yield* session.query(
          "SELECT CAST(due_at AS CHAR) AS due_at, CAST(id AS CHAR) AS id FROM leasehold_jobs WHERE queue = 'plan.b'"
            + " ORDER BY due_at LIMIT 2000, 1"
        )
        const mark = { dueAt: String(middle?.["due_at"]), id: String(middle?.["id"]) }
        for (const freeze of [false, true]) {
          if (freeze) yield* freezeStatistics(session, 1)
          for (const isolation of isolations) {
            for (const from of [undefined, mark]) {
              for (const levels of [[{ priority: 5, from }], tenLevels.map(({ priority }) => ({ priority, from }))]) {
                const measured = yield* measure(session, {
                  isolation,
                  statement: Statements.lock(tables, request, levels)
                })
                expect(measured.rows).toBe(batch)
                expect(isCheap(measured, levels.length), JSON.stringify(measured)).toBe(true)
              }
            }
            const look = yield* measure(session, { isolation, statement: Statements.look(tables, request, tenLevels) })
            expect(look.locks).toEqual({})
            expect(look.read).toBeLessThanOrEqual(25)
          }
        }
        // Each planted statement is one of the shapes that went wrong elsewhere; the measure above has to see it.
        const planted = [
          Statements.lock(tables, request, tenLevels).replace("ORDER BY jobs.queue, jobs.priority, ", "ORDER BY "),
          Statements.lock(tables, request, tenLevels)
            .replace("jobs.queue = 'plan.b'", "jobs.queue IN ('plan.a', 'plan.b')")
            .replace("ORDER BY jobs.queue, jobs.priority, jobs.due_at", "ORDER BY jobs.due_at"),
          Statements.lock(tables, request, tenLevels).replace("FORCE INDEX (jobs_claim)", "FORCE INDEX (PRIMARY)")
        ]
        for (const statement of planted) {
          expect(isCheap(yield* measure(session, { isolation: "REPEATABLE-READ", statement }), 10)).toBe(false)
        }
      })
  )

  it.scoped("so does the largest batch, whose ids are more than the optimizer looks up one by one", () =>
    Effect.gen(function* () {
      const session = yield* outside((yield* Database).url)
      const [limit] = yield* session.query("SELECT @@eq_range_index_dive_limit AS ids")
      expect(Number(limit?.["ids"])).toBeLessThan(mostClaimed)
      const named = yield* session.query(
        `SELECT CAST(id AS CHAR) AS id FROM leasehold_jobs WHERE queue = 'plan.b' ORDER BY due_at LIMIT ${mostClaimed}`
      )
      const take = Statements.take(
        tables,
        request,
        named.map(({ id }) => JobId.make(String(id))),
        true
      )
      // Rows that grow split their pages, which leaves locks on gaps at REPEATABLE READ; the library's sessions are at READ COMMITTED.
      const isCheapTake = ({ locks, plans, read }: Measured, isolation: Isolation) =>
        plans.join() === "range PRIMARY false"
        && read <= mostClaimed + 5
        && (isolation === "REPEATABLE-READ" || locks["PRIMARY"] === mostClaimed)
      for (const rows of [undefined, 1, 1_000_000]) {
        if (rows === undefined) yield* session.query("ANALYZE TABLE leasehold_jobs")
        else yield* freezeStatistics(session, rows)
        for (const isolation of isolations) {
          const locked = yield* measure(session, {
            isolation,
            statement: Statements.lock(tables, { ...request, limit: mostClaimed }, [{ priority: 5, from: undefined }])
          })
          expect(locked).toMatchObject({ rows: mostClaimed, plans: ["range jobs_claim false"] })
          expect(locked.read).toBeLessThanOrEqual(mostClaimed + 7)
          expect(Object.values(locked.locks).every((locks) => locks <= mostClaimed + 1)).toBe(true)
          const taken = yield* measure(session, { isolation, statement: take })
          expect(isCheapTake(taken, isolation), JSON.stringify(taken)).toBe(true)
          const planted = take.replace("WHERE id IN", "WHERE id + 0 IN")
          expect(isCheapTake(yield* measure(session, { isolation, statement: planted }), isolation)).toBe(false)
        }
      }
    })
  )

  it.scoped("leaves jobs of other types in front unlocked", () =>
    Effect.gen(function* () {
      const database = yield* Database
      const session = yield* outside(database.url)
      yield* session.query(
        "INSERT INTO leasehold_jobs (queue, type, priority, enqueued_at, first_due_at, due_at)"
          + " SELECT 'plan.d', IF(id % 40 = 0, 'count', 'foreign'), 5, enqueued_at, first_due_at, due_at FROM leasehold_jobs"
      )
      const foreign = { ...request, queue: "plan.d" }
      const measured = yield* measure(session, {
        isolation: "READ-COMMITTED",
        statement: Statements.lock(tables, foreign, [{ priority: 5, from: undefined }])
      })
      expect(measured.rows).toBe(batch)
      expect(measured.locks).toEqual({ jobs_claim: batch, PRIMARY: batch })
    })
  )

  it.scoped(
    "passes by delayed jobs and takes expired ones in their order, with six priorities in play",
    () =>
      Effect.gen(function* () {
        const session = yield* outside((yield* Database).url)
        // In levels 0 to 2 everything is delayed; in 3 leases have expired; in 4 and 5 jobs are due behind delayed and expired ones.
        const nextYear = "UTC_TIMESTAMP(6) + INTERVAL 365 DAY - INTERVAL n SECOND"
        yield* seedMany(session, delayed, pending, values("plan.e", "n % 6", nextYear))
        yield* seedMany(
          session,
          90,
          `${pending}, state, token, attempt, attempts_left, max_attempts, lease_owner`,
          `${values("plan.e", "3 + n % 3", `${secondsAgo} - INTERVAL 1 DAY`)}, 1, 1, 1, 2, 3, 'vanished'`
        )
        yield* seedMany(session, 90, pending, values("plan.e", "4 + n % 2", secondsAgo))
        const asked = { ...request, queue: "plan.e" }
        for (const rows of [undefined, 1, 10 * delayed]) {
          if (rows === undefined) yield* session.query("ANALYZE TABLE leasehold_jobs")
          else yield* freezeStatistics(session, rows)
          for (const isolation of isolations) {
            for (const levels of [tenLevels, tenLevels.slice(4, 6)]) {
              const statement = Statements.lock(tables, asked, levels)
              const measured = yield* measure(session, { isolation, statement })
              expect(measured.rows).toBe(batch)
              expect(isCheap(measured, levels.length), JSON.stringify(measured)).toBe(true)
            }
            const look = yield* measure(session, { isolation, statement: Statements.look(tables, asked, tenLevels) })
            expect(look.locks).toEqual({})
            expect(look.read, JSON.stringify(look)).toBeLessThanOrEqual(25)
          }
        }
        const first = yield* session.query(Statements.lock(tables, asked, tenLevels))
        expect(first.map(({ priority, state }) => [priority, state])).toEqual(
          Array.from({ length: batch }, () => [3, 1])
        )
      }),
    patience
  )

  it.scoped("walks over foreign jobs in front once, and not again from the mark behind them", () =>
    Effect.gen(function* () {
      const session = yield* outside((yield* Database).url)
      yield* seedMany(session, 3_000, pending, values("plan.g", "5", `${secondsAgo} - INTERVAL 1 DAY`, "'foreign'"))
      yield* seedMany(session, 50, pending, values("plan.g", "5", secondsAgo))
      const asked = { ...request, queue: "plan.g" }
      const statement = Statements.lock(tables, asked, [{ priority: 5, from: undefined }])
      const walked = yield* measure(session, { isolation: "READ-COMMITTED", statement })
      expect(walked.read).toBeGreaterThan(3_000)
      expect(walked.locks).toEqual({ jobs_claim: batch, PRIMARY: batch })
      const [mark] = yield* session.query(Statements.look(tables, asked, [{ priority: 5, from: undefined }]))
      const level = { priority: 5, from: { dueAt: String(mark?.["due_at"]), id: String(mark?.["id"]) } }
      for (const rows of [undefined, 1]) {
        if (rows !== undefined) yield* freezeStatistics(session, rows)
        for (const isolation of isolations) {
          const marked = yield* measure(session, { isolation, statement: Statements.lock(tables, asked, [level]) })
          expect(marked.rows).toBe(batch)
          expect(isCheap(marked, 1), JSON.stringify(marked)).toBe(true)
        }
      }
    })
  )
})
