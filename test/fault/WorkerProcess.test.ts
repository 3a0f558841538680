import { describe, expect, layer } from "@effect/vitest"
import { Effect, Layer, Option } from "effect"
import { Queue, Worker } from "../../src/index.js"
import { Database } from "../support/Mysql.js"
import { queue } from "../support/QueueOnMysql.js"
import { until } from "../support/Until.js"
import * as WorkerProcess from "../support/WorkerProcess.js"
import { makeJob, type Setup } from "../support/workerMain.js"

const history = Layer.effectDiscard(
  Effect.flatMap(Database, ({ query }) =>
    query(
      "CREATE TABLE history (id INT AUTO_INCREMENT PRIMARY KEY, job_id BIGINT UNSIGNED, token BIGINT, worker VARCHAR(64),"
        + " event VARCHAR(20), at DATETIME(6), KEY (job_id))"
    )
  )
)

const processOn = (queueName: string, changes: Partial<Setup>) =>
  Effect.flatMap(Database, ({ url }) =>
    WorkerProcess.start({
      url,
      queue: queueName,
      concurrency: 50,
      lease: "1 second",
      poll: "100 millis",
      workerId: "victim",
      work: "sleep",
      millis: 60_000,
      ...changes
    })
  )

/** A worker in the test's own process that takes over what the others leave. */
const heir = (queueName: string, concurrency: number) => {
  const job = makeJob(queueName)
  const handler = job.toLayer((_payload, { jobId, token }) =>
    Effect.flatMap(Database, ({ query }) =>
      Effect.as(
        query(
          "INSERT INTO history (job_id, token, worker, event, at) VALUES (?, ?, 'heir', 'start', UTC_TIMESTAMP(6))",
          [jobId, token]
        ),
        "heir"
      )
    )
  )
  return Layer.provide(
    Worker.layer({ jobs: [job], queues: { [queueName]: { concurrency } }, lease: "1 second", poll: "100 millis" }),
    handler
  )
}

layer(history.pipe(Layer.provideMerge(queue())), { excludeTestServices: true, timeout: "2 minutes" })(
  "a worker process",
  (it) => {
    it.scoped(
      "that is killed while it holds 50 jobs, twenty times, leaves each to be run once by others, in time",
      () =>
        Effect.gen(function* () {
          const { query } = yield* Database
          const killed: Array<string> = []
          const delays: Array<number> = []
          const round = (name: string) =>
            Effect.scoped(
              Effect.gen(function* () {
                const job = makeJob(name)
                yield* Queue.enqueueAll(
                  job,
                  Array.from({ length: 50 }, () => ({}))
                )
                const victim = yield* processOn(name, {})
                const started = query(
                  "SELECT COUNT(*) AS starts FROM history JOIN leasehold_jobs AS jobs ON jobs.id = job_id WHERE queue = ?",
                  [name]
                )
                yield* until(started, ([row]) => Number(row?.["starts"]) >= 50)
                yield* victim.signal("SIGSTOP")
                // On a machine that gives it no time, the victim has lost its leases by itself: that is another story.
                const [held] = yield* query(
                  "SELECT COUNT(*) AS jobs, CAST(UTC_TIMESTAMP(6) AS CHAR) AS at FROM leasehold_jobs"
                    + " WHERE queue = ? AND token = 1 AND lease_owner = 'victim' AND due_at > UTC_TIMESTAMP(6)",
                  [name]
                )
                if (held?.["jobs"] !== 50) return
                yield* Layer.build(heir(name, 50))
                yield* victim.signal("SIGKILL")
                yield* until(
                  query("SELECT COUNT(*) AS jobs FROM leasehold_jobs WHERE queue = ? AND state = 2", [name]),
                  ([row]) => row?.["jobs"] === 50
                )
                const [last] = yield* query(
                  "SELECT TIMESTAMPDIFF(MICROSECOND, ?, MAX(CAST(JSON_UNQUOTE(JSON_EXTRACT(attempts, '$[1].s')) AS DATETIME(6)))) AS delay"
                    + " FROM leasehold_jobs WHERE queue = ?",
                  [held["at"], name]
                )
                delays.push(Number(last?.["delay"]) / 1_000)
                killed.push(name)
              })
            )
          for (let index = 0; killed.length < 20; index++) yield* round(`killed.${index}`)
          const starts = yield* query(
            "SELECT worker, history.token, COUNT(*) AS starts FROM history JOIN leasehold_jobs AS jobs ON jobs.id = job_id"
              + " WHERE queue IN (?) GROUP BY 1, 2 ORDER BY 1, 2",
            [killed]
          )
          // Each job was started by its victim under token 1 and once more, by the heir, under token 2.
          expect(starts).toEqual([
            { worker: "heir", token: 2, starts: 1_000 },
            { worker: "victim", token: 1, starts: 1_000 }
          ])
          const jobs = yield* query(
            "SELECT state, token, attempt, COUNT(*) AS jobs FROM leasehold_jobs WHERE queue IN (?) GROUP BY 1, 2, 3",
            [killed]
          )
          expect(jobs).toEqual([{ state: 2, token: 2, attempt: 2, jobs: 1_000 }])
          // Lease, two polls, and 0.4 s (ruling 18); the clock was read before the kill.
          expect(Math.max(...delays)).toBeLessThan(1_000 + 2 * 100 + 400)
        }),
      // Less than a minute on two idle cores. Each round starts a process, which takes seconds on a machine that does much else.
      600_000
    )

    // Side by side, since each has a queue of its own, and waits for its process.
    describe("side by side", { concurrent: true }, () => {
      it.scoped("that is suspended for four leases writes nothing after it wakes, and stays alive", () =>
        Effect.gen(function* () {
          const { query } = yield* Database
          const job = makeJob("suspended")
          const { id } = yield* Queue.enqueue(job, {})
          const sleeper = yield* processOn("suspended", { concurrency: 1, millis: 5_500 })
          const events = query("SELECT worker, event FROM history WHERE job_id = ? ORDER BY id", [id])
          yield* until(events, (rows) => rows.length === 1)
          yield* sleeper.signal("SIGSTOP")
          yield* Layer.build(heir("suspended", 1))
          yield* until(Queue.get(id), ({ state }) => state === "succeeded")
          yield* Effect.sleep("3 seconds")
          const settled = yield* query("SELECT * FROM leasehold_jobs WHERE id = ?", [id])
          yield* sleeper.signal("SIGCONT")
          yield* sleeper.says("was lost during the handler")
          yield* Effect.sleep("2 seconds")
          expect(yield* query("SELECT * FROM leasehold_jobs WHERE id = ?", [id])).toEqual(settled)
          expect(yield* events).toEqual([
            { worker: "victim", event: "start" },
            { worker: "heir", event: "start" }
          ])
          // Alive and well: it still stops gracefully.
          yield* sleeper.signal("SIGTERM")
          expect(yield* sleeper.ended).toBe(0)
        })
      )

      it.scoped("whose handler blocks the event loop loses its lease, and its late result is not written", () =>
        Effect.gen(function* () {
          const { query } = yield* Database
          const job = makeJob("blocked")
          const { id } = yield* Queue.enqueue(job, {})
          const blocked = yield* processOn("blocked", { concurrency: 1, work: "spin", millis: 3_000 })
          yield* until(query("SELECT 1 FROM history WHERE job_id = ?", [id]), (rows) => rows.length === 1)
          yield* Layer.build(heir("blocked", 1))
          yield* until(Queue.get(id), ({ state }) => state === "succeeded")
          yield* blocked.says("was lost during the handler")
          expect(yield* Queue.get(id)).toMatchObject({ token: 2, attempt: 2, output: Option.some('"heir"') })
          yield* blocked.signal("SIGTERM")
          expect(yield* blocked.ended).toBe(0)
        })
      )

      it.scoped(
        "that its job kills each time is started three times at most, then the job is dead and others go on",
        () =>
          Effect.gen(function* () {
            const { query } = yield* Database
            const job = makeJob("poison")
            const { id } = yield* Queue.enqueue(job, {})
            for (let life = 1; life <= 3; life++) {
              yield* Effect.scoped(
                Effect.flatMap(
                  processOn("poison", { concurrency: 1, work: "die", workerId: `victim-${life}` }),
                  ({ ended }) => ended
                )
              )
            }
            yield* Layer.build(heir("poison", 1))
            yield* until(Queue.get(id), ({ state }) => state === "dead")
            const other = yield* Queue.enqueue(job, {})
            expect(yield* Queue.result(job, other.id)).toBe("heir")
            const record = yield* Queue.get(id)
            expect(record).toMatchObject({ attempt: 3, errorCode: Option.some("lease_expired") })
            expect(yield* query("SELECT COUNT(*) AS starts FROM history WHERE job_id = ?", [id])).toEqual([
              { starts: 3 }
            ])
          })
      )

      it.scoped(
        "that gets SIGTERM lets its handler finish, gives the rest back, and ends by itself; a second signal is harmless",
        () =>
          Effect.gen(function* () {
            const { query } = yield* Database
            const job = makeJob("terminated")
            const jobs = yield* Queue.enqueueAll(
              job,
              Array.from({ length: 20 }, () => ({}))
            )
            const worker = yield* processOn("terminated", { concurrency: 2, millis: 3_000, lease: "10 seconds" })
            yield* until(
              query("SELECT 1 FROM history JOIN leasehold_jobs AS jobs ON jobs.id = job_id WHERE queue = 'terminated'"),
              (rows) => rows.length === 2
            )
            yield* worker.signal("SIGTERM")
            yield* Effect.sleep("50 millis")
            yield* worker.signal("SIGTERM")
            expect(yield* worker.ended).toBe(0)
            const rows = yield* query(
              "SELECT state, attempt, lease_owner, COUNT(*) AS jobs FROM leasehold_jobs WHERE queue = 'terminated' GROUP BY 1, 2, 3 ORDER BY 1"
            )
            expect(rows).toEqual([
              { state: 0, attempt: 0, lease_owner: null, jobs: jobs.length - 2 },
              { state: 2, attempt: 1, lease_owner: null, jobs: 2 }
            ])
          })
      )

      it.scoped(
        "that gets SIGTERM and whose handler outlasts the grace gives the job back: due at once, the attempt not counted",
        () =>
          Effect.gen(function* () {
            const { query } = yield* Database
            const job = makeJob("overdue")
            const { id } = yield* Queue.enqueue(job, {})
            const worker = yield* processOn("overdue", { concurrency: 1, grace: "300 millis", lease: "1 minute" })
            yield* until(query("SELECT 1 FROM history WHERE job_id = ?", [id]), (rows) => rows.length === 1)
            yield* worker.signal("SIGTERM")
            expect(yield* worker.ended).toBe(0)
            expect(yield* Queue.get(id)).toMatchObject({ state: "pending", attempt: 1, attemptsLeft: Option.some(3) })
            yield* Layer.build(heir("overdue", 1))
            expect(yield* Queue.result(job, id)).toBe("heir")
          })
      )
    })
  }
)
