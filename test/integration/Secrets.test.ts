/**
 * What the library tells the world about jobs: nothing that only the jobs should know, and no more series than it names.
 */

import { inspect } from "node:util"
import { MysqlClient } from "@effect/sql-mysql2"
import { expect, layer } from "@effect/vitest"
import {
  Cause,
  type Context,
  Effect,
  Exit,
  Layer,
  Logger,
  LogLevel,
  Metric,
  MetricState,
  Redacted,
  Schema,
  Tracer
} from "effect"
import { Job, JobFailure, MysqlQueue, Payload, Queue, RetryPolicy, Worker } from "../../src/index.js"
import { Database, database } from "../support/Mysql.js"
import * as Proxy from "../support/Proxy.js"
import { until } from "../support/Until.js"

const canary = (place: string) => `canary${place}7b1f`

/** Collects all that leaves the library by logs and spans. */
const witness = () => {
  const logs: Array<string> = []
  const spans: Array<string> = []
  const logger = Logger.replace(
    Logger.defaultLogger,
    Logger.make(({ annotations, cause, message, spans: logSpans }) => {
      logs.push(
        inspect([message, [...annotations], [...logSpans]], { depth: 10 }),
        Cause.pretty(cause, { renderErrorCause: true })
      )
    })
  )
  const tracer = Tracer.make({
    span: (name, parent, context, links, startTime, kind) => {
      const attributes = new Map<string, unknown>()
      return {
        _tag: "Span",
        spanId: `${spans.length}`,
        traceId: "trace",
        name,
        sampled: true,
        parent,
        context: context as Context.Context<never>,
        links,
        attributes,
        kind,
        status: { _tag: "Started", startTime },
        attribute: (key, value) => void attributes.set(key, value),
        addLinks: (more) => void spans.push(inspect(more, { depth: 10 })),
        event: (event, _at, values) => void spans.push(inspect([event, values], { depth: 10 })),
        end: (_at, exit) => {
          // As an exporter records it: the name, the attributes, and how it ended.
          const ended = Exit.isFailure(exit) ? Cause.pretty(exit.cause, { renderErrorCause: true }) : ""
          spans.push(inspect([name, [...attributes], links], { depth: 10 }), ended)
        }
      }
    },
    context: (run) => run()
  })
  const listening = Layer.mergeAll(logger, Logger.minimumLogLevel(LogLevel.All), Layer.setTracer(tracer))
  return { logs, spans, listening }
}

/** An error in each of the forms in which programs print one. */
const printed = (error: unknown): string =>
  [
    inspect(error, { depth: 20, showHidden: true }),
    JSON.stringify(error),
    String(error),
    Cause.pretty(Cause.fail(error), { renderErrorCause: true })
  ].join("\n")

const dumped = (): ReadonlyArray<{ readonly name: string; readonly text: string }> =>
  Effect.runSync(Metric.snapshot).map(({ metricKey, metricState }) => ({
    name: metricKey.name,
    text: inspect([metricKey.name, metricKey.tags.map(({ key, value }) => `${key}=${value}`), metricState], {
      depth: 10
    })
  }))

layer(database, { excludeTestServices: true, timeout: "2 minutes" })("what leaves the library", (it) => {
  it.scoped("O1: holds no payload, output, key, scope or password, whatever goes well or wrong", () =>
    Effect.gen(function* () {
      const { query, url } = yield* Database
      const user = `s${canary("user").slice(-8)}`
      const password = canary("password")
      yield* Effect.acquireRelease(query(`CREATE USER '${user}'@'%' IDENTIFIED BY '${password}'`), () =>
        query(`DROP USER '${user}'@'%'`)
      )
      yield* query(`GRANT ALL ON \`${new URL(url).pathname.slice(1)}\`.* TO '${user}'@'%'`)
      const proxy = yield* Proxy.make(url)
      const own = new URL(proxy.url)
      own.username = user
      own.password = password
      const { listening, logs, spans } = witness()
      const errors: Array<string> = []
      const keep = (error: unknown) => Effect.sync(() => void errors.push(printed(error)))

      const job = Job.make("secrets.work", {
        payload: { secret: Schema.String, n: Schema.Number },
        success: Schema.Struct({ secret: Schema.String }),
        queue: "secrets",
        retry: RetryPolicy.fixed({ delay: "10 millis", jitter: 0, maxAttempts: 2 })
      })
      const handler = job.toLayer(({ n, secret }, lease) => {
        switch (n) {
          case 0:
            // A program that logs its lease logs no payload by it.
            return Effect.as(Effect.logInfo(lease), { secret: canary("output") })
          case 1:
            return Effect.fail(
              new JobFailure.Retryable({ code: "down", message: "no", cause: new Error(canary("cause")) })
            )
          case 2:
            return Effect.fail(
              new JobFailure.Permanent({ code: "gone", message: "no", cause: { why: canary("cause") } })
            )
          case 3:
            return Effect.succeed({ secret: canary("output"), more: 1, [secret]: n } as never)
          case 4:
            return Effect.succeed({ secret: 5 as never })
          default:
            return Effect.never
        }
      })
      const install = MysqlQueue.layer({ statementTimeout: "2 seconds" }).pipe(
        Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(own.href) })),
        Layer.provideMerge(listening)
      )
      const processList: Array<string> = []
      yield* query(
        "SELECT info, user, host FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
      ).pipe(
        Effect.tap((rows) => Effect.sync(() => void processList.push(JSON.stringify(rows)))),
        Effect.zipRight(Effect.sleep("2 millis")),
        Effect.forever,
        Effect.forkScoped
      )
      yield* Effect.gen(function* () {
        yield* Layer.build(Layer.provide(Worker.layer({ jobs: [job], poll: "50 millis", lease: "2 seconds" }), handler))
        const idempotency = (n: number) => ({ scope: canary("scope"), key: `${canary("key")}-${n}` })
        const enqueue = (n: number) =>
          Queue.enqueue(job, { secret: canary("payload"), n }, { idempotency: idempotency(n) })
        const jobs = yield* Effect.forEach([0, 1, 2, 3, 4, 5], enqueue)
        const wanted = ["succeeded", "dead", "dead", "succeeded", "dead"]
        for (const [n, state] of wanted.entries()) {
          const id = jobs[n]?.id ?? ""
          yield* until(Queue.get(id), (record) => record.state === state)
          yield* Effect.flatMap(Effect.either(Queue.result(job, id)), (answer) =>
            answer._tag === "Left" ? keep(answer.left) : Effect.void
          )
        }
        // The fifth never ends: it is interrupted by a cancel.
        yield* Queue.cancel(jobs[5]?.id ?? "")
        yield* until(Queue.get(jobs[5]?.id ?? ""), ({ state }) => state === "canceled")

        // Refused before anything is sent.
        yield* Effect.flatMap(
          Effect.flip(Queue.enqueue(job, { secret: canary("payload"), n: 9 }, { idempotency: idempotency(0) })),
          keep
        )
        yield* Effect.flatMap(Effect.flip(Queue.enqueue(job, { secret: canary("payload"), n: Number.NaN })), keep)
        yield* Effect.flatMap(Effect.flip(Queue.enqueue(job, { secret: canary("payload").repeat(99_999), n: 1 })), keep)
        yield* Effect.flatMap(
          Effect.flip(enqueue(1).pipe(Effect.provideService(Payload.Limit, 10))).pipe(
            Effect.orElseSucceed(() => "replay")
          ),
          keep
        )
        // The payload of a row that somebody damaged.
        const damaged = yield* Queue.enqueue(job, { secret: "x", n: 5 }, { delay: "1 hour" })
        yield* query(
          `UPDATE leasehold_jobs SET payload = '{"secret":"${canary("payload")}"', due_at = UTC_TIMESTAMP(6) WHERE id = ?`,
          [damaged.id]
        )
        yield* until(Queue.get(damaged.id), ({ state }) => state === "dead")

        // What the server says in its errors, and the driver with them: a duplicate key, a packet, a syntax error.
        const errnos = [
          [1062, "23000"],
          [1153, "08S01"],
          [1064, "42000"],
          [1205, "HY000"],
          [1366, "HY000"]
        ] as const
        for (const [errno, sqlState] of errnos) {
          proxy.rules.push({ matches: /INSERT INTO leasehold_jobs/, action: { errno, sqlState } })
          yield* Effect.flatMap(
            Effect.flip(Queue.enqueue(job, { secret: canary("payload"), n: 5 }, { idempotency: idempotency(errno) })),
            keep
          )
          yield* Effect.flatMap(
            Effect.flip(Queue.withTransaction(Queue.enqueue(job, { secret: canary("payload"), n: 5 }))),
            keep
          )
          proxy.rules.splice(0)
        }
        // A settlement that the server refuses, with the output in it.
        proxy.rules.push({ matches: /SET jobs\.attempts/, action: { errno: 1366, sqlState: "HY000" }, times: 3 })
        const { id } = yield* enqueue(0).pipe(Effect.zipRight(Queue.enqueue(job, { secret: canary("payload"), n: 0 })))
        yield* until(Queue.get(id), ({ state }) => state !== "pending" && state !== "running")
        proxy.rules.splice(0)
      }).pipe(Effect.provide(install))

      // A start that fails: a migration that is refused, a wrong password, nobody there.
      const starts = (target: URL) =>
        Effect.flip(
          Effect.scoped(
            Layer.build(
              MysqlQueue.layer({ statementTimeout: "1 second", tablePrefix: "other_" }).pipe(
                Layer.provide(MysqlClient.layer({ url: Redacted.make(target.href) })),
                Layer.provideMerge(listening)
              )
            )
          )
        )
      proxy.rules.push({ matches: /CREATE TABLE/, action: { errno: 1064, sqlState: "42000" } })
      yield* Effect.flatMap(starts(own), keep)
      proxy.rules.splice(0)
      const wrong = new URL(own.href)
      wrong.password = `${password}-wrong`
      yield* Effect.flatMap(starts(wrong), keep)
      yield* proxy.down(true)
      yield* Effect.flatMap(starts(own), keep)

      const told = { logs, spans, errors, metrics: dumped().map(({ text }) => text) }
      for (const [where, lines] of Object.entries(told)) {
        expect({ where, empty: lines.length < 5 }).toEqual({ where, empty: false })
        // The span of an attempt records its handler's own error, as Effect does with every span.
        const places = ["payload", "output", "key", "scope", "password", ...(where === "spans" ? [] : ["cause"])]
        for (const place of places) {
          expect({ where, lines: lines.filter((line) => line.includes(canary(place))) }).toEqual({ where, lines: [] })
        }
      }
      // The process list shows statements while they run, to administrators: values are bound, or travel as hexadecimal digits.
      expect(processList.length).toBeGreaterThan(100)
      for (const place of ["payload", "output", "key", "scope", "password"]) {
        expect(processList.filter((line) => line.includes(canary(place)))).toEqual([])
      }
      // They were there to be seen: in the rows.
      const [rows] = yield* query(
        "SELECT SUM(payload LIKE ?) AS payloads, SUM(output LIKE ?) AS outputs, SUM(idempotency_key LIKE ?) AS kept FROM leasehold_jobs",
        [`%${canary("payload")}%`, `%${canary("output")}%`, `${canary("key")}%`]
      )
      for (const count of Object.values(rows ?? {})) expect(Number(count)).toBeGreaterThan(0)
      const texts = yield* query("SELECT error_code, error_message, attempts, trace_context FROM leasehold_jobs")
      expect(JSON.stringify(texts)).not.toContain("canary")
    })
  )

  it.scoped(
    "O2: ten thousand jobs of a thousand scopes and types, and two hundred workers, add no series but the named ones",
    () =>
      Effect.gen(function* () {
        const { query, url } = yield* Database
        const install = MysqlQueue.layer().pipe(
          Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(url), maxConnections: 5 })),
          Layer.provideMerge(Logger.minimumLogLevel(LogLevel.None))
        )
        const queue = "series"
        const jobs = ["series.a", "series.b"].map((type) =>
          Job.make(type, {
            payload: { n: Schema.Number },
            queue,
            retry: RetryPolicy.fixed({ delay: "1 millis", jitter: 0, maxAttempts: 2 })
          })
        )
        const handlers = Layer.mergeAll(
          Layer.empty,
          ...jobs.map((job) =>
            job.toLayer(({ n }) =>
              n % 100 === 0
                ? Effect.fail(new JobFailure.Retryable({ code: `code-${n}`, message: `failed for ${n}` }))
                : Effect.void
            )
          )
        )
        const series = () =>
          dumped()
            .filter(({ name, text }) => name.startsWith("leasehold_") && text.includes("series"))
            .map(({ text }) => text.replace(/\{[\s\S]*/, ""))
        // Asked of the metrics, since a count of the rows, asked for often, would hold up those who are to end them.
        const ended = Effect.map(Metric.snapshot, (pairs) =>
          pairs
            .filter(({ metricKey: { name, tags } }) => {
              const labels = tags.map(({ value }) => value)
              return (
                name === "leasehold_attempts_finished_total"
                && labels.includes(queue)
                && labels.some((label) => label === "completed" || label === "dead")
              )
            })
            .reduce(
              (sum, { metricState }) => sum + (MetricState.isCounterState(metricState) ? Number(metricState.count) : 0),
              0
            )
        )
        yield* Effect.gen(function* () {
          for (const job of jobs) {
            yield* Queue.enqueueMany(
              Array.from({ length: 5_000 }, (_, n) =>
                Queue.request(job, { n }, { idempotency: { scope: `${job.type}.${n % 500}`, key: `k${n}` } })
              )
            )
          }
          // Types that no worker here knows.
          yield* query(
            "UPDATE leasehold_jobs SET type = CONCAT('unknown.', id) WHERE queue = ? AND id % 10 = 3 LIMIT 1000",
            [queue]
          )
          const worker = Layer.provide(
            Worker.layer({
              jobs,
              queues: { [queue]: { concurrency: 50 } },
              poll: "20 millis",
              // What a stop could not write in time is done again soon.
              lease: "5 seconds",
              maintenance: false
            }),
            handlers
          )
          yield* Effect.forEach(
            Array.from({ length: 200 }),
            () => Effect.scoped(Effect.zipRight(Layer.build(worker), Effect.sleep("5 millis"))),
            { concurrency: 20, discard: true }
          )
          yield* Layer.build(worker)
          yield* until(ended, (jobs) => jobs === 9_000, "60 seconds")
        }).pipe(Effect.provide(install))
        const found = series()
        // Per queue: claims, slots, stuck, since; per type: enqueued, claimed, waited, ran, lost, defects, timeouts; eight endings.
        expect(found.length).toBeGreaterThan(8)
        expect(found.length).toBeLessThanOrEqual(4 + jobs.length * (7 + 8))
        expect(found.filter((text) => /unknown|code-|failed for|k\d+|series\.[ab]\.\d/.test(text))).toEqual([])
      }),
    120_000
  )
})
