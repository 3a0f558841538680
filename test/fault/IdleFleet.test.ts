/**
 * Scenario N1: a fleet with nothing to do asks at the rate that is documented, and no faster when the database is slow.
 */
import { randomUUID } from "node:crypto"
import { MysqlClient } from "@effect/sql-mysql2"
import { describe, expect, layer } from "@effect/vitest"
import { Deferred, Duration, Effect, Layer, Logger, LogLevel, Redacted, Schema } from "effect"
import { Job, MysqlQueue, Queue, Worker } from "../../src/index.js"
import { Database, database } from "../support/Mysql.js"
import * as Proxy from "../support/Proxy.js"

const queuesOfEach = 5
const poll = 500
/** A poll comes up to a fifth earlier than asked. */
const earliest = 0.8

/** What `workers` may ask in so many milliseconds: one statement for each queue and poll, with one poll under way at the start. */
const most = (workers: number, millis: number, each = 0, interval = poll): number =>
  workers * queuesOfEach * (Math.ceil(millis / (earliest * interval + each)) + 1)

/** Workers of a process each: they share nothing but the server, which counts what they ask. */
const fleet = (workers: number) =>
  Effect.gen(function* () {
    const proxy = yield* Proxy.make((yield* Database).url)
    const started = yield* Deferred.make<void>()
    const jobs = Array.from({ length: queuesOfEach }, (_, index) =>
      Job.make(`fleet.work.${index}`, {
        payload: { n: Schema.Number },
        queue: `fleet.${index}.${randomUUID().slice(0, 8)}`
      })
    )
    const [first] = jobs
    if (first === undefined) throw new Error("a fleet has queues")
    const handlers = Layer.mergeAll(
      first.toLayer(() => Deferred.succeed(started, undefined)),
      ...jobs.slice(1).map((job) => job.toLayer(() => Effect.void))
    )
    const own = Worker.layer({ jobs, poll, maintenance: false }).pipe(
      Layer.provide(handlers),
      Layer.provideMerge(MysqlQueue.layer({ migrate: "off", connections: { client: 2, transaction: 2, worker: 8 } })),
      Layer.provide(MysqlClient.layer({ url: Redacted.make(proxy.url), maxConnections: 1 }))
    )
    const context = yield* Layer.build(
      MysqlQueue.layer().pipe(
        Layer.provideMerge(MysqlClient.layer({ url: Redacted.make((yield* Database).url), maxConnections: 1 }))
      )
    )
    yield* Effect.forEach(Array.from({ length: workers }), () => Layer.build(Layer.fresh(own)), {
      concurrency: 4,
      discard: true
    }).pipe(Logger.withMinimumLogLevel(LogLevel.Warning))
    // Every statement passes, and is counted.
    proxy.rules.push({ matches: /./, action: { delay: 0 } })
    const asked = (millis: number) =>
      Effect.gen(function* () {
        const before = proxy.hits[0] ?? 0
        const [elapsed] = yield* Effect.timed(Effect.sleep(Duration.millis(millis)))
        return { statements: (proxy.hits[0] ?? 0) - before, millis: Duration.toMillis(elapsed) }
      })
    return {
      proxy,
      asked,
      started: Deferred.await(started),
      enqueue: Effect.provide(Queue.enqueue(first, { n: 1 }), context)
    }
  })

// Side by side, since each has a proxy of its own that counts.
describe("a fleet of idle workers", { concurrent: true }, () => {
  layer(database, { excludeTestServices: true, timeout: "2 minutes" })((it) => {
    it.scoped(
      "N1: of twenty asks once for each queue and poll, less when each answer takes two seconds, and starts a job",
      () =>
        Effect.gen(function* () {
          const workers = 20
          const { asked, enqueue, proxy, started } = yield* fleet(workers)
          yield* Effect.sleep("2 seconds")
          const idle = yield* asked(4_000)
          expect(idle.statements).toBeLessThanOrEqual(most(workers, idle.millis))
          // They do ask: an idle queue is polled at its own interval or at a longer one, and never given up.
          expect(idle.statements).toBeGreaterThan(workers * queuesOfEach)
          const slow = { matches: /read_only/, action: { delay: 2_000 } } as const
          proxy.rules.unshift(slow)
          yield* Effect.sleep("2 seconds")
          const strained = yield* asked(6_000)
          // What suffers the delay is hit there. There are connections for more: polls that did not wait for an answer would show.
          expect(strained.statements).toBeGreaterThan(workers)
          expect(strained.statements).toBeLessThanOrEqual(most(workers, strained.millis, 2_000))
          const [waited] = yield* Effect.timed(Effect.zipRight(enqueue, started))
          // A look that is under way, the pause after it, and the look that finds the job.
          expect(Duration.toMillis(waited)).toBeLessThan(2_000 + poll + 2_000 + 1_000)
          // A worker that stops waits for the look that is under way.
          proxy.rules.length = 0
        })
    )

    it.scoped("N1: is seen to ask too much where it polls ten times as often", () =>
      Effect.gen(function* () {
        const { asked } = yield* fleet(1)
        yield* Effect.sleep("1 second")
        // Not a tenth of `poll`: beside that it would count how long an answer takes on a busy machine.
        const { millis, statements } = yield* asked(8_000)
        expect(statements).toBeGreaterThan(most(1, millis, 0, 10 * poll))
      })
    )
  })
})
