/**
 * Scenarios F4 and F11: connections that are not what they were when they were last used, and one that never answers.
 */
import { describe, expect, layer } from "@effect/vitest"
import { Deferred, Duration, Effect, Logger, Ref } from "effect"
import { Queue } from "../../src/index.js"
import { database } from "../support/Mysql.js"
import { scene, statements, succeeded } from "../support/QueueBehindProxy.js"
import { until } from "../support/Until.js"

/** Errors that are logged. */
const counted = Effect.map(Ref.make(0), (errors) => ({
  errors,
  counting: Logger.replace(
    Logger.defaultLogger,
    Logger.make(({ logLevel }) => {
      if (logLevel._tag === "Error") Effect.runSync(Ref.update(errors, (count) => count + 1))
    })
  )
}))

const ways = {
  "that the server has closed after its wait_timeout": "closed",
  "that a firewall has forgotten": "forgotten"
} as const

// Side by side, since each has a queue and a proxy of its own, and waits for most of its time.
describe("connections", { concurrent: true }, () => {
  layer(database, { excludeTestServices: true, timeout: "2 minutes" })((it) => {
    for (const [name, way] of Object.entries(ways)) {
      it.scoped(`F4: ${name}, trouble nobody: the first call of each kind succeeds, and a job starts on time`, () =>
        Effect.gen(function* () {
          const { context, job, proxy, rows, runs, work } = yield* scene()
          const { counting, errors } = yield* counted
          if (way === "closed") {
            proxy.rules.push({
              matches: statements.settings,
              action: { rewrite: (text) => `${text}, wait_timeout = 2` }
            })
            yield* proxy.cut
          }
          yield* Effect.gen(function* () {
            // A lease that outlasts the wait for a connection: what is answered after the lease is left to the next claim.
            yield* Effect.provide(
              work((n) => Effect.succeed(n), { poll: "2500 millis", maintenance: false, lease: "10 seconds" }),
              counting
            )
            const enqueue = (n: number) => Queue.enqueue(job, { n }, { idempotency: { key: `${way} ${n}` } })
            yield* Effect.all([1, 2, 3].map(enqueue), { concurrency: "unbounded" })
            yield* Queue.withTransaction(enqueue(4))
            // Now, and not after the wait: on a busy machine some of them have rested for too long by then.
            const open = proxy.open()
            expect(open).toBeGreaterThan(3)
            yield* until(rows("state"), succeeded(4))
            const delayed = yield* Queue.enqueue(job, { n: 5 }, { delay: "3 seconds" })
            if (way === "closed") yield* until(Effect.sync(proxy.open), (now) => now < open / 2, "15 seconds")
            else {
              // Firewalls forget what has rested: there are pauses between two polls that are longer than this.
              const counted = proxy.rules.push({ matches: /./, action: { delay: 0 } }) - 1
              let seen = -1
              let quietSince = 0
              const quiet = Effect.sync(() => {
                const hits = proxy.hits[counted] ?? 0
                if (hits !== seen) quietSince = performance.now()
                seen = hits
                return performance.now() - quietSince
              })
              yield* until(quiet, (millis) => millis > 1_100)
              yield* proxy.silence
            }
            const firsts: ReadonlyArray<Effect.Effect<unknown, unknown, Queue.Queue>> = [
              enqueue(6),
              Queue.withTransaction(enqueue(7)),
              Queue.get(delayed.id),
              Queue.enqueueAll(job, [{ n: 8 }])
            ]
            for (const first of firsts) {
              const [took] = yield* Effect.timed(first)
              // One statement timeout finds out about all connections that were forgotten together; two would be seen.
              expect(Duration.toMillis(took)).toBeLessThan(3_500)
            }
            yield* until(Ref.get(runs), (count) => count === 8, "10 seconds")
            const [row] = yield* rows(
              "MAX(TIMESTAMPDIFF(MICROSECOND, first_due_at, CAST(JSON_UNQUOTE(JSON_EXTRACT(attempts, '$[0].s')) AS DATETIME(6)))) AS late,"
                + " MAX(attempt) AS attempts, MIN(id) AS id"
            )
            // A poll, and the statement timeout by which a forgotten connection is noticed; a second one would be seen.
            expect(Number(row?.["late"])).toBeLessThan(2_500_000 + 2_000_000 + 1_500_000)
            expect(row?.["attempts"]).toBe(1)
          }).pipe(Effect.provide(context))
          expect(yield* Ref.get(errors)).toBe(0)
        })
      )
    }

    it.scoped(
      "F11: of which the claim's own hangs for ever: it is given up in time, claims go on, and held jobs are renewed",
      () =>
        Effect.gen(function* () {
          const { context, job, proxy, rows, runs, work } = yield* scene()
          const release = yield* Deferred.make<void>()
          const held = yield* Deferred.make<void>()
          yield* Queue.enqueue(job, { n: 0 }).pipe(Effect.provide(context))
          yield* work(
            (n) =>
              n === 0
                ? Effect.as(Effect.zipRight(Deferred.succeed(held, undefined), Deferred.await(release)), n)
                : Effect.succeed(n),
            { lease: "3 seconds" }
          )
          yield* Deferred.await(held)
          const enqueue = (from: number) =>
            Queue.enqueueAll(
              job,
              Array.from({ length: 20 }, (_, n) => ({ n: from + n }))
            ).pipe(Effect.provide(context))
          // Its lock never comes back; the look before it does.
          proxy.rules.push({ matches: statements.claimLock, action: "hang", times: 1 })
          yield* enqueue(1)
          yield* until(
            Effect.sync(() => proxy.hits[0] ?? 0),
            (hits) => hits === 1
          )
          yield* enqueue(21)
          const [took] = yield* Effect.timed(until(Ref.get(runs), (count) => count >= 1 + 20))
          // The statement timeout of two seconds, the pause after a claim that failed, and the claim; not the half minute after
          // which the server gives the lost one up.
          expect(Duration.toMillis(took)).toBeLessThan(5_000)
          // The job that is held outlives several leases.
          yield* Effect.sleep("6500 millis")
          expect(
            yield* rows("SUM(state = 1 AND due_at > UTC_TIMESTAMP(6)) AS held, MAX(attempt) AS attempts, 0 AS id")
          ).toEqual([{ held: "1", attempts: 1, id: 0 }])
          // What the lost claim has locked is free when the server hears that nobody is there any more.
          yield* proxy.cut
          yield* Deferred.succeed(release, undefined)
          yield* until(rows("state"), succeeded(41))
          expect(yield* Ref.get(runs)).toBe(41)
        })
    )
  })
})
