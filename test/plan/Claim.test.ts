import { expect, layer } from "@effect/vitest"
import { Duration, Effect } from "effect"
import type { ClaimRequest } from "../../src/JobStore.js"
import * as Statements from "../../src/mysql/statements/claim.js"
import { Database, type Outside, outside, store } from "../support/Mysql.js"
import { freezeStatistics, isolations, type Measured, measure } from "../support/Plan.js"

const tables = {
  prefix: "leasehold_",
  jobs: "leasehold_jobs",
  queues: "leasehold_queues",
  refusals: "leasehold_refusals",
  migrations: "leasehold_migrations"
}
const batch = 10
const request: ClaimRequest = {
  queue: "plan.b",
  types: [{ type: "count", version: 1 }],
  worker: "worker-1",
  lease: Duration.seconds(30),
  limit: batch
}
const tenLevels = Array.from({ length: 10 }, (_, priority) => ({ priority, from: undefined }))

/** Three queues of 4,000 due jobs each, one of which sorts before the one that is claimed. */
const seed = ({ query }: Outside) =>
  Effect.forEach(
    ["plan.a", "plan.b", "plan.c"],
    (queue) =>
      query(
        "INSERT INTO leasehold_jobs (queue, type, priority, enqueued_at, first_due_at, due_at)"
          + " WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < 4000)"
          + " SELECT /*+ SET_VAR(cte_max_recursion_depth = 5000) */ ?, 'count', 5, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6),"
          + " UTC_TIMESTAMP(6) - INTERVAL n SECOND FROM numbers",
        [queue]
      ),
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
})
