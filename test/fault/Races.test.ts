import { expect, layer } from "@effect/vitest"
import { Duration, Effect, Option } from "effect"
import type { JobId } from "../../src/JobRecord.js"
import { JobStore, type NewJob } from "../../src/JobStore.js"
import { Database, store as storeOnMysql } from "../support/Mysql.js"

const job = (queue: string): NewJob => ({
  queue,
  type: "count",
  priority: 5,
  payload: "{}",
  payloadVersion: 1,
  maxAttempts: Option.some(1_000),
  due: Option.none(),
  idempotency: Option.none(),
  traceContext: Option.none()
})

const request = (queue: string, worker: string, lease: Duration.DurationInput, limit: number) => ({
  queue,
  types: [{ type: "count", version: 1 }],
  worker,
  lease: Duration.decode(lease),
  limit
})

const lanes = 20

layer(storeOnMysql, { excludeTestServices: true, timeout: "2 minutes" })("races on MySQL", (it) => {
  it.effect("a completion that meets the end of its lease within 20 ms ends in one of two ways, a thousand times", () =>
    Effect.gen(function* () {
      const store = yield* JobStore
      const { query } = yield* Database
      const won = { holder: 0, taker: 0 }
      const lease = Duration.millis(60)

      /** One job in a queue of its own: the holder completes while somebody else claims, around the end of the lease. */
      const round = (lane: number, turn: number) =>
        Effect.gen(function* () {
          const queue = `race.${lane}.${turn % 5}`
          yield* store.enqueue([job(queue)])
          const {
            jobs: [claimed]
          } = yield* store
            .claim(request(queue, "holder", lease, 1))
            .pipe(Effect.repeat({ until: ({ jobs }) => jobs.length > 0 }))
          if (claimed === undefined) throw new Error("a job was claimed")
          const offset = Duration.millis(60 - 20 + (turn % 41))
          const [[verdict], taken] = yield* Effect.all(
            [
              Effect.delay(store.settle([[claimed.lease, { _tag: "Complete", output: null }]]), offset),
              Effect.delay(store.claim(request(queue, "taker", "1 minute", 1)), "60 millis")
            ],
            { concurrency: 2 }
          )
          const [row] = yield* query(
            "SELECT state, token, JSON_LENGTH(attempts) AS entries FROM leasehold_jobs WHERE id = ?",
            [claimed.lease.jobId]
          )
          if (taken.jobs.length === 1) {
            won.taker++
            // The store accepts nothing of a token that is no longer the job's; while the claim held the row it said nothing.
            const refused =
              verdict?._tag === "Busy"
                ? yield* store.settle([[claimed.lease, { _tag: "Complete", output: null }]])
                : [verdict]
            expect(refused).toEqual([{ _tag: "Lost", reason: "superseded" }])
            expect(row).toEqual({ state: 1, token: 2, entries: 2 })
            yield* store.settle([[taken.jobs[0]?.lease ?? claimed.lease, { _tag: "Complete", output: null }]])
          } else {
            won.holder++
            const settled =
              verdict?._tag === "Busy"
                ? yield* store.settle([[claimed.lease, { _tag: "Complete", output: null }]])
                : [verdict]
            expect(settled).toEqual([{ _tag: "Recorded", state: "succeeded" }])
            expect(row).toEqual({ state: verdict?._tag === "Busy" ? 1 : 2, token: 1, entries: 1 })
          }
        })

      yield* Effect.forEach(
        Array.from({ length: lanes }, (_, lane) => lane),
        (lane) =>
          Effect.forEach(
            Array.from({ length: 1_000 / lanes }, (_, turn) => turn),
            (turn) => round(lane, turn),
            {
              discard: true
            }
          ),
        { concurrency: "unbounded", discard: true }
      )
      const rows = yield* query(
        "SELECT state, COUNT(*) AS jobs FROM leasehold_jobs WHERE queue LIKE 'race.%' GROUP BY state"
      )
      expect(rows).toEqual([{ state: 2, jobs: 1_000 }])
      // A race that one side always wins is no race.
      expect(won.holder).toBeGreaterThan(50)
      expect(won.taker).toBeGreaterThan(50)
    })
  )

  it.effect("the answer of a cancel that races a claim is what the row says, a thousand times", () =>
    Effect.gen(function* () {
      const store = yield* JobStore
      const { query } = yield* Database
      const enqueued = yield* store.enqueue(Array.from({ length: 1_000 }, () => job("cancel")))
      const answers = new Map<JobId, string>()
      const claimed = new Map<JobId, number>()
      let canceling = true
      const claims = store.claim(request("cancel", "worker", "1 minute", 2)).pipe(
        Effect.tap(({ jobs }) =>
          Effect.sync(() => {
            for (const { lease } of jobs) claimed.set(lease.jobId, lease.token)
          })
        ),
        Effect.repeat({ while: () => canceling })
      )
      const cancels = Effect.forEach(
        enqueued,
        ({ id }) => Effect.map(store.cancel(id), ({ _tag }) => answers.set(id, _tag)),
        { concurrency: 6, discard: true }
      ).pipe(
        Effect.ensuring(
          Effect.sync(() => {
            canceling = false
          })
        )
      )
      yield* Effect.all([claims, cancels], { concurrency: 2 })
      const rows = yield* query(
        "SELECT CAST(id AS CHAR) AS id, state, attempt, cancel_requested FROM leasehold_jobs WHERE queue = 'cancel'"
      )
      expect(rows).toHaveLength(1_000)
      for (const { attempt, cancel_requested, id, state } of rows) {
        const answer = answers.get(id as JobId)
        expect({ answer, state, attempt, cancel_requested }).toEqual(
          claimed.has(id as JobId)
            ? { answer: "requested", state: 1, attempt: 1, cancel_requested: 1 }
            : { answer: "canceled", state: 4, attempt: 0, cancel_requested: 1 }
        )
      }
      expect(claimed.size).toBeGreaterThan(20)
      expect(claimed.size).toBeLessThan(980)
    })
  )

  it.effect("reapers and claims at once end a job of a vanished holder exactly once", () =>
    Effect.gen(function* () {
      const store = yield* JobStore
      const { query } = yield* Database
      yield* store.enqueue(Array.from({ length: 300 }, () => ({ ...job("vanished"), maxAttempts: Option.some(1) })))
      yield* store.claim(request("vanished", "gone", "300 millis", 300))
      yield* query("UPDATE leasehold_jobs SET due_at = due_at - INTERVAL 1 MINUTE WHERE queue = 'vanished'")
      const reap = Effect.map(store.reap("", 10_000), ({ ended }) => ended)
      const claim = Effect.map(store.claim(request("vanished", "heir", "1 minute", 50)), ({ ended, jobs }) => {
        expect(jobs).toEqual([])
        return ended
      })
      const racing = yield* Effect.all([reap, claim, claim, reap, claim, claim, claim, claim], {
        concurrency: "unbounded"
      })
      const rest = yield* reap
      const ended = [...racing.flat(), ...rest].map(({ id }) => id)
      expect(ended).toHaveLength(300)
      expect(new Set(ended).size).toBe(300)
      const rows = yield* query(
        "SELECT state, token, attempt, error_code, COUNT(*) AS jobs FROM leasehold_jobs WHERE queue = 'vanished' GROUP BY 1, 2, 3, 4"
      )
      expect(rows).toEqual([{ state: 3, token: 2, attempt: 1, error_code: "lease_expired", jobs: 300 }])
    })
  )
})
