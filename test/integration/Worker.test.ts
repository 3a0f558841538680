import { randomUUID } from "node:crypto"
import { expect, layer } from "@effect/vitest"
import { Cause, Deferred, Effect, Fiber, Layer, Logger, Metric, Option, Schema } from "effect"
import { Job, JobFailure, JobStore, Maintenance, Metrics, Queue, RetryPolicy, Worker } from "../../src/index.js"
import { Database } from "../support/Mysql.js"
import { queue } from "../support/QueueOnMysql.js"
import { until } from "../support/Until.js"

const retry = RetryPolicy.fixed({ delay: "10 millis", jitter: 0, maxAttempts: 2 })

const newJob = (type = "worker.work") =>
  Job.make(type, {
    payload: { n: Schema.Number },
    success: Schema.String,
    retry,
    queue: `worker.${randomUUID().slice(0, 8)}`
  })

type TestJob = ReturnType<typeof newJob>

const work = (
  job: TestJob,
  handler: (n: number) => Effect.Effect<string, JobFailure.JobFailure>,
  options: Omit<Worker.Options, "jobs"> = {}
) =>
  Layer.build(
    Layer.provide(
      Worker.layer({ jobs: [job], lease: "10 seconds", poll: "50 millis", ...options }),
      job.toLayer(({ n }) => handler(n))
    )
  )

const ended = (id: string) =>
  until(Queue.get(id), ({ state }) => state === "succeeded" || state === "dead" || state === "canceled")

layer(queue(), { excludeTestServices: true, timeout: "2 minutes" })("a worker on MySQL", (it) => {
  it.scoped(
    "interrupts a handler whose job is canceled within a renewal interval; its finalizers run and it ends canceled",
    () =>
      Effect.gen(function* () {
        const job = newJob()
        const started = yield* Deferred.make<void>()
        const interrupted = yield* Deferred.make<void>()
        const finalized = yield* Deferred.make<void>()
        yield* work(
          job,
          () =>
            Deferred.succeed(started, void 0).pipe(
              Effect.zipRight(Effect.never),
              Effect.onInterrupt(() =>
                Effect.zipRight(
                  Deferred.succeed(interrupted, void 0),
                  Effect.delay(Deferred.succeed(finalized, void 0), "3500 millis")
                )
              )
            ),
          { lease: "3 seconds" }
        )
        const { id } = yield* Queue.enqueue(job, { n: 1 })
        yield* Deferred.await(started)
        expect(yield* Queue.cancel(id)).toEqual({ _tag: "requested" })
        // A third of the lease, and some room.
        yield* Effect.timeout(Deferred.await(interrupted), "2500 millis")
        // The finalizer outlasts the lease, which is renewed for it.
        yield* Deferred.await(finalized)
        expect(yield* ended(id)).toMatchObject({ state: "canceled", token: 1, attempt: 1 })
        expect(yield* Queue.cancel(id)).toEqual({ _tag: "ended", state: "canceled" })
        expect(yield* Effect.flip(Queue.result(job, id))).toMatchObject({ _tag: "JobCanceled" })
      })
  )

  it.scoped(
    "records a handler that ignores its timeout once, drops its late answer, and gives its slot to others",
    () =>
      Effect.gen(function* () {
        const job = Job.make("worker.stuck", {
          payload: { n: Schema.Number },
          success: Schema.String,
          retry: RetryPolicy.fixed({ delay: "1 hour", maxAttempts: 5 }),
          timeout: "200 millis",
          queue: "worker.stuck"
        })
        const release = yield* Deferred.make<void>()
        const handler = job.toLayer(({ n }) =>
          n === 0 ? Effect.as(Effect.uninterruptible(Deferred.await(release)), "late") : Effect.succeed("normal")
        )
        const stuck = Metric.value(Metrics.bind(Metrics.stuckHandlers, { queue: job.queue }))
        yield* Layer.build(
          Layer.provide(
            Worker.layer({
              jobs: [job],
              queues: { [job.queue]: { concurrency: 1 } },
              lease: "10 seconds",
              poll: "50 millis",
              interruptGrace: "100 millis"
            }),
            handler
          )
        )
        const first = yield* Queue.enqueue(job, { n: 0 })
        const others = yield* Queue.enqueueAll(
          job,
          Array.from({ length: 20 }, () => ({ n: 1 }))
        )
        for (const { id } of others) expect(yield* Queue.result(job, id)).toBe("normal")
        const recorded = yield* Queue.get(first.id)
        expect(recorded).toMatchObject({ state: "pending", attempt: 1, errorCode: Option.some("timeout") })
        expect((yield* stuck).value).toBe(1)
        yield* Deferred.succeed(release, void 0)
        yield* until(stuck, ({ value }) => value === 0)
        expect(yield* Queue.get(first.id)).toEqual(recorded)
      })
  )

  it.scoped("claims ahead without losing a lease: ten jobs of nearly half a lease, one slot, each runs once", () =>
    Effect.gen(function* () {
      const job = newJob()
      let runs = 0
      const options = { lease: "2 seconds", queues: { [job.queue]: { concurrency: 1, prefetch: 1 } } } as const
      const handler = () =>
        Effect.as(
          Effect.delay(
            Effect.sync(() => runs++),
            "900 millis"
          ),
          "done"
        )
      const jobs = yield* Queue.enqueueAll(
        job,
        Array.from({ length: 10 }, (_, n) => ({ n }))
      )
      yield* work(job, handler, options)
      yield* work(job, handler, options)
      for (const { id } of jobs) expect(yield* ended(id)).toMatchObject({ state: "succeeded" })
      expect(runs).toBe(10)
    })
  )

  it.scoped("leaves jobs of types that it does not know untouched, and a newer worker takes them all", () =>
    Effect.gen(function* () {
      const known = newJob("worker.old")
      const unknown = Job.make("worker.new", {
        payload: { n: Schema.Number },
        success: Schema.String,
        retry,
        queue: known.queue
      })
      const strangers = yield* Queue.enqueueAll(
        unknown,
        Array.from({ length: 100 }, (_, n) => ({ n }))
      )
      yield* work(known, () => Effect.succeed("old"))
      const own = yield* Queue.enqueue(known, { n: 1 })
      expect(yield* Queue.result(known, own.id)).toBe("old")
      const waiting = yield* Queue.list({ queue: known.queue, type: unknown.type, limit: 200 })
      expect(waiting).toHaveLength(100)
      expect(waiting.every(({ attempt, state, token }) => state === "pending" && attempt === 0 && token === 0)).toBe(
        true
      )
      yield* Layer.build(
        Layer.provide(
          Worker.layer({ jobs: [known, unknown], poll: "50 millis" }),
          Layer.merge(
            known.toLayer(() => Effect.succeed("new")),
            unknown.toLayer(() => Effect.succeed("new"))
          )
        )
      )
      for (const { id } of strangers) expect(yield* ended(id)).toMatchObject({ state: "succeeded", attempt: 1 })
    })
  )

  it.scoped("makes a job whose payload does not decode dead at once, and its neighbours run", () =>
    Effect.gen(function* () {
      const job = newJob()
      const { query } = yield* Database
      const jobs = yield* Queue.enqueueAll(
        job,
        Array.from({ length: 10 }, (_, n) => ({ n }))
      )
      const damaged = [
        [0, "'{\"n\":'"],
        [3, '\'{"n":"secret-canary"}\''],
        [5, "NULL"]
      ] as const
      for (const [index, text] of damaged) {
        yield* query(`UPDATE leasehold_jobs SET payload = ${text} WHERE id = ?`, [jobs[index]?.id])
      }
      yield* work(job, (n) => Effect.succeed(String(n)))
      for (const [index, { id }] of jobs.entries()) {
        const bad = damaged.some(([at]) => at === index)
        const record = yield* ended(id)
        expect(record).toMatchObject(
          bad ? { state: "dead", attempt: 1, errorCode: Option.some("payload_invalid") } : { state: "succeeded" }
        )
        expect(Option.getOrElse(record.errorMessage, () => "")).not.toContain("secret-canary")
      }
    })
  )

  it.scoped("stores whatever text a failure holds, and tells the story of the job", () =>
    Effect.gen(function* () {
      const job = newJob()
      const circular: Record<string, unknown> = {}
      circular["self"] = circular
      const texts = [
        "a\u0000b",
        "\ud800 half",
        "x".repeat(10_000_000),
        "😀".repeat(5_000),
        "'; DROP TABLE leasehold_jobs; -- \" \\ ` % \n"
      ]
      const thrown: ReadonlyArray<unknown> = [
        null,
        undefined,
        0,
        "",
        Symbol("s"),
        circular,
        Object.freeze(new Error("frozen")),
        new Proxy(
          {},
          {
            get: () => {
              throw new Error("no")
            }
          }
        )
      ]
      yield* work(job, (n) =>
        n < texts.length
          ? Effect.fail(new JobFailure.Permanent({ code: texts[n] ?? "", message: texts[n] ?? "" }))
          : Effect.die(thrown[n - texts.length])
      )
      const jobs = yield* Queue.enqueueAll(
        job,
        Array.from({ length: texts.length + thrown.length }, (_, n) => ({ n }))
      )
      for (const [n, { id }] of jobs.entries()) {
        const record = yield* ended(id)
        expect(record.state).toBe("dead")
        expect(record.attempts).toHaveLength(n < texts.length ? 1 : 2)
        expect(Option.getOrThrow(record.errorMessage).length).toBeLessThanOrEqual(2_000)
        const story = yield* Queue.why(id)
        expect(JSON.stringify(story)).toContain(n < texts.length ? "dead" : "defect")
      }
    })
  )

  it.scoped("says nothing of payloads, outputs and keys in logs, errors and the ledger", () =>
    Effect.gen(function* () {
      const canary = "canary-7b1f"
      const logged: Array<string> = []
      const listening = Logger.replace(
        Logger.defaultLogger,
        Logger.make(({ annotations, cause, message }) => {
          logged.push(String(message), JSON.stringify([...annotations]), Cause.pretty(cause))
        })
      )
      const job = Job.make("worker.silent", {
        payload: { secret: Schema.String, n: Schema.Number },
        success: Schema.Struct({ secret: Schema.String }),
        retry,
        queue: "worker.silent"
      })
      const handler = job.toLayer(({ n, secret }) =>
        n === 0
          ? Effect.succeed({ secret })
          : n === 1
            ? Effect.fail(new JobFailure.Retryable({ code: "down", message: `password=${secret}` }))
            : Effect.succeed({ secret: n as never })
      )
      yield* Effect.gen(function* () {
        yield* Layer.build(Layer.provide(Worker.layer({ jobs: [job], poll: "50 millis" }), handler))
        const jobs = yield* Effect.forEach([0, 1, 2], (n) =>
          Queue.enqueue(job, { secret: canary, n }, { idempotency: { scope: canary, key: `${canary}-${n}` } })
        )
        for (const { id } of jobs) {
          const record = yield* ended(id)
          expect(JSON.stringify([record.errorMessage, record.attempts])).not.toContain(canary)
        }
        const conflict = yield* Effect.flip(
          Queue.enqueue(job, { secret: canary, n: 9 }, { idempotency: { scope: canary, key: `${canary}-0` } })
        )
        expect(`${conflict.message} ${JSON.stringify(conflict)}`).not.toContain(canary)
        const invalid = yield* Effect.flip(Queue.enqueue(job, { secret: canary, n: Number.NaN }))
        expect(`${invalid.message} ${JSON.stringify(invalid)}`).not.toContain(canary)
      }).pipe(Effect.provide(listening))
      expect(logged.length).toBeGreaterThan(4)
      expect(logged.join("\n")).not.toContain(canary)
    })
  )

  it.scoped("maintenance of fifty at once reaps and cleans each job once", () =>
    Effect.gen(function* () {
      const store = yield* JobStore.JobStore
      const { query } = yield* Database
      const job = newJob()
      yield* Queue.enqueueAll(
        job,
        Array.from({ length: 600 }, (_, n) => ({ n }))
      )
      const where = `WHERE queue = '${job.queue}'`
      yield* query(
        `UPDATE leasehold_jobs SET state = 1, token = 1, attempt = 2, attempts_left = 0, lease_owner = 'gone',`
          + ` due_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND ${where} ORDER BY id LIMIT 200`
      )
      yield* query(
        `UPDATE leasehold_jobs SET state = 2, due_at = NULL, finished_at = UTC_TIMESTAMP(6) - INTERVAL 8 DAY`
          + ` ${where} AND state = 0 ORDER BY id LIMIT 200`
      )
      const fibers = yield* Effect.forEach(Array.from({ length: 50 }), () =>
        Effect.fork(Effect.flatten(Maintenance.make({ reap: "1 second", clean: "1 second" })))
      )
      const states = query(
        `SELECT state, token, COUNT(*) AS jobs FROM leasehold_jobs ${where} GROUP BY 1, 2 ORDER BY 1`
      )
      yield* until(states, (rows) => rows.length === 2 && rows[1]?.["state"] === 3 && rows[1]?.["jobs"] === 200)
      expect(yield* states).toEqual([
        { state: 0, token: 0, jobs: 200 },
        { state: 3, token: 2, jobs: 200 }
      ])
      yield* Fiber.interruptAll(fibers)
      expect(yield* store.paused).toEqual([])
    })
  )
})
