/**
 * A job that this process has just added, and that is alone, is taken by its id. It ends up as any other claimed job, and no less is
 * checked.
 */
import { expect, layer } from "@effect/vitest"
import { Duration, Effect, Option } from "effect"
import { JobStore, type NewJob } from "../../src/JobStore.js"
import { Database, outside, store as storeOnMysql } from "../support/Mysql.js"
import { lockWait } from "../support/ServerState.js"
import { until } from "../support/Until.js"

const job = (queue: string, change: Partial<NewJob> = {}): NewJob => ({
  queue,
  type: "count",
  priority: 5,
  payload: `{"of":"${queue}"}`,
  payloadVersion: 1,
  maxAttempts: Option.some(3),
  due: Option.none(),
  idempotency: Option.none(),
  traceContext: Option.some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
  ...change
})

const request = (queue: string) => ({
  queue,
  types: [{ type: "count", version: 1 }],
  worker: "worker-1",
  lease: Duration.seconds(30),
  limit: 50
})

/** A queue that was looked at and found empty, and short ways to use it. */
const idle = (queue: string) =>
  Effect.gen(function* () {
    const store = yield* JobStore
    const { query, url } = yield* Database
    expect((yield* store.claim(request(queue))).jobs).toEqual([])
    return {
      add: (...jobs: ReadonlyArray<Partial<NewJob>>) =>
        Effect.map(store.enqueue(jobs.map((change) => job(queue, change))), (enqueued) => enqueued.map(({ id }) => id)),
      claim: store.claim(request(queue)),
      claimIds: Effect.map(store.claim(request(queue)), ({ jobs }) => jobs.map(({ lease }) => lease.jobId)),
      /** How often a job was asked for by its id so far, in this database; the server counts it after its answer. */
      asked: Effect.map(
        query(
          "SELECT COALESCE(SUM(count_execute), 0) AS asked FROM performance_schema.prepared_statements_instances AS prepared"
            + " JOIN performance_schema.threads ON thread_id = prepared.owner_thread_id"
            + " WHERE processlist_db = DATABASE() AND sql_text LIKE 'UPDATE%added_id%'"
        ),
        ([row]) => Number(row?.["asked"])
      ),
      query,
      url
    }
  })

/** What a claim writes, but for the times. */
const rowsOf = (queue: string) =>
  "SELECT state, token, attempt, attempts_left, max_attempts, cancel_requested, lease_owner, finished_at,"
  + " TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(6), due_at) AS lease, JSON_REMOVE(attempts, '$[0].s') AS ledger,"
  + ` JSON_EXTRACT(attempts, '$[0].s') > '2026' AS dated FROM leasehold_jobs WHERE queue = '${queue}'`

layer(storeOnMysql, { excludeTestServices: true, timeout: "1 minute" })("a lone job of this process", (it) => {
  for (const maxAttempts of [Option.some(3), Option.none<number>()]) {
    it.effect(
      `is claimed by its id as any other, with ${Option.getOrElse(maxAttempts, () => "unlimited")} attempts`,
      () =>
        Effect.gen(function* () {
          const name = `lone.${Option.isSome(maxAttempts)}`
          const lone = yield* idle(name)
          const before = yield* lone.asked
          const ids = yield* lone.add({ maxAttempts })
          const byId = yield* lone.claim
          yield* until(lone.asked, (asked) => asked === before + 1)
          expect(byId.jobs.map(({ lease }) => lease.jobId)).toEqual(ids)
          const [row] = yield* lone.query(rowsOf(name))
          // Another look finds the next one, which was added from outside.
          yield* lone.query("UPDATE leasehold_jobs SET state = 2, due_at = NULL WHERE queue = ?", [name])
          yield* lone.query(
            "INSERT INTO leasehold_jobs (queue, type, priority, payload, payload_version, trace_context, attempts_left,"
              + " max_attempts, enqueued_at, first_due_at, due_at) SELECT queue, type, priority, payload, payload_version,"
              + " trace_context, max_attempts, max_attempts, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)"
              + " FROM leasehold_jobs WHERE id = ?",
            ids
          )
          const byLook = yield* lone.claim
          yield* until(lone.asked, (asked) => asked === before + 1)
          expect(byLook.jobs).toHaveLength(1)
          const plain = ({ jobs }: typeof byId) =>
            jobs.map((claimed) => ({ ...claimed, waited: undefined, lease: { ...claimed.lease, jobId: undefined } }))
          expect(plain(byId)).toEqual(plain(byLook))
          expect(byId.jobs.every(({ waited }) => Duration.lessThan(waited, "5 seconds"))).toBe(true)
          const [other] = yield* lone.query(`${rowsOf(name)} AND state = 1`)
          expect(row).toEqual(other)
          expect(row).toMatchObject({ state: 1, token: 1, dated: 1 })
        })
    )
  }

  it.effect("is claimed with all others where it is not alone", () =>
    Effect.gen(function* () {
      const { add, asked, claimIds } = yield* idle("lone.two")
      const before = yield* asked
      const ids = [...(yield* add({})), ...(yield* add({ priority: 2 }))]
      expect((yield* claimIds).sort()).toEqual(ids.sort())
      expect(yield* asked).toBe(before)
    })
  )

  it.effect("is not waited for where somebody has locked it, and what else is due is claimed", () =>
    Effect.gen(function* () {
      const { add, claim, query, url } = yield* idle("lone.locked")
      const [locked = ""] = yield* add({})
      yield* query(
        "INSERT INTO leasehold_jobs (queue, type, payload, enqueued_at, first_due_at, due_at)"
          + " VALUES ('lone.locked', 'count', 'null', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))"
      )
      yield* Effect.scoped(
        Effect.gen(function* () {
          const stranger = yield* outside(url)
          yield* stranger.query("START TRANSACTION")
          yield* stranger.query("SELECT 1 FROM leasehold_jobs WHERE id = ? FOR UPDATE", [locked])
          const [elapsed, { jobs }] = yield* Effect.timed(claim)
          expect(jobs.map(({ lease }) => Number(lease.jobId))).toEqual([Number(locked) + 1])
          expect(Duration.toMillis(elapsed)).toBeLessThan(lockWait)
        })
      )
    })
  )

  it.effect(
    "is not waited for where somebody changes the row of its queue, and is claimed as that row was committed last",
    () =>
      Effect.gen(function* () {
        const { add, asked, claimIds, url } = yield* idle("lone.unpaused")
        const store = yield* JobStore
        yield* store.setPaused("lone.unpaused", false)
        const before = yield* asked
        const ids = yield* add({})
        yield* Effect.scoped(
          Effect.gen(function* () {
            const stranger = yield* outside(url)
            yield* stranger.query("START TRANSACTION")
            yield* stranger.query("UPDATE leasehold_queues SET paused = 1 WHERE name = 'lone.unpaused'")
            const [elapsed, claimed] = yield* Effect.timed(claimIds)
            expect(claimed).toEqual(ids)
            expect(Duration.toMillis(elapsed)).toBeLessThan(2_000)
          })
        )
        yield* until(asked, (count) => count === before + 1)
      })
  )

  const changes = {
    "was claimed by this very worker":
      "state = 1, token = 1, attempt = 1, lease_owner = 'worker-1', due_at = due_at + INTERVAL 1 HOUR",
    "was canceled": "state = 4, token = 1, due_at = NULL, finished_at = UTC_TIMESTAMP(6)",
    "was claimed and released": "token = 1, attempt = 1, due_at = due_at + INTERVAL 1 HOUR",
    "was delayed": "due_at = due_at + INTERVAL 1 HOUR",
    "has another type": "type = 'other'",
    "has a newer payload": "payload_version = 2",
    "is of another queue": "queue = 'elsewhere'"
  }
  for (const [meanwhile, change] of Object.entries(changes)) {
    it.effect(`is left alone where it ${meanwhile} in the meantime`, () =>
      Effect.gen(function* () {
        const { add, asked, claimIds, query } = yield* idle(`lone.changed`)
        const before = yield* asked
        const [id] = yield* add({})
        yield* query(`UPDATE leasehold_jobs SET ${change} WHERE id = ?`, [id])
        const row = "SELECT * FROM leasehold_jobs WHERE id = ?"
        const changed = yield* query(row, [id])
        expect(yield* claimIds).toEqual([])
        yield* until(asked, (count) => count === before + 1)
        expect(yield* query(row, [id])).toEqual(changed)
        yield* query("DELETE FROM leasehold_jobs WHERE id = ?", [id])
      })
    )
  }

  it.effect("is left alone where its queue is paused", () =>
    Effect.gen(function* () {
      const { add, asked, claimIds } = yield* idle("lone.paused")
      const store = yield* JobStore
      const before = yield* asked
      const ids = yield* add({})
      yield* store.setPaused("lone.paused", true)
      expect(yield* claimIds).toEqual([])
      yield* until(asked, (count) => count === before + 1)
      yield* store.setPaused("lone.paused", false)
      expect(yield* claimIds).toEqual(ids)
    })
  )
})
