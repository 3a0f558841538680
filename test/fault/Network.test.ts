import { SqlClient } from "@effect/sql"
import { describe, expect, layer } from "@effect/vitest"
import { Deferred, Duration, Effect, Logger, Option, Ref } from "effect"
import { Queue, Worker } from "../../src/index.js"
import { database } from "../support/Mysql.js"
import { scene, statements, succeeded } from "../support/QueueBehindProxy.js"
import { until } from "../support/Until.js"

const { claimLock, claimLone, claimTake, insert, renewal, settlement } = statements

/** A minute with LEASEHOLD_OUTAGE_SECONDS=60, and then with two thousand due jobs. */
const outage = Duration.seconds(Number(process.env["LEASEHOLD_OUTAGE_SECONDS"] ?? 3))
const dueInOutage = Duration.lessThan(outage, "30 seconds") ? 50 : 2_000
/** The longest pause between two claims that fail, the statement that is under way, and some room. */
const resumes = Duration.seconds(5 + 2 + 2)

// Side by side, since each has a queue and a proxy of its own, and waits for most of its time.
describe("through a network that fails", { concurrent: true }, () => {
  layer(database, { excludeTestServices: true, timeout: "2 minutes" })((it) => {
    it.scoped("a lost answer to an enqueue without a key is an unknown outcome, and nothing is sent twice", () =>
      Effect.gen(function* () {
        const { context, job, proxy, rows } = yield* scene()
        proxy.rules.push({ matches: insert, action: "swallow", times: 1 })
        const lost = yield* Effect.flip(Queue.enqueue(job, { n: 1 })).pipe(Effect.provide(context))
        expect(lost).toMatchObject({ _tag: "OutcomeUnknown", verb: "enqueue" })
        expect(yield* rows("state")).toEqual([{ state: 0 }])
      })
    )

    it.scoped("a lost answer to an enqueue with a key is asked for again: one job, its id", () =>
      Effect.gen(function* () {
        const { context, job, proxy, rows } = yield* scene()
        proxy.rules.push({ matches: /COMMIT/, action: "swallow", times: 1 })
        const { id } = yield* Queue.enqueue(job, { n: 1 }, { idempotency: { key: "once" } }).pipe(
          Effect.provide(context)
        )
        expect(yield* rows("CAST(id AS CHAR) AS id")).toEqual([{ id }])
      })
    )

    it.scoped("a lost answer to a claim leaves the job to the end of its lease, then it runs once", () =>
      Effect.gen(function* () {
        const { context, job, proxy, rows, runs, work } = yield* scene()
        proxy.rules.push({ matches: claimTake, action: "swallow", times: 1 })
        yield* Queue.enqueue(job, { n: 1 }).pipe(Effect.provide(context))
        yield* work((n) => Effect.succeed(n), { lease: "3 seconds" })
        yield* until(rows("state, token, attempt"), succeeded(1))
        expect(yield* Ref.get(runs)).toBe(1)
        expect(yield* rows("state, token, attempt")).toEqual([{ state: 2, token: 2, attempt: 2 }])
      })
    )

    const faultsOfClaim = {
      "a lost answer to": "swallow",
      "a deadlock of": { errno: 1213, sqlState: "40001" },
      "a server that prepares no more and so refuses": { errno: 1461, sqlState: "42000" },
      "a user who may not lock the row of the queue, at": { errno: 1142, sqlState: "42000" }
    } as const
    for (const [fault, action] of Object.entries(faultsOfClaim)) {
      it.scoped(`${fault} the claim of a job that an idle worker was woken for costs no second run`, () =>
        Effect.gen(function* () {
          const { context, job, proxy, rows, runs, work } = yield* scene()
          yield* work((n) => Effect.succeed(n), { poll: "1 second", lease: "3 seconds" })
          proxy.rules.push({ matches: claimLone, action, times: 1 })
          // One that is added just when a poll is under way may be found by it.
          const added = yield* until(
            Effect.zipRight(
              Effect.provide(Queue.enqueue(job, { n: 1 }), context),
              Effect.delay(rows("state"), "100 millis")
            ),
            () => proxy.hits[0] === 1
          )
          const seen = yield* until(rows("state, token, attempt"), succeeded(added.length))
          expect(yield* Ref.get(runs)).toBe(added.length)
          // Where the answer was lost, the job had to wait for the end of its lease.
          const most = action === "swallow" ? 2 : 1
          expect(Math.max(...seen.map(({ token }) => Number(token)))).toBe(most)
          expect(seen.filter(({ token }) => token === 1).length).toBe(added.length - (most - 1))
        })
      )
    }

    it.scoped(
      "a lost answer to a completion is found again by its token: the job stays completed, and the handler ran once",
      () =>
        Effect.gen(function* () {
          const { context, job, proxy, rows, runs, work } = yield* scene()
          proxy.rules.push({ matches: settlement, action: "swallow", times: 2 })
          yield* Queue.enqueue(job, { n: 7 }).pipe(Effect.provide(context))
          yield* work((n) => Effect.succeed(n), { lease: "3 seconds" })
          yield* until(rows("state"), succeeded(1))
          // Longer than the lease.
          yield* Effect.sleep("3500 millis")
          expect(yield* Ref.get(runs)).toBe(1)
          expect(proxy.hits[0]).toBeGreaterThanOrEqual(1)
          expect(yield* rows("state, token, output")).toEqual([{ state: 2, token: 1, output: "7" }])
        })
    )

    it.scoped("a lost answer to the commit of completeWith is found again, and its writes are there once", () =>
      Effect.gen(function* () {
        const { context, job, proxy, query, rows } = yield* scene()
        yield* query("CREATE TABLE effects_found (id INT AUTO_INCREMENT PRIMARY KEY)")
        proxy.rules.push({ matches: settlement, action: "swallow", times: 1 })
        const value = yield* Effect.scoped(
          Effect.gen(function* () {
            const sql = yield* SqlClient.SqlClient
            yield* Queue.enqueue(job, { n: 7 })
            const lease = yield* Queue.claim(job)
            return yield* lease.completeWith(Effect.as(sql`INSERT INTO effects_found VALUES ()`, 7))
          })
        ).pipe(Effect.provide(context))
        expect(value).toBe(7)
        expect(proxy.hits).toEqual([1])
        expect(yield* query("SELECT COUNT(*) AS effects FROM effects_found")).toEqual([{ effects: 1 }])
        expect(yield* rows("state, output")).toEqual([{ state: 2, output: "7" }])
      })
    )

    it.scoped("a commit of completeWith that never happened is run again, and its writes are there once", () =>
      Effect.gen(function* () {
        const { context, job, proxy, query, rows } = yield* scene()
        yield* query("CREATE TABLE effects_again (id INT AUTO_INCREMENT PRIMARY KEY)")
        proxy.rules.push({ matches: settlement, action: { errno: 1213, sqlState: "40001" }, times: 2 })
        let runs = 0
        yield* Effect.scoped(
          Effect.gen(function* () {
            const sql = yield* SqlClient.SqlClient
            yield* Queue.enqueue(job, { n: 7 })
            const lease = yield* Queue.claim(job)
            yield* lease.completeWith(
              Effect.zipRight(
                Effect.sync(() => runs++),
                Effect.as(sql`INSERT INTO effects_again VALUES ()`, 7)
              )
            )
          })
        ).pipe(Effect.provide(context))
        expect(runs).toBe(3)
        expect(yield* query("SELECT COUNT(*) AS effects FROM effects_again")).toEqual([{ effects: 1 }])
        expect(yield* rows("state")).toEqual([{ state: 2 }])
      })
    )

    it.scoped("deadlocks and lock waits of claims and settlements cost no attempt and no second run", () =>
      Effect.gen(function* () {
        const { context, job, proxy, rows, runs, work } = yield* scene()
        for (const matches of [claimLock, claimTake, settlement]) {
          proxy.rules.push({ matches, action: { errno: 1213, sqlState: "40001" }, times: 3 })
          proxy.rules.push({ matches, action: { errno: 1205, sqlState: "HY000" }, times: 3 })
        }
        yield* Queue.enqueueAll(
          job,
          Array.from({ length: 200 }, (_, n) => ({ n }))
        ).pipe(Effect.provide(context))
        // Nothing is claimed ahead: what waits for a slot for a second is given back, and claimed under another token.
        yield* work((n) => Effect.succeed(n), { queues: { [job.queue]: { prefetch: 0 } } })
        yield* until(rows("state"), succeeded(200))
        expect(yield* Ref.get(runs)).toBe(200)
        expect(proxy.hits).toEqual([3, 3, 3, 3, 3, 3])
        expect(yield* rows("DISTINCT attempt, token, queue, 0 AS id")).toHaveLength(1)
      })
    )

    it.scoped("renewals that fail for five leases: held work stops in time, and the worker recovers by itself", () =>
      Effect.gen(function* () {
        const { context, job, proxy, rows, runs, work } = yield* scene()
        const interrupted = yield* Deferred.make<void>()
        proxy.rules.push({ matches: renewal, action: { errno: 1290, sqlState: "HY000" } })
        proxy.rules.push({ matches: claimTake, action: { errno: 1290, sqlState: "HY000" } })
        yield* Queue.enqueue(job, { n: 1 }).pipe(Effect.provide(context))
        let first = true
        // The first claim gets through, then every write fails.
        const rule = proxy.rules.pop()
        yield* work(
          (n) => {
            if (!first) return Effect.succeed(n)
            first = false
            if (rule !== undefined) proxy.rules.push(rule)
            return Effect.onInterrupt(Effect.never, () => Deferred.succeed(interrupted, void 0))
          },
          { lease: "1 second" }
        )
        yield* Effect.timeout(Deferred.await(interrupted), "5 seconds")
        yield* Effect.sleep("4 seconds")
        expect(yield* Ref.get(runs)).toBe(1)
        proxy.rules.splice(0)
        yield* until(rows("state"), succeeded(1))
        expect(yield* Ref.get(runs)).toBe(2)
      })
    )

    it.scoped(
      "F2: an outage, refused or in a black hole, ends nothing: claims go on soon after the server is back, with few words",
      () =>
        Effect.gen(function* () {
          const errors = yield* Ref.make(0)
          const { context, job, proxy, rows, runs, work } = yield* scene()
          yield* Queue.enqueueAll(
            job,
            Array.from({ length: dueInOutage }, (_, n) => ({ n }))
          ).pipe(Effect.provide(context))
          const counting = Logger.replace(
            Logger.defaultLogger,
            Logger.make(({ logLevel }) => {
              if (logLevel._tag === "Error") Effect.runSync(Ref.update(errors, (count) => count + 1))
            })
          )
          yield* proxy.down(true)
          yield* Effect.provide(
            work((n) => Effect.succeed(n)),
            counting
          )
          yield* Effect.sleep(outage)
          expect(yield* Ref.get(runs)).toBe(0)
          yield* proxy.down(false)
          yield* until(Ref.get(runs), (count) => count > 0, resumes)
          yield* until(rows("state"), succeeded(dueInOutage))
          yield* proxy.blackHole(true)
          yield* Effect.sleep(outage)
          yield* proxy.blackHole(false)
          // As a server that was started anew: it knows nothing of the connections from before.
          yield* proxy.cut
          const direct = yield* Effect.flatMap(Queue.Queue, () =>
            until(Effect.option(Queue.enqueue(job, { n: 51 }, { idempotency: { key: "back" } })), Option.isSome)
          ).pipe(Effect.provide(context))
          expect(Option.isSome(direct)).toBe(true)
          yield* until(Ref.get(runs), (count) => count > dueInOutage, resumes)
          yield* until(rows("state"), succeeded(dueInOutage + 1))
          expect(yield* Ref.get(runs)).toBe(dueInOutage + 1)
          // In each outage the first fault of a loop, and one in 30 seconds: claims, renewals, the reaper and the cleaner.
          expect(yield* Ref.get(errors)).toBeLessThanOrEqual(2 * 4 * (1 + Duration.toSeconds(outage) / 30))
        }),
      180_000 + 2 * Duration.toMillis(outage)
    )

    it.scoped(
      "a connection that was closed while it rested is noticed before it is used: the first call after it succeeds",
      () =>
        Effect.gen(function* () {
          const { context, job, proxy, rows } = yield* scene()
          yield* Effect.gen(function* () {
            yield* Queue.enqueue(job, { n: 1 })
            yield* Effect.sleep("1200 millis")
            yield* proxy.cut
            yield* Queue.enqueue(job, { n: 2 })
          }).pipe(Effect.provide(context))
          expect(yield* rows("state")).toHaveLength(2)
        })
    )

    it.scoped(
      "statements that the server refuses are errors, not an empty queue, and are not tried without a pause",
      () =>
        Effect.gen(function* () {
          const { context, job, proxy, rows, work } = yield* scene()
          yield* Queue.enqueue(job, { n: 1 }).pipe(Effect.provide(context))
          proxy.rules.push({ matches: claimLock, action: { errno: 1064, sqlState: "42000" } })
          const built = yield* work((n) => Effect.succeed(n))
          yield* Effect.sleep("3 seconds")
          const { queues } = yield* Effect.provide(Worker.health, built)
          expect(queues[0]?.fault).toMatchObject({ _tag: "StoreRejected", code: expect.stringContaining("1064") })
          expect(proxy.hits[0]).toBeLessThan(10)
          proxy.rules.splice(0)
          yield* until(rows("state"), succeeded(1))
        })
    )

    it.scoped("a stop ends within its bounds although the database is in a black hole", () =>
      Effect.gen(function* () {
        const { context, job, proxy } = yield* scene()
        const started = yield* Deferred.make<void>()
        yield* Queue.enqueue(job, { n: 1 }).pipe(Effect.provide(context))
        const handler = job.toLayer(() =>
          Effect.zipRight(Deferred.succeed(started, void 0), Effect.as(Effect.sleep("2 seconds"), 1))
        )
        const worker = Worker.run({
          jobs: [job],
          lease: "1 second",
          poll: "50 millis",
          shutdown: { grace: "1 second" },
          interruptGrace: "500 millis"
        })
        const fiber = yield* Effect.fork(Effect.exit(Effect.provide(worker, handler))).pipe(Effect.provide(context))
        yield* Deferred.await(started)
        yield* proxy.blackHole(true)
        yield* fiber.interruptAsFork(fiber.id())
        const [time] = yield* Effect.timed(fiber.await)
        expect(Duration.toMillis(time)).toBeLessThan(6_000)
      })
    )

    it.scoped("an idle worker asks one statement at each poll, and a trickle of jobs does not make it poll more", () =>
      Effect.gen(function* () {
        const { context, job, proxy, rows, work } = yield* scene()
        // Every statement passes, and is counted.
        proxy.rules.push({ matches: /./, action: { delay: 0 } })
        yield* work((n) => Effect.succeed(n), { poll: "200 millis", maintenance: false })
        yield* Effect.sleep("1 second")
        /** How many statements there were while `act` ran, and how many polls there may be in that time: one comes after 160 to 200 ms. */
        const counted = (act: Effect.Effect<unknown, unknown>) =>
          Effect.gen(function* () {
            const before = proxy.hits[0] ?? 0
            const [elapsed] = yield* Effect.timed(act)
            return { statements: (proxy.hits[0] ?? 0) - before, polls: Duration.toMillis(elapsed) / 160 + 1 }
          })
        const idle = yield* counted(Effect.sleep("3 seconds"))
        expect(idle.statements).toBeLessThanOrEqual(idle.polls)
        expect(idle.statements).toBeGreaterThanOrEqual(8)
        const trickle = Effect.forEach([1, 2, 3], (n) => Effect.delay(Queue.enqueue(job, { n }), "500 millis"), {
          discard: true
        }).pipe(Effect.provide(context))
        const busy = yield* counted(Effect.zipRight(trickle, until(rows("state"), succeeded(3))))
        // An insert, a look, a claim of two packets, a settlement and the look after it for each job, beside the polls.
        expect(busy.statements).toBeLessThanOrEqual(3 * 8 + busy.polls)
      })
    )

    it.scoped(
      "renewals that are never answered: the handler is interrupted before its lease can end in the database",
      () =>
        Effect.gen(function* () {
          const { context, job, proxy, query, work } = yield* scene()
          const interruptedAt = yield* Deferred.make<ReadonlyArray<Record<string, unknown>>>()
          const { id } = yield* Queue.enqueue(job, { n: 1 }).pipe(Effect.provide(context))
          proxy.rules.push({ matches: renewal, action: "hang" })
          // A tenth of it is left for the interruption, a second here.
          yield* work(() =>
            Effect.onInterrupt(Effect.never, () =>
              Effect.flatMap(
                query(
                  "SELECT token, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), CAST(JSON_UNQUOTE(JSON_EXTRACT(attempts, '$[0].s')) AS DATETIME(6))"
                    + " + INTERVAL 10 SECOND) AS left_of_lease FROM leasehold_jobs WHERE id = ?",
                  [id]
                ),
                (rows) => Deferred.succeed(interruptedAt, rows)
              )
            )
          )
          const [row] = yield* Effect.timeout(Deferred.await(interruptedAt), "20 seconds")
          // The renewals did happen, so the lease in the database is longer still: what counts is what the holder may know.
          expect(row?.["token"]).toBe(1)
          expect(Number(row?.["left_of_lease"])).toBeGreaterThan(0)
          expect(proxy.hits[0]).toBeGreaterThan(0)
        })
    )
  })
})
