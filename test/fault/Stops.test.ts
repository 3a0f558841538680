import { MysqlClient } from "@effect/sql-mysql2"
import { expect, layer } from "@effect/vitest"
import { Effect, Exit, Fiber, Layer, Random, Redacted, Schema } from "effect"
import { Job, MysqlQueue, Queue, Worker } from "../../src/index.js"
import { Database, database } from "../support/Mysql.js"
import { queue } from "../support/QueueOnMysql.js"

const workOf = (name: string) => Job.make("stops.work", { payload: { millis: Schema.Number }, queue: name })
const Work = workOf("stops")

/** A worker whose grace is shorter than the longest handlers. */
const work = (job: typeof Work, workerId: string) =>
  Worker.run({
    jobs: [job],
    queues: { [job.queue]: { concurrency: 8 } },
    lease: "20 seconds",
    poll: "50 millis",
    workerId,
    maintenance: false,
    shutdown: { grace: "30 millis" },
    interruptGrace: "2 seconds"
  }).pipe(Effect.provide(job.toLayer(({ millis }) => Effect.sleep(millis))))

layer(queue(), { excludeTestServices: true, timeout: "3 minutes" })("a worker that is stopped", (it) => {
  it.effect(
    "G3: two hundred times at a random moment under load leaves no job to a lease of its own",
    () =>
      Effect.gen(function* () {
        const { query } = yield* Database
        /** Fifty rounds with a queue of its own, in which no other lane's worker comes by. */
        const lane = (first: number) =>
          Effect.gen(function* () {
            const job = workOf(`stops.${first}`)
            for (let round = first; round < first + 50; round++) {
              const [pending] = yield* query(
                "SELECT COUNT(*) AS count FROM leasehold_jobs WHERE queue = ? AND state = 0",
                [job.queue]
              )
              const missing = 100 - Number(pending?.["count"] ?? 0)
              if (missing > 0) {
                yield* Queue.enqueueAll(
                  job,
                  Array.from({ length: missing }, (_, index) => ({ millis: index % 5 === 0 ? 200 : index % 5 }))
                )
              }
              const worker = yield* Effect.fork(work(job, `stopped-${round}`))
              yield* Effect.sleep(yield* Random.nextIntBetween(0, 60))
              const exit = yield* Fiber.interrupt(worker)
              // Interrupted, and nothing beside it: no job was left to the end of its lease.
              expect(Exit.isInterrupted(exit), String(exit)).toBe(true)
              const owned = yield* query("SELECT id, lease_owner FROM leasehold_jobs WHERE queue = ? AND state = 1", [
                job.queue
              ])
              expect(owned, `round ${round}`).toEqual([])
            }
            // Others start them within a poll, not after a lease.
            const heir = yield* Effect.fork(work(job, "heir"))
            yield* Effect.sleep("2 seconds")
            yield* Fiber.interrupt(heir)
            const inherited = yield* query(
              "SELECT id FROM leasehold_jobs WHERE queue = ? AND JSON_SEARCH(attempts, 'one', 'heir') IS NOT NULL",
              [job.queue]
            )
            expect(inherited.length).toBeGreaterThan(0)
          })
        yield* Effect.forEach([0, 50, 100, 150], lane, { concurrency: "unbounded", discard: true })
        const [lost] = yield* query(
          "SELECT id FROM leasehold_jobs WHERE JSON_SEARCH(attempts, 'one', 'expired') IS NOT NULL"
        )
        expect(lost).toBeUndefined()
      }),
    150_000
  )
})

/** The client's flag by which MySQL counts matched rows instead of changed ones, switched off. */
const withoutFoundRows = MysqlQueue.layer().pipe(
  Layer.provideMerge(
    Layer.unwrapEffect(
      Effect.map(Database, ({ url }) =>
        MysqlClient.layer({ url: Redacted.make(url), maxConnections: 4, poolConfig: { flags: ["-FOUND_ROWS"] } })
      )
    )
  ),
  Layer.provideMerge(database)
)

for (const [name, services] of [
  ["with the driver's flag FOUND_ROWS", queue()],
  ["without the driver's flag FOUND_ROWS", withoutFoundRows]
] as const) {
  layer(services, { excludeTestServices: true, timeout: "1 minute" })(`verbs that change nothing, ${name}`, (it) => {
    it.scoped("C11: are answered the same", () =>
      Effect.gen(function* () {
        const { id } = yield* Queue.enqueue(Work, { millis: 0 })
        const first = yield* Queue.claim(Work, { lease: "30 seconds" })
        yield* Effect.all(Effect.replicate(first.renew, 20), { concurrency: "unbounded" })
        yield* first.release
        expect(yield* Effect.flip(first.release)).toMatchObject({ _tag: "AlreadySettled" })
        const second = yield* Queue.claim(Work, { lease: "30 seconds" })
        yield* second.renew
        yield* second.complete(undefined)
        expect(yield* Effect.flip(second.complete(undefined))).toMatchObject({ _tag: "AlreadySettled" })
        expect(yield* Queue.cancel(id)).toEqual({ _tag: "ended", state: "succeeded" })
        expect(yield* Effect.flip(Queue.retry(id))).toMatchObject({ _tag: "JobNotEnded" })
        const other = yield* Queue.enqueue(Work, { millis: 0 })
        expect(yield* Queue.cancel(other.id)).toEqual({ _tag: "canceled" })
        expect(yield* Queue.cancel(other.id)).toEqual({ _tag: "ended", state: "canceled" })
        yield* Queue.retry(other.id)
        yield* Queue.pause("stops")
        yield* Queue.pause("stops")
        yield* Queue.resume("stops")
        expect((yield* Queue.get(other.id)).state).toBe("pending")
      })
    )
  })
}
