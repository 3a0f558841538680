import { expect, layer } from "@effect/vitest"
import { Duration, Effect, Option } from "effect"
import { JobStore, type NewJob } from "../../src/JobStore.js"
import { Database, outside, store as storeOnMysql } from "../support/Mysql.js"
import { lockWait } from "../support/ServerState.js"

const job = (queue: string, change: Partial<NewJob> = {}): NewJob => ({
  queue,
  type: "count",
  priority: 5,
  payload: "{}",
  payloadVersion: 1,
  maxAttempts: Option.some(3),
  due: Option.none(),
  idempotency: Option.none(),
  traceContext: Option.none(),
  ...change
})

const request = (queue: string, worker = "worker-1", limit = 50) => ({
  queue,
  types: [{ type: "count", version: 1 }],
  worker,
  lease: Duration.seconds(30),
  limit
})

layer(storeOnMysql, { excludeTestServices: true, timeout: "2 minutes" })("claims on MySQL", (it) => {
  it.effect("two hundred claimers at once over ten thousand jobs never share one, and leave none", () =>
    Effect.gen(function* () {
      const store = yield* JobStore
      const { query } = yield* Database
      yield* store.enqueue(Array.from({ length: 10_000 }, () => job("crowd")))
      const claimAll = (worker: string): Effect.Effect<ReadonlyArray<string>, unknown> =>
        store
          .claim(request("crowd", worker, 20))
          .pipe(
            Effect.flatMap(({ jobs, more }) =>
              Effect.map(more ? claimAll(worker) : Effect.succeed<ReadonlyArray<string>>([]), (others) => [
                ...jobs.map(({ lease }) => lease.jobId),
                ...others
              ])
            )
          )
      const claimed = yield* Effect.forEach(
        Array.from({ length: 200 }, (_, index) => `worker-${index}`),
        claimAll,
        { concurrency: "unbounded" }
      )
      // A claimer that met only locked rows may have left early; what it left is still due.
      const rest = yield* claimAll("last")
      const ids = [...claimed.flat(), ...rest]
      expect(ids).toHaveLength(10_000)
      expect(new Set(ids).size).toBe(10_000)
      const rows = yield* query(
        "SELECT state, token, attempt, COUNT(*) AS jobs FROM leasehold_jobs WHERE queue = 'crowd' GROUP BY 1, 2, 3"
      )
      expect(rows).toEqual([{ state: 1, token: 1, attempt: 1, jobs: 10_000 }])
    })
  )

  it.effect("a claim whose ledger can not be written leaves nothing of itself", () =>
    Effect.gen(function* () {
      const store = yield* JobStore
      const { query } = yield* Database
      yield* store.enqueue([job("ledger"), job("ledger")])
      yield* query(
        "CREATE TRIGGER refuse_ledger BEFORE UPDATE ON leasehold_jobs FOR EACH ROW"
          + " IF NEW.queue = 'ledger' AND JSON_LENGTH(NEW.attempts) > JSON_LENGTH(OLD.attempts) THEN"
          + " SIGNAL SQLSTATE '45000'; END IF"
      )
      const before = yield* query("SELECT * FROM leasehold_jobs WHERE queue = 'ledger' ORDER BY id")
      const refused = yield* Effect.flip(store.claim(request("ledger")))
      expect(refused._tag).toBe("StoreRejected")
      expect(yield* query("SELECT * FROM leasehold_jobs WHERE queue = 'ledger' ORDER BY id")).toEqual(before)
      yield* query("DROP TRIGGER refuse_ledger")
      expect((yield* store.claim(request("ledger"))).jobs).toHaveLength(2)
    })
  )

  it.effect("an output that can not be written leaves the job running, and its holder may settle it otherwise", () =>
    Effect.gen(function* () {
      const store = yield* JobStore
      const { query } = yield* Database
      yield* store.enqueue([job("output")])
      const {
        jobs: [claimed]
      } = yield* store.claim(request("output"))
      if (claimed === undefined) throw new Error("one job is due")
      yield* query(
        "CREATE TRIGGER refuse_output BEFORE UPDATE ON leasehold_jobs FOR EACH ROW"
          + " IF NEW.queue = 'output' AND NEW.output IS NOT NULL THEN SIGNAL SQLSTATE '45000'; END IF"
      )
      const before = yield* query("SELECT * FROM leasehold_jobs WHERE queue = 'output'")
      const refused = yield* Effect.flip(store.settle([[claimed.lease, { _tag: "Complete", output: "{}" }]]))
      expect(refused._tag).toBe("StoreRejected")
      expect(yield* query("SELECT * FROM leasehold_jobs WHERE queue = 'output'")).toEqual(before)
      yield* query("DROP TRIGGER refuse_output")
      expect(yield* store.settle([[claimed.lease, { _tag: "Bury", code: "output", message: "refused" }]])).toEqual([
        { _tag: "Recorded", state: "dead" }
      ])
    })
  )

  it.effect("a row that somebody has locked does not hinder renewals and settlements of its neighbours", () =>
    Effect.gen(function* () {
      const store = yield* JobStore
      const { url } = yield* Database
      yield* store.enqueue(Array.from({ length: 50 }, () => job("stuck")))
      const { jobs } = yield* store.claim(request("stuck"))
      const leases = jobs.map(({ lease }) => lease)
      const [stuck, ...others] = leases
      if (stuck === undefined) throw new Error("fifty jobs are due")
      yield* Effect.scoped(
        Effect.gen(function* () {
          const stranger = yield* outside(url)
          yield* stranger.query("START TRANSACTION")
          yield* stranger.query("SELECT 1 FROM leasehold_jobs WHERE id = ? FOR UPDATE", [stuck.jobId])
          const [duration, renewals] = yield* Effect.timed(store.renew(leases, Duration.seconds(30)))
          expect(renewals[0]).toEqual({ _tag: "Busy" })
          expect(renewals.slice(1).every(({ _tag }) => _tag === "Renewed")).toBe(true)
          expect(Duration.toMillis(duration)).toBeLessThan(lockWait)
          const verdicts = yield* store.settle(leases.map((lease) => [lease, { _tag: "Complete", output: null }]))
          expect(verdicts[0]).toEqual({ _tag: "Busy" })
          expect(verdicts.slice(1)).toEqual(others.map(() => ({ _tag: "Recorded", state: "succeeded" })))
        })
      )
      // The stranger's session is gone, and the server may need a moment to notice.
      const last = yield* store
        .settle([[stuck, { _tag: "Complete", output: null }]])
        .pipe(Effect.repeat({ while: ([verdict]) => verdict?._tag === "Busy" }))
      expect(last).toEqual([{ _tag: "Recorded", state: "succeeded" }])
    })
  )

  it.effect("a job of each priority level is found, however many levels are empty", () =>
    Effect.gen(function* () {
      const store = yield* JobStore
      yield* store.enqueue([9, 0, 4].map((priority) => job("levels", { priority })))
      const { jobs } = yield* store.claim(request("levels"))
      expect(jobs.map(({ priority }) => priority)).toEqual([0, 4, 9])
      // Marks are set now; a level that was empty then is found by a full look.
      yield* store.enqueue([job("levels", { priority: 2 })])
      const again = yield* store
        .claim(request("levels"))
        .pipe(Effect.repeat({ while: ({ jobs }) => jobs.length === 0, times: 1_000 }))
      expect(again.jobs.map(({ priority }) => priority)).toEqual([2])
    })
  )

  it.effect("a job that was committed late, with a due time before what was claimed since, is found", () =>
    Effect.gen(function* () {
      const store = yield* JobStore
      const { url } = yield* Database
      yield* Effect.scoped(
        Effect.gen(function* () {
          const late = yield* outside(url)
          yield* late.query("START TRANSACTION")
          yield* late.query(
            "INSERT INTO leasehold_jobs (queue, type, enqueued_at, first_due_at, due_at)"
              + " VALUES ('late', 'count', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE)"
          )
          yield* store.enqueue([job("late")])
          expect((yield* store.claim(request("late"))).jobs).toHaveLength(1)
          expect((yield* store.claim(request("late"))).jobs).toHaveLength(0)
          yield* late.query("COMMIT")
          const found = yield* store
            .claim(request("late"))
            .pipe(Effect.repeat({ while: ({ jobs }) => jobs.length === 0, times: 1_000 }))
          expect(found.jobs).toHaveLength(1)
        })
      )
    })
  )

  it.effect("jobs of this process keep their order, whether they came one by one or in a bulk", () =>
    Effect.gen(function* () {
      const store = yield* JobStore
      for (const queue of ["own.alone", "own.bulk"]) {
        yield* store.claim(request(queue))
        const jobs = [job(queue, { priority: 9 }), job(queue, { priority: 0 })]
        const enqueued =
          queue === "own.bulk"
            ? yield* store.enqueue(jobs)
            : (yield* Effect.forEach(jobs, (one) => store.enqueue([one]))).flat()
        const first = yield* store.claim(request(queue, "worker-1", 1))
        const second = yield* store.claim(request(queue, "worker-1", 1))
        expect([...first.jobs, ...second.jobs].map(({ lease }) => lease.jobId)).toEqual(
          enqueued.map(({ id }) => id).reverse()
        )
      }
    })
  )

  it.effect("a job of this process that another one took does not hide what others have enqueued", () =>
    Effect.gen(function* () {
      const store = yield* JobStore
      const { query } = yield* Database
      yield* store.claim(request("taken"))
      const [own] = yield* store.enqueue([job("taken", { priority: 9 })])
      yield* query("DELETE FROM leasehold_jobs WHERE id = ?", [own?.id])
      yield* query(
        "INSERT INTO leasehold_jobs (queue, type, priority, enqueued_at, first_due_at, due_at)"
          + " VALUES ('taken', 'count', 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))"
      )
      expect((yield* store.claim(request("taken"))).jobs.map(({ priority }) => priority)).toEqual([0])
    })
  )
})
