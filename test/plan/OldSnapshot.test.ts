/**
 * Scenario M6: a busy queue while some session keeps an old snapshot open, so that the server can purge nothing.
 */
import { expect, layer } from "@effect/vitest"
import { Deferred, Duration, Effect, Layer, Option } from "effect"
import { Job, Queue, Worker } from "../../src/index.js"
import { type Cursor, JobStore, type NewJob } from "../../src/JobStore.js"
import * as Claim from "../../src/mysql/statements/claim.js"
import { Database, outside, store } from "../support/Mysql.js"
import { patience, rowsAround, tables } from "../support/Plan.js"
import { queue } from "../support/QueueOnMysql.js"
import { until } from "../support/Until.js"

/** So many jobs live and are deleted while the snapshot is open; 200,000 with LEASEHOLD_PLAN_ROWS=200000. */
const cycles = Math.min(200_000, rowsAround(10_000))
const batch = 200

const job = (queue: string): NewJob => ({
  queue,
  type: "count",
  priority: 5,
  payload: "{}",
  payloadVersion: 1,
  maxAttempts: Option.some(3),
  due: Option.none(),
  idempotency: Option.none(),
  traceContext: Option.none()
})

const request = (queue: string) => ({
  queue,
  types: [{ type: "count", version: 1 }],
  worker: "worker-1",
  lease: Duration.minutes(10),
  limit: batch
})

/** What it costs at the least: all that a busy machine does to a time is to add to it. */
const least = (values: ReadonlyArray<number>): number => Math.min(...values)

const rounded = (millis: number): number => Math.round(millis * 100) / 100

layer(store, { excludeTestServices: true, timeout: "14 minutes" })("with an old snapshot open", (it) => {
  it.scoped(
    "M6: a claim costs what it costs without, though a read of all that lived would walk over every one of them",
    () =>
      Effect.gen(function* () {
        const { claim, clean, enqueue, settle } = yield* JobStore
        const { url } = yield* Database
        const session = yield* outside(url)
        yield* session.query("SET SESSION transaction_isolation = 'READ-COMMITTED', time_zone = '+00:00'")
        const snapshot = yield* outside(url)
        yield* snapshot.query("SET SESSION transaction_isolation = 'REPEATABLE-READ'")
        yield* snapshot.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        const [before] = yield* snapshot.query("SELECT COUNT(*) AS count FROM leasehold_jobs")

        const claims: Array<number> = []
        let cleaned: Cursor = ""
        for (let lived = 0; lived < cycles; lived += batch) {
          yield* enqueue(Array.from({ length: batch }, () => job("busy")))
          const [took, { jobs }] = yield* Effect.timed(claim(request("busy")))
          claims.push(Duration.toMillis(took))
          expect(jobs).toHaveLength(batch)
          yield* settle(jobs.map(({ lease }) => [lease, { _tag: "Complete", output: null }] as const))
          const walked = yield* clean({ succeeded: Duration.zero }, cleaned, batch)
          expect(walked.cleaned).toBe(batch)
          cleaned = jobs.at(-1)?.lease.jobId ?? cleaned
        }
        const early = least(claims.slice(2, 2 + claims.length / 4))
        const late = least(claims.slice(-claims.length / 4))

        // Ten jobs on the busy queue and ten on one without a past: what does a claim of them cost, by turns?
        yield* enqueue(Array.from({ length: 10 }, () => job("busy")))
        yield* enqueue(Array.from({ length: 10 }, () => job("calm")))
        const [mark] = yield* session.query(
          "SELECT CAST(MIN(due_at) AS CHAR) AS due_at, CAST(MIN(id) AS CHAR) AS id FROM leasehold_jobs WHERE queue = 'busy' AND state = 0"
        )
        const from = { dueAt: String(mark?.["due_at"]), id: String(mark?.["id"]) }
        const costs = () =>
          Effect.gen(function* () {
            const times = { marked: [] as Array<number>, calm: [] as Array<number>, unmarked: [] as Array<number> }
            const cost = (statement: string) =>
              Effect.gen(function* () {
                yield* session.query("START TRANSACTION")
                const [took, rows] = yield* Effect.timed(session.query(statement))
                yield* session.query("ROLLBACK")
                expect(rows).toHaveLength(10)
                return Duration.toMillis(took)
              })
            for (let turn = 0; turn < 21; turn++) {
              times.marked.push(yield* cost(Claim.lock(tables, request("busy"), [{ priority: 5, from }])))
              times.calm.push(yield* cost(Claim.lock(tables, request("calm"), [{ priority: 5, from: undefined }])))
              times.unmarked.push(yield* cost(Claim.lock(tables, request("busy"), [{ priority: 5, from: undefined }])))
            }
            return { marked: least(times.marked), calm: least(times.calm), unmarked: least(times.unmarked) }
          })
        const held = yield* costs()
        yield* Effect.log(
          `${cycles} jobs lived and were deleted under one snapshot: a claim of ${batch} took ${rounded(early)} ms at the`
            + ` start and ${rounded(late)} ms at the end; a claim of 10 from the mark ${rounded(held.marked)} ms, on a queue`
            + ` without a past ${rounded(held.calm)} ms, without the mark ${rounded(held.unmarked)} ms`
        )
        // The snapshot did hold up the purge: without the mark, all that lived is walked over.
        expect(held.unmarked).toBeGreaterThan(3 * held.calm)
        expect(held.marked).toBeLessThan(2 * held.calm + 0.5)
        expect(late).toBeLessThan(2 * early + 1)

        // It still sees what it saw; then it is closed, and what it kept is purged.
        expect(yield* snapshot.query("SELECT COUNT(*) AS count FROM leasehold_jobs")).toEqual([before])
        yield* snapshot.query("COMMIT")
        yield* until(costs(), ({ calm, unmarked }) => unmarked < 2 * calm + 0.5, "2 minutes")
      }),
    patience
  )
})

const Held = Job.make("snapshot.held", { payload: {}, queue: "snapshot.held" })

layer(queue(), { excludeTestServices: true, timeout: "1 minute" })("a worker", (it) => {
  it.scoped("M6: keeps no transaction open while handlers run, nor while it is idle", () =>
    Effect.gen(function* () {
      const { query, url } = yield* Database
      // Started at least a second ago, by a clock that has seconds only.
      const old = query(
        "SELECT trx_mysql_thread_id AS id FROM information_schema.innodb_trx"
          + " JOIN performance_schema.processlist AS list ON list.id = trx_mysql_thread_id"
          + " WHERE db = DATABASE() AND trx_started < NOW() - INTERVAL 1 SECOND"
      )
      const looks = (millis: number) =>
        Effect.gen(function* () {
          const seen: Array<unknown> = []
          // The server itself looks ten times a second at the most.
          for (let at = 0; at < millis; at += 120) {
            seen.push(...(yield* old))
            yield* Effect.sleep("120 millis")
          }
          return seen
        })
      const release = yield* Deferred.make<void>()
      let running = 0
      const handler = Held.toLayer(() =>
        Effect.zipRight(
          Effect.sync(() => running++),
          Deferred.await(release)
        )
      )
      yield* Layer.build(Layer.provide(Worker.layer({ jobs: [Held], lease: "1 second", poll: "100 millis" }), handler))
      const jobs = yield* Queue.enqueueAll(Held, [{}, {}, {}, {}])
      yield* until(
        Effect.sync(() => running),
        (count) => count === jobs.length
      )
      // Leases are renewed several times meanwhile.
      expect(yield* looks(3_000)).toEqual([])
      yield* Deferred.succeed(release, undefined)
      yield* Effect.forEach(jobs, ({ id }) => Queue.result(Held, id), { discard: true })
      expect(yield* looks(2_500)).toEqual([])
      // One that is kept open is seen.
      const holder = yield* outside(url)
      yield* holder.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
      expect(yield* looks(2_500)).not.toEqual([])
    })
  )
})
