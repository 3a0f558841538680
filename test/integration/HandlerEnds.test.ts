import { randomUUID } from "node:crypto"
import { SqlClient } from "@effect/sql"
import { expect, layer } from "@effect/vitest"
import { Deferred, Effect, HashMap, Layer, Logger, Metric, Option, Ref, Schema } from "effect"
import { Job, JobFailure, Metrics, Queue, RetryPolicy, Worker } from "../../src/index.js"
import { Database } from "../support/Mysql.js"
import { queue } from "../support/QueueOnMysql.js"
import { openTransactions } from "../support/ServerState.js"
import { until } from "../support/Until.js"

const newJob = (changes: { readonly timeout?: "300 millis"; readonly maxAttempts?: number } = {}) =>
  Job.make("ends.work", {
    payload: { n: Schema.Number },
    success: Schema.Number,
    queue: `ends.${randomUUID().slice(0, 8)}`,
    retry: RetryPolicy.fixed({ delay: "1 hour", jitter: 0, maxAttempts: changes.maxAttempts ?? 2 }),
    ...(changes.timeout === undefined ? {} : { timeout: changes.timeout })
  })

type TestJob = ReturnType<typeof newJob>

const work = <R>(job: TestJob, handler: Job.Handler<{ readonly n: number }, number, never, R>) =>
  Layer.build(
    Layer.provide(
      Worker.layer({ jobs: [job], lease: "3 seconds", poll: "50 millis", interruptGrace: "2 seconds" }),
      job.toLayer(handler)
    )
  )

const settled = (id: string) =>
  until(Queue.get(id), ({ attempts }) => Option.isSome(attempts[0]?.endedAt ?? Option.none()))

const tables = Layer.effectDiscard(
  Effect.flatMap(Database, ({ query }) => query("CREATE TABLE written (job BIGINT, n INT)"))
)

layer(tables.pipe(Layer.provideMerge(queue())), { excludeTestServices: true, timeout: "1 minute" })(
  "a handler that ends badly",
  (it) => {
    for (const [n, ending, end, expected] of [
      [1, "outlasts its timeout", Effect.never, { state: "pending", code: "timeout" }],
      [2, "throws", Effect.die(new Error("thrown")), { state: "pending", code: "defect" }],
      [
        3,
        "fails for good",
        Effect.fail(new JobFailure.Permanent({ code: "gone", message: "" })),
        { state: "dead", code: "gone" }
      ],
      [4, "is canceled", Effect.never, { state: "canceled", code: undefined }]
    ] as const) {
      it.scoped(`G12: and ${ending} in a transaction of the shared client: its writes go, its end is recorded`, () =>
        Effect.gen(function* () {
          const job = newJob(n === 1 ? { timeout: "300 millis" } : {})
          const { query } = yield* Database
          const sql = yield* SqlClient.SqlClient
          const written = yield* Deferred.make<void>()
          yield* work(job, (_, { jobId }) =>
            sql`INSERT INTO written VALUES (${jobId}, ${n})`.pipe(
              Effect.zipRight(Deferred.succeed(written, void 0)),
              Effect.zipRight(end),
              sql.withTransaction,
              Effect.catchTag("SqlError", Effect.die)
            )
          )
          const { id } = yield* Queue.enqueue(job, { n })
          yield* Deferred.await(written)
          if (n === 4) expect(yield* Queue.cancel(id)).toEqual({ _tag: "requested" })
          const record = yield* settled(id)
          expect(record.state).toBe(expected.state)
          expect(Option.getOrUndefined(record.errorCode)).toBe(expected.code)
          expect(record.attempts).toHaveLength(1)
          expect(yield* query("SELECT n FROM written WHERE job = ?", [id])).toEqual([])
          yield* until(openTransactions, (open) => open === 0)
          // The client's ten connections are as good as before.
          const clean = yield* Effect.all(
            Array.from({ length: 10 }, () => sql.withTransaction(sql`SELECT 1 AS one`)),
            { concurrency: "unbounded" }
          )
          expect(clean).toEqual(Array.from({ length: 10 }, () => [{ one: 1 }]))
        })
      )
    }

    it.scoped(
      "H6: for good while the database refuses to bury it: its job stays held, runs once, and is buried then",
      () =>
        Effect.gen(function* () {
          const job = newJob()
          const { query } = yield* Database
          const runs = yield* Ref.make(0)
          yield* query(
            "CREATE TRIGGER refuse_dead BEFORE UPDATE ON leasehold_jobs FOR EACH ROW"
              + ` IF NEW.queue = '${job.queue}' AND NEW.state = 3 THEN SIGNAL SQLSTATE '45000'; END IF`
          )
          const { id } = yield* Queue.enqueue(job, { n: 1 })
          yield* work(job, () =>
            Effect.zipRight(
              Ref.update(runs, (count) => count + 1),
              Effect.fail(new JobFailure.Permanent({ code: "gone", message: "no such order" }))
            )
          )
          // Longer than the lease: it is renewed until its end is written.
          yield* Effect.sleep("4500 millis")
          expect(yield* Queue.get(id)).toMatchObject({ state: "running", token: 1, attempt: 1 })
          yield* query("DROP TRIGGER refuse_dead")
          const record = yield* settled(id)
          expect(record).toMatchObject({ state: "dead", token: 1, errorCode: Option.some("gone") })
          expect(yield* Ref.get(runs)).toBe(1)
        })
    )

    it.scoped("K2: by whatever value it throws leaves a usable line in the ledger, and the worker goes on", () =>
      Effect.gen(function* () {
        const job = newJob({ maxAttempts: 1 })
        const own = new Error("its own cause")
        own.cause = own
        const hostile = new Error("hostile")
        Object.defineProperty(hostile, "stack", {
          get: () => {
            throw new Error("no stack")
          }
        })
        Object.defineProperty(hostile, "message", {
          get: () => {
            throw new Error("no message")
          }
        })
        const thrown: ReadonlyArray<readonly [unknown, RegExp]> = [
          [own, /its own cause/],
          [new AggregateError(Array.from({ length: 10_000 }, () => new Error("one of many"))), /AggregateError/],
          [hostile, /cannot be shown/],
          [{ toString: () => "never asked" }, /\[object Object\]/],
          [Object.freeze(new Error("frozen")), /frozen/],
          [null, /null/],
          [0, /0/]
        ]
        yield* work(job, ({ n }) => (n < thrown.length ? Effect.die(thrown[n]?.[0]) : Effect.succeed(n)))
        for (const [n, [, line]] of thrown.entries()) {
          const { id } = yield* Queue.enqueue(job, { n })
          const record = yield* settled(id)
          expect(record).toMatchObject({ state: "dead", errorCode: Option.some("defect") })
          expect(Option.getOrThrow(record.errorMessage)).toMatch(line)
        }
        const { id } = yield* Queue.enqueue(job, { n: thrown.length })
        expect(yield* Queue.result(job, id)).toBe(thrown.length)
      })
    )

    for (const [failure, handler, event] of [
      ["a success", ({ n }) => Effect.succeed(n), ["INFO", "completed", undefined]],
      [
        "a failure that is tried again",
        () => Effect.fail(new JobFailure.Retryable({ code: "down", message: "" })),
        ["WARN", "retry", "down"]
      ],
      [
        "a failure for good",
        () => Effect.fail(new JobFailure.Permanent({ code: "gone", message: "" })),
        ["WARN", "dead", "gone"]
      ],
      ["a defect", () => Effect.die("bug"), ["WARN", "retry", "defect"]],
      ["a timeout", () => Effect.never, ["WARN", "retry", "timeout"]],
      ["an interruption of itself", () => Effect.interrupt, ["WARN", "retry", "interrupted"]],
      ["a snooze", () => Effect.fail(new JobFailure.Snooze({ for: "1 hour" })), ["INFO", "snoozed", undefined]],
      ["a result that is no JSON", () => Effect.succeed(Number.NaN), ["WARN", "dead", "output_invalid"]],
      [
        "a lost lease",
        (_, { jobId, token }) =>
          Effect.fail(new JobFailure.LeaseLost({ jobId, token, during: "x", reason: "superseded" })),
        ["WARN", "lost", "superseded"]
      ]
    ] as ReadonlyArray<
      readonly [
        string,
        Job.Handler<{ readonly n: number }, number, never, never>,
        readonly [level: string, ending: Metrics.Ending, code: string | undefined]
      ]
    >) {
      it.scoped(`O4: by ${failure} gives one line and one count, of that class and no other`, () =>
        Effect.gen(function* () {
          const job = newJob(failure === "a timeout" ? { timeout: "300 millis" } : {})
          const lines: Array<readonly [level: string, code: unknown]> = []
          const listening = Logger.replace(
            Logger.defaultLogger,
            Logger.make(({ annotations, logLevel }) => {
              if (Option.isNone(HashMap.get(annotations, "job_id"))) return
              lines.push([logLevel.label, Option.getOrUndefined(HashMap.get(annotations, "error_code"))])
            })
          )
          yield* Effect.provide(work(job, handler), listening)
          yield* Queue.enqueue(job, { n: 1 })
          const counts = Effect.map(
            Effect.all(
              Object.fromEntries(
                Object.entries(Metrics.forJob(job).finished).map(([ending, counter]) => [ending, Metric.value(counter)])
              )
            ),
            (states) =>
              Object.entries(states).flatMap(([ending, { count }]) => Array.from({ length: count }, () => ending))
          )
          yield* until(counts, (ended) => ended.length > 0)
          const [level, ending, code] = event
          expect(yield* counts).toEqual([ending])
          expect(lines).toEqual([[level, code]])
          const { defects, leasesLost, timeouts } = Metrics.forJob(job)
          const classes = yield* Effect.forEach([defects, leasesLost, timeouts], (metric) =>
            Effect.map(Metric.value(metric), ({ count }) => count)
          )
          expect(classes).toEqual([Number(code === "defect"), Number(ending === "lost"), Number(code === "timeout")])
        })
      )
    }
  }
)
