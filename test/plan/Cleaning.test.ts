/**
 * Scenarios M1 and M2: cleaning is many small transactions, however much there is to delete, and nobody waits for them.
 */
import { expect, layer } from "@effect/vitest"
import { Duration, Effect, Fiber, Option } from "effect"
import type { JobId } from "../../src/JobRecord.js"
import { type Cursor, JobStore, type NewJob } from "../../src/JobStore.js"
import { batchSize, restAfter } from "../../src/maintenance/Walk.js"
import * as Maintain from "../../src/mysql/statements/maintain.js"
import { Database, outside, store } from "../support/Mysql.js"
import { isFullSize, patience, rowsAround, seedMany, tables } from "../support/Plan.js"
import { lockWait, lockWaits } from "../support/ServerState.js"

/** So many jobs are to be deleted; two million with LEASEHOLD_PLAN_ROWS=2000000. */
const outlived = rowsAround(20_000)
const retention = { succeeded: Duration.days(7), canceled: Duration.days(7), dead: Duration.days(30) }

const past = "UTC_TIMESTAMP(6) - INTERVAL 60 DAY"
const columns = "queue, type, priority, state, token, attempt, due_at, enqueued_at, first_due_at, finished_at"
const ended = `'clean.old', 'count', n % 6, 2 + n % 3, 1, 1, NULL, ${past}, ${past}, ${past}`

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

const request = (queue: string, limit: number) => ({
  queue,
  types: [{ type: "count", version: 1 }],
  worker: "worker-1",
  lease: Duration.minutes(10),
  limit
})

const countOf = (condition: string) =>
  Effect.flatMap(Database, ({ query }) =>
    Effect.map(query(`SELECT COUNT(*) AS count FROM leasehold_jobs WHERE ${condition}`), ([row]) =>
      Number(row?.["count"])
    )
  )

/** Adds what is missing to the jobs that are to be deleted. */
const seedMissing = Effect.gen(function* () {
  const missing = outlived - (yield* countOf("queue = 'clean.old'"))
  yield* seedMany(yield* Database, missing, columns, ended)
})

/** Walks with `clean` until the end; answers the time of each batch. */
const walk = Effect.gen(function* () {
  const { clean } = yield* JobStore
  const batches: Array<number> = []
  let cleaned = 0
  let at: Option.Option<Cursor> = Option.some("")
  while (Option.isSome(at)) {
    // As the library's own walk: a batch that was cut short is safe to repeat.
    const batch = Effect.retry(clean(retention, at.value, batchSize), {
      times: 1,
      while: ({ _tag }) => _tag === "StoreUnavailable"
    })
    const [took, walked] = yield* Effect.timed(batch)
    batches.push(Duration.toMillis(took))
    cleaned += walked.cleaned
    at = walked.next
  }
  return { batches, cleaned }
})

/** The value below which so many of a hundred lie. */
const percentile = (values: ReadonlyArray<number>, percent: number): number => {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor((sorted.length * percent) / 100))] ?? Number.NaN
}

const rounded = (millis: number): number => Math.round(millis * 10) / 10

layer(store, { excludeTestServices: true, timeout: "14 minutes" })("cleaning", (it) => {
  // Latencies say something on a machine that does nothing else, and with enough to delete.
  it.scoped.skipIf(!isFullSize)(
    "M2: of two cleaners beside 200 live jobs a second leaves their latencies as they were",
    () =>
      Effect.gen(function* () {
        const { claim, clean, enqueue, settle } = yield* JobStore
        yield* seedMissing
        const lives = { with: [] as Array<number>, without: [] as Array<number> }
        let cleaning = false
        let live = true
        const lanes = 4
        /** One job after the other, 50 in a second: each is enqueued, claimed and completed. */
        const lane = (queue: string) =>
          Effect.gen(function* () {
            while (live) {
              const phase = cleaning
              const [took] = yield* Effect.timed(
                Effect.gen(function* () {
                  yield* enqueue([job(queue)])
                  const { jobs } = yield* claim(request(queue, 1))
                  yield* settle(jobs.map(({ lease }) => [lease, { _tag: "Complete", output: "1" }] as const))
                  expect(jobs).toHaveLength(1)
                })
              )
              const millis = Duration.toMillis(took)
              // One that began without cleaners and ended beside them says nothing.
              if (phase === cleaning) (phase ? lives.with : lives.without).push(millis)
              yield* Effect.sleep(Math.max(0, 20 - millis))
            }
          })
        const lanesRun = yield* Effect.fork(
          Effect.forEach(
            Array.from({ length: lanes }, (_, index) => `clean.lane.${index}`),
            lane,
            { concurrency: "unbounded", discard: true }
          )
        )
        /** A cleaner as the library runs it. */
        const cleaner = (from: { at: Option.Option<Cursor> }) =>
          Effect.gen(function* () {
            while (cleaning && Option.isSome(from.at)) {
              const [took, walked] = yield* Effect.timed(clean(retention, from.at.value, batchSize))
              from.at = walked.next
              yield* Effect.sleep(restAfter(took, walked.cleaned === 0))
            }
          })
        // By turns, so that whatever else this machine does is felt by both.
        const cursors = [{ at: Option.some<Cursor>("") }, { at: Option.some<Cursor>("") }]
        for (let turn = 0; turn < 20 && cursors.every(({ at }) => Option.isSome(at)); turn++) {
          cleaning = false
          yield* Effect.sleep("1 second")
          cleaning = true
          yield* Effect.raceFirst(
            Effect.forEach(cursors, cleaner, { concurrency: "unbounded", discard: true }),
            Effect.sleep("1 second")
          )
        }
        live = false
        // No life failed: no deadlock and no lock wait came out of it.
        yield* Fiber.join(lanesRun)
        const left = yield* countOf("queue = 'clean.old'")
        expect(left).toBeLessThan(outlived)
        const said = (millis: ReadonlyArray<number>) =>
          `p50 ${rounded(percentile(millis, 50))}, p99 ${rounded(percentile(millis, 99))} ms of ${millis.length}`
        yield* Effect.log(
          `lives beside two cleaners: ${said(lives.with)}; without: ${said(lives.without)}; ${outlived - left} deleted`
        )
        expect(lives.with.length).toBeGreaterThan(100)
        expect(lives.without.length).toBeGreaterThan(100)
        for (const percent of [50, 99]) {
          expect(percentile(lives.with, percent)).toBeLessThan(2 * percentile(lives.without, percent))
        }
      }),
    patience
  )

  it.scoped(
    "M1: of many jobs commits batch by batch: few locks at a time, progress kept when it is killed, live jobs left alone",
    () =>
      Effect.gen(function* () {
        const { claim, enqueue } = yield* JobStore
        const session = yield* outside((yield* Database).url)
        yield* enqueue(Array.from({ length: 100 }, () => job("clean.live")))
        yield* claim(request("clean.live", 50))
        const live = session.query("SELECT * FROM leasehold_jobs WHERE queue = 'clean.live' ORDER BY id")
        const before = yield* live
        yield* seedMissing
        // Somebody holds what is known of one job in the middle, so that the batch with it has to wait.
        yield* session.query(
          "INSERT INTO leasehold_refusals (job_id, token, verb, worker, refused_at) SELECT id, 1, 'complete', 'w', finished_at"
            + ` FROM leasehold_jobs WHERE queue = 'clean.old' ORDER BY id LIMIT ${Math.floor(outlived / 2)}, 1`
        )
        const holder = yield* outside((yield* Database).url)
        yield* holder.query("SET SESSION transaction_isolation = 'READ-COMMITTED'")
        yield* holder.query("START TRANSACTION")
        yield* holder.query("SELECT id FROM leasehold_refusals FOR UPDATE")
        const walking = yield* Effect.fork(walk)
        yield* lockWaits(1, patience / 2)

        const left = countOf("queue = 'clean.old'")
        const waiting = yield* left
        // All batches before this one are committed, and none after it was begun.
        expect(waiting).toBeGreaterThan(outlived / 2 - batchSize)
        expect(waiting).toBeLessThan(outlived / 2 + 2 * batchSize)
        const [transaction] = yield* session.query(
          "SELECT trx_mysql_thread_id AS id, trx_rows_locked AS locked, trx_rows_modified AS modified"
            + " FROM information_schema.innodb_trx JOIN performance_schema.processlist AS list ON list.id = trx_mysql_thread_id"
            + " WHERE db = DATABASE() AND trx_state = 'LOCK WAIT'"
        )
        expect(Number(transaction?.["locked"])).toBeGreaterThan(0)
        expect(Number(transaction?.["locked"])).toBeLessThanOrEqual(batchSize + 10)
        expect(Number(transaction?.["modified"])).toBeLessThanOrEqual(batchSize)
        // Killed as by a crash: nothing of this batch is deleted, and nothing that was deleted before it comes back.
        yield* session.query(`KILL ${Number(transaction?.["id"])}`)
        expect(yield* left).toBe(waiting)
        yield* holder.query("ROLLBACK")
        const { batches, cleaned } = yield* Fiber.join(walking)
        expect(cleaned).toBe(outlived)
        expect(yield* left).toBe(0)
        expect(yield* session.query("SELECT * FROM leasehold_refusals")).toEqual([])
        expect(yield* live).toEqual(before)

        // The batch that was held up is none of the others.
        const times = [...batches].sort((a, b) => a - b).slice(0, -1)
        yield* Effect.log(
          `${outlived} jobs in ${batches.length} batches: ${rounded(percentile(times, 50))} ms each, the longest`
            + ` ${rounded(percentile(times, 100))} ms`
        )
        expect(percentile(times, 100)).toBeLessThan(1_000)
      }),
    patience
  )

  it.scoped(
    "M2: holds up nobody: a batch before its COMMIT leaves all verbs and another cleaner alone",
    () =>
      Effect.gen(function* () {
        const { cancel, claim, clean, enqueue, reap, renew, settle } = yield* JobStore
        const session = yield* outside((yield* Database).url)
        yield* walk
        yield* seedMany(session, 2 * batchSize, columns, ended)
        // Live jobs between the ones that are deleted, and behind them.
        const jobs = yield* enqueue(Array.from({ length: 20 }, () => job("clean.beside")))
        const cleaner = yield* outside((yield* Database).url)
        // Somebody holds live jobs for long. With so few jobs in the table, reading all of them would seem the cheapest way.
        const holder = yield* outside((yield* Database).url)
        yield* holder.query("START TRANSACTION")
        yield* holder.query("SELECT id FROM leasehold_jobs WHERE id IN (?) FOR UPDATE", [
          jobs.slice(-5).map(({ id }) => id)
        ])
        const verbs = Effect.gen(function* () {
          yield* enqueue([job("clean.beside")])
          yield* enqueue([{ ...job("clean.beside"), idempotency: Option.some(yield* newKey) }])
          const { jobs: claimed } = yield* claim(request("clean.beside", 3))
          const leases = claimed.map(({ lease }) => lease)
          expect(leases).toHaveLength(3)
          yield* renew(leases, Duration.minutes(10))
          yield* settle(leases.map((lease) => [lease, { _tag: "Complete", output: "1" }] as const))
          yield* reap("", batchSize)
        })
        const beside = (statements: (ids: ReadonlyArray<JobId>) => ReadonlyArray<string>, isolation: string) =>
          Effect.gen(function* () {
            const ids = (yield* session.query(
              `SELECT CAST(id AS CHAR) AS id FROM leasehold_jobs WHERE queue = 'clean.old' ORDER BY leasehold_jobs.id LIMIT ${batchSize}`
            )).map(({ id }) => String(id) as JobId)
            yield* cleaner.query(`SET SESSION transaction_isolation = '${isolation}'`)
            yield* cleaner.query("START TRANSACTION")
            yield* Effect.forEach(statements(ids), (statement) => cleaner.query(statement), { discard: true })
            const fiber = yield* Effect.fork(Effect.timed(verbs))
            const waited = yield* Effect.raceFirst(Effect.as(Fiber.await(fiber), false), Effect.as(lockWaits(1), true))
            return { waited, fiber }
          })
        const held = yield* beside(
          (ids) => [
            Maintain.lockOutlived(tables, retention, ids),
            Maintain.deleteRefusals(tables, ids),
            Maintain.deleteJobs(tables, ids)
          ],
          "READ-COMMITTED"
        )
        expect(held.waited).toBe(false)
        const locks = yield* cleaner.query(
          "SELECT object_name AS name, COUNT(*) AS locks FROM performance_schema.data_locks WHERE lock_type = 'RECORD'"
            + " AND thread_id = PS_CURRENT_THREAD_ID() GROUP BY 1"
        )
        expect(locks).toEqual([{ name: "leasehold_jobs", locks: batchSize }])
        yield* Fiber.join(held.fiber)
        const [took] = yield* Effect.timed(cancel(jobs.at(-6)?.id ?? ("0" as JobId)))
        expect(Duration.toMillis(took)).toBeLessThan(lockWait)
        // The other cleaner deletes what this one does not hold, and waits for nobody.
        const [old] = yield* session.query(
          "SELECT CAST(MIN(id) - 1 AS CHAR) AS before_first FROM leasehold_jobs WHERE queue = 'clean.old'"
        )
        const cursor = String(old?.["before_first"])
        const [elapsed, { cleaned }] = yield* Effect.timed(clean(retention, cursor, 3 * batchSize))
        expect(cleaned).toBe(batchSize)
        expect(Duration.toMillis(elapsed)).toBeLessThan(lockWait)
        yield* cleaner.query("ROLLBACK")
        yield* holder.query("ROLLBACK")
        // One DELETE for all that is old, as it is often written, at the server's default isolation: enqueues wait for its end.
        const planted = yield* beside(
          () => [`DELETE FROM leasehold_jobs WHERE finished_at < ${past} + INTERVAL 1 DAY`],
          "REPEATABLE-READ"
        )
        expect(planted.waited).toBe(true)
        yield* cleaner.query("ROLLBACK")
        yield* Fiber.join(planted.fiber)
        yield* walk
      }),
    patience
  )
})

/** A key that nobody has. */
const newKey = Effect.sync(() => ({ scope: "clean", key: String(performance.now()), fingerprint: "00".repeat(32) }))
