/**
 * Scenarios I2 and I3: the clock of the server is set while jobs run, and clocks of workers and producers are off.
 */
import { describe, expect, layer } from "@effect/vitest"
import { Deferred, Effect, Layer, Ref } from "effect"
import { Queue } from "../../src/index.js"
import { Database, database } from "../support/Mysql.js"
import { scene, succeeded } from "../support/QueueBehindProxy.js"
import { queue } from "../support/QueueOnMysql.js"
import { until } from "../support/Until.js"
import * as WorkerProcess from "../support/WorkerProcess.js"
import { makeJob } from "../support/workerMain.js"
import * as SkewedClock from "../torture/SkewedClock.js"

type Scene = Effect.Effect.Success<ReturnType<typeof scene>>

/** With a key, since a first call may meet a connection that was cut, and has to be safe to send again. */
const enqueueOn = (job: Scene["job"], context: Scene["context"]) => (n: number) =>
  Effect.provide(Queue.enqueue(job, { n }, { idempotency: { scope: job.queue, key: `${n}` } }), context)

// Side by side, since each sets a clock that only its own queue goes by.
describe("the server's clock", { concurrent: true }, () => {
  layer(database, { excludeTestServices: true, timeout: "2 minutes" })((it) => {
    /** A queue whose server has a clock that can be set: every statement that asks for the time gets it with an offset. */
    const settable = Effect.gen(function* () {
      const at = yield* scene()
      const clock = `clock_${at.job.queue.replace(/\W/g, "_")}`
      yield* at.query(`CREATE TABLE ${clock} (id INT PRIMARY KEY, seconds INT NOT NULL)`)
      yield* at.query(`INSERT INTO ${clock} VALUES (1, 0)`)
      at.proxy.rules.push({
        matches: /UTC_TIMESTAMP\(6\)/,
        action: {
          rewrite: (text) =>
            text.replaceAll(
              "UTC_TIMESTAMP(6)",
              `(UTC_TIMESTAMP(6) + INTERVAL (SELECT seconds FROM ${clock} WHERE id = 1) SECOND)`
            )
        }
      })
      // Statements that were prepared before know nothing of it.
      yield* at.proxy.cut
      return { ...at, set: (seconds: number) => at.query(`UPDATE ${clock} SET seconds = ?`, [seconds]) }
    })

    const step = (seconds: number) =>
      Effect.gen(function* () {
        const { context, job, query, rows, runs, set, work } = yield* settable
        const release = yield* Deferred.make<void>()
        const held = 5
        const handler = (n: number) => (n < held ? Effect.as(Deferred.await(release), n) : Effect.succeed(n))
        const enqueue = enqueueOn(job, context)
        // Two workers: what the one seems to have lost, the other would take.
        // Set ahead by two seconds just before a renewal, a lease has more than three left.
        for (const workerId of ["one", "two"]) yield* work(handler, { lease: "8 seconds", workerId })
        // Also where the test fails: else each worker would first wait for its handlers.
        yield* Effect.addFinalizer(() => Deferred.succeed(release, undefined))
        yield* Effect.forEach(Array.from({ length: held }), (_, n) => enqueue(n))
        yield* until(Ref.get(runs), (count) => count === held)
        yield* set(seconds)
        yield* enqueue(held)
        // At the latest by a look from the start, which comes soon while it is cheap. A clock that is set back is not waited for.
        yield* until(Ref.get(runs), (count) => count === held + 1, "10 seconds")
        // Longer than a lease.
        yield* Effect.sleep("8500 millis")
        yield* enqueue(held + 1)
        yield* until(Ref.get(runs), (count) => count === held + 2, "10 seconds")
        yield* Deferred.succeed(release, undefined)
        yield* until(rows("state"), succeeded(held + 2))
        expect({ seconds, runs: yield* Ref.get(runs) }).toEqual({ seconds, runs: held + 2 })
        expect(
          yield* query("SELECT token, attempt, COUNT(*) AS jobs FROM leasehold_jobs WHERE queue = ? GROUP BY 1, 2", [
            job.queue
          ])
        ).toEqual([{ token: 1, attempt: 1, jobs: held + 2 }])
      })

    it.scoped(
      "I2: set ahead by less than a lease, or back by seconds, a minute, an hour, takes no running job from its holder, and new jobs start at once",
      () => Effect.forEach([2, -2, -60, -3_600], step, { concurrency: "unbounded", discard: true })
    )

    it.scoped("I2: set ahead by more than a lease ends the leases, and the fence holds: each job has one end", () =>
      Effect.gen(function* () {
        const { context, job, query, rows, runs, set, work } = yield* settable
        const held = 5
        for (const workerId of ["one", "two"]) {
          yield* work((n) => Effect.as(Effect.sleep("2500 millis"), n), { lease: "4 seconds", workerId })
        }
        yield* Effect.forEach(Array.from({ length: held }), (_, n) => enqueueOn(job, context)(n))
        yield* until(Ref.get(runs), (count) => count === held)
        yield* set(3_600)
        yield* until(rows("state"), succeeded(held))
        const ledgers = yield* query("SELECT token, attempts FROM leasehold_jobs WHERE queue = ?", [job.queue])
        for (const { attempts, token } of ledgers) {
          const entries = attempts as ReadonlyArray<{ readonly t: number; readonly o?: string }>
          expect(entries.filter(({ o }) => o === "completed")).toEqual([expect.objectContaining({ t: token })])
          expect(entries.filter(({ o }) => o === undefined)).toEqual([])
        }
      })
    )
  })
})

const history = Layer.effectDiscard(
  Effect.flatMap(Database, ({ query }) =>
    query(
      "CREATE TABLE history (id INT AUTO_INCREMENT PRIMARY KEY, job_id BIGINT UNSIGNED, token BIGINT, worker VARCHAR(64),"
        + " event VARCHAR(20), at DATETIME(6), KEY (job_id))"
    )
  )
)

const tenMinutes = 600_000

layer(history.pipe(Layer.provideMerge(queue())), { excludeTestServices: true, timeout: "2 minutes" })(
  "clocks that are off",
  (it) => {
    it.scoped("I3: of workers by ten minutes either way steal no lease, and none of a producer makes a job early", () =>
      Effect.gen(function* () {
        const { query, url } = yield* Database
        const name = "skewed"
        const job = makeJob(name)
        const clocks = { early: tenMinutes, late: -tenMinutes, honest: 0 }
        const workers = yield* Effect.forEach(Object.entries(clocks), ([workerId, clock]) =>
          WorkerProcess.start({
            url,
            queue: name,
            concurrency: 3,
            lease: "3 seconds",
            poll: "100 millis",
            workerId,
            clock,
            work: "sleep",
            millis: 4_000
          })
        )
        // They are all there before the first job is: those who came late would find none left.
        yield* Effect.forEach(workers, ({ says }) => says("Worker started"))
        const delay = 2_000
        // Other tests run in this process, too.
        yield* Effect.addFinalizer(() => Effect.sync(() => SkewedClock.set(0)))
        for (const clock of Object.values(clocks)) {
          SkewedClock.set(clock)
          yield* Queue.enqueueAll(job, [{}, {}, {}, {}])
          yield* Queue.enqueue(job, {}, { delay })
        }
        SkewedClock.set(0)
        yield* until(
          query("SELECT state FROM leasehold_jobs WHERE queue = ?", [name]),
          (rows) => rows.length === 15 && rows.every(({ state }) => state === 2)
        )
        // Each handler ran for longer than a lease, beside two others who go by other clocks.
        expect(
          yield* query(
            "SELECT worker, event, COUNT(DISTINCT job_id) AS jobs, COUNT(*) AS events, MAX(token) AS token FROM history"
              + " GROUP BY worker, event HAVING jobs <> events OR token <> 1"
          )
        ).toEqual([])
        const starts = yield* query(
          "SELECT COUNT(*) AS starts, COUNT(DISTINCT job_id) AS jobs, COUNT(DISTINCT worker) AS workers FROM history"
            + " WHERE event = 'start'"
        )
        expect(starts).toEqual([{ starts: 15, jobs: 15, workers: 3 }])
        const [times] = yield* query(
          "SELECT COUNT(*) AS jobs, MIN(TIMESTAMPDIFF(MICROSECOND, enqueued_at, first_due_at)) AS asked,"
            + " MIN(TIMESTAMPDIFF(MICROSECOND, first_due_at, history.at)) AS early,"
            + " MAX(ABS(TIMESTAMPDIFF(SECOND, enqueued_at, UTC_TIMESTAMP(6)))) AS off"
            + " FROM leasehold_jobs AS jobs JOIN history ON job_id = jobs.id AND event = 'start'"
            + " WHERE TIMESTAMPDIFF(MICROSECOND, enqueued_at, first_due_at) > 0"
        )
        expect(times).toMatchObject({ jobs: 3, asked: 1_000 * delay })
        expect(Number(times?.["early"])).toBeGreaterThanOrEqual(0)
        expect(Number(times?.["off"])).toBeLessThan(60)
      })
    )
  }
)
