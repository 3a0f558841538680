/**
 * The one way to open a transaction, with connections that are killed, cut or left without an answer at each of its steps.
 */
import { SqlClient } from "@effect/sql"
import { MysqlClient } from "@effect/sql-mysql2"
import { describe, expect, layer } from "@effect/vitest"
import { Cause, Deferred, Duration, Effect, Exit, Fiber, Layer, Redacted, Schedule, Schema } from "effect"
import { Job, MysqlQueue, Queue, Worker } from "../../src/index.js"
import { Database, database, emptyDatabase } from "../support/Mysql.js"
import * as Proxy from "../support/Proxy.js"
import { until } from "../support/Until.js"

const statementTimeout = Duration.seconds(1)
const poolSize = 3

/** A queue in a database of its own behind a proxy of its own, with three connections for transactions. */
const scene = (queue: string) =>
  Effect.gen(function* () {
    const direct = yield* emptyDatabase()
    yield* direct.query(
      "CREATE TABLE IF NOT EXISTS pairs (id INT AUTO_INCREMENT PRIMARY KEY, round VARCHAR(60), KEY (round))"
    )
    const proxy = yield* Proxy.make(direct.url)
    const context = yield* Layer.build(
      MysqlQueue.layer({ statementTimeout, connections: { worker: 2, client: 2, transaction: poolSize } }).pipe(
        Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(proxy.url), maxConnections: 2 })),
        // On a busy machine the start may find no answer in that time.
        Layer.retry(Schedule.recurs(5))
      )
    )
    const job = Job.make("safe.work", { payload: {}, success: Schema.Void, queue })
    return { ...direct, proxy, context, job }
  })

type Scene = Effect.Effect.Success<ReturnType<typeof scene>>

const ways = ["withTransaction", "completeWith"] as const
const steps = {
  begin: /START TRANSACTION/,
  statement: /INSERT INTO pairs/,
  commit: /COMMIT/,
  rollback: /ROLLBACK/
} as const
const faults = ["killed", "cut", "black hole", "refused"] as const

type Way = (typeof ways)[number]
type Step = keyof typeof steps
type Fault = (typeof faults)[number]

class Unwanted extends Schema.TaggedError<Unwanted>()("Unwanted", {}) {}

/** Two rows that belong together. What hangs is given up by the caller's own timeout: the library does not cut his statements. */
const writePair = (round: string, fails: boolean) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const insert = Effect.timeout(sql`INSERT INTO pairs (round) VALUES (${round})`, statementTimeout)
    yield* insert
    yield* insert
    if (fails) yield* new Unwanted()
  })

/** Kills the session that is about to run the step: the proxy holds it, and lets it go on when the server has ended it. */
const killer = ({ proxy, query }: Scene, goOn: Effect.Latch) =>
  Effect.gen(function* () {
    // Not before: the claim of the job is a transaction, too, and on a busy machine the step comes late.
    yield* until(
      Effect.sync(() => proxy.hits[0] ?? 0),
      (hits) => hits > 0
    )
    const [row] = yield* until(
      query(
        "SELECT threads.processlist_id AS id FROM performance_schema.threads AS threads"
          + " JOIN information_schema.innodb_trx ON trx_mysql_thread_id = threads.processlist_id"
          + " WHERE threads.processlist_db = DATABASE() LIMIT 1"
      ),
      (rows) => rows.length > 0,
      "400 millis"
    )
    yield* query(`KILL ${Number(row?.["id"])}`)
    // Before its first statement there is no transaction yet to be found.
  }).pipe(Effect.ignore, Effect.ensuring(goOn.open))

const actionOf = (fault: Fault, goOn: Effect.Latch): Proxy.Rule["action"] => {
  switch (fault) {
    case "killed":
      return { held: goOn }
    case "cut":
      return "swallow"
    case "black hole":
      return "hang"
    case "refused":
      return { errno: 1053, sqlState: "08S01" }
  }
}

/** One transaction that meets one fault; holds what the caller gets against what is in the table. */
const round = (at: Scene, name: string, way: Way, step: Step, fault: Fault) =>
  Effect.gen(function* () {
    const work = writePair(name, step === "rollback")
    const goOn = yield* Effect.makeLatch()
    const action = actionOf(fault, goOn)
    const meet = Effect.sync(() => at.proxy.rules.push({ matches: steps[step], action, times: 1 }))
    const transaction =
      way === "withTransaction"
        ? Effect.zipRight(meet, Queue.withTransaction(work))
        : Effect.scoped(
            Effect.gen(function* () {
              yield* Queue.enqueue(at.job, {})
              const lease = yield* Queue.claim(at.job, { lease: "1 minute" })
              yield* meet
              yield* lease.completeWith(work)
            })
          )
    const kill = fault === "killed" ? yield* Effect.fork(killer(at, goOn)) : undefined
    const [time, exit] = yield* Effect.timed(Effect.exit(transaction)).pipe(Effect.provide(at.context))
    if (kill !== undefined) yield* Fiber.interrupt(kill)
    at.proxy.rules.splice(0)
    at.proxy.hits.splice(0)
    const said = `${name}: ${Exit.isSuccess(exit) ? "success" : Cause.pretty(exit.cause)}`
    // Bounded: BEGIN, a statement, its end, and asking again, and never a defect in place of an error (T4, T12).
    expect(Duration.toMillis(time), said).toBeLessThan(5 * Duration.toMillis(statementTimeout) + 500)
    if (Exit.isFailure(exit)) {
      expect([...Cause.defects(exit.cause)], said).toEqual([])
      expect(Cause.isInterrupted(exit.cause), said).toBe(false)
    }
    const failure = Exit.isFailure(exit) ? Cause.failureOption(exit.cause) : undefined
    const tag = failure?._tag === "Some" ? failure.value._tag : undefined
    if (step === "rollback") expect(tag, said).toBe("Unwanted")
    const [row] = yield* at.query("SELECT COUNT(*) AS pairs FROM pairs WHERE round = ?", [name])
    // A black hole's session still has its transaction open, and nobody sees its rows.
    if (Exit.isSuccess(exit)) expect(row, said).toEqual({ pairs: 2 })
    else if (tag === "OutcomeUnknown") expect([0, 2], said).toContain(row?.["pairs"])
    else expect(row, said).toEqual({ pairs: 0 })
    return tag ?? "success"
  })

/** All transactions at once that the pool has connections for. */
const allAtOnce = ({ context }: Scene) =>
  Effect.gen(function* () {
    const all = yield* Deferred.make<void>()
    let count = 0
    yield* Effect.forEach(
      Array.from({ length: poolSize }),
      () =>
        Queue.withTransaction(
          Effect.suspend(() => (++count === poolSize ? Deferred.succeed(all, void 0) : Deferred.await(all)))
        ),
      { concurrency: "unbounded", discard: true }
    ).pipe(Effect.timeout("5 seconds"), Effect.provide(context))
  })

/** No session more than the pools have places, the application's own two included, and none in a transaction. */
const expectClean = ({ query }: Scene) =>
  until(
    query(
      "SELECT COUNT(*) AS sessions, COUNT(trx_id) AS transactions FROM information_schema.processlist AS list"
        + " LEFT JOIN information_schema.innodb_trx ON trx_mysql_thread_id = list.id"
        + " WHERE db = DATABASE() AND list.id <> CONNECTION_ID()"
    ),
    ([row]) => Number(row?.["sessions"]) <= poolSize + 2 + 2 + 2 && row?.["transactions"] === 0,
    "10 seconds"
  )

layer(database, { excludeTestServices: true, timeout: "2 minutes" })("transactions", (it) => {
  it.scoped(
    "T4, T12, T13: two hundred times killed, cut, black-holed or refused at each of its steps: bounded, a typed error, all or nothing, a clean pool",
    () =>
      Effect.gen(function* () {
        const cases = ways.flatMap((way) =>
          (Object.keys(steps) as ReadonlyArray<Step>).flatMap((step) => faults.map((fault) => ({ way, step, fault })))
        )
        const seen = new Map<string, number>()
        const lane = (first: number) =>
          Effect.gen(function* () {
            const at = yield* scene(`safe.${first}`)
            for (let index = first; index < first + 25; index++) {
              const { fault, step, way } = cases[index % cases.length] ?? (yield* Effect.die("there are cases"))
              const tag = yield* round(at, `${index} ${way} ${step} ${fault}`, way, step, fault)
              seen.set(tag, (seen.get(tag) ?? 0) + 1)
            }
            // New connections may take longer than a statement may; a place in the pool that is lost is lost for good.
            yield* Effect.retry(allAtOnce(at), { times: poolSize, while: ({ _tag }) => _tag === "StoreUnavailable" })
            // What a black hole has swallowed ends when the server hears of it.
            yield* at.proxy.cut
            // Each of the cut connections is met by one call at the most.
            yield* Effect.retry(allAtOnce(at), { times: poolSize, while: ({ _tag }) => _tag === "StoreUnavailable" })
            yield* expectClean(at)
          })
        yield* Effect.forEach([0, 25, 50, 75, 100, 125, 150, 175], lane, { concurrency: "unbounded", discard: true })
        // Each kind of end was met, so none of the assertions above looked at nothing.
        expect([...seen.keys()]).toEqual(
          expect.arrayContaining(["success", "Unwanted", "OutcomeUnknown", "StoreUnavailable", "SqlError"])
        )
      })
  )

  // Side by side, since each has a queue and a pool of its own.
  describe("side by side", { concurrent: true }, () => {
    it.scoped(
      "F8: that are interrupted while they wait for a connection, or in it, give it back: five hundred rounds",
      () =>
        Effect.gen(function* () {
          const at = yield* scene("safe.interrupts")
          yield* Effect.gen(function* () {
            const sql = yield* SqlClient.SqlClient
            for (let index = 0; index < 100; index++) {
              const fibers = yield* Effect.forEach([1, 2, 3, 4, 5], (n) =>
                Effect.fork(
                  Queue.withTransaction(
                    Effect.zipRight(sql`INSERT INTO pairs (round) VALUES ('interrupted')`, Effect.sleep(n))
                  )
                )
              )
              yield* Effect.sleep(index % 7)
              yield* Fiber.interruptAll(fibers)
            }
          }).pipe(Effect.provide(at.context))
          yield* allAtOnce(at)
          yield* expectClean(at)
        })
    )

    for (const size of [1, 2, 4]) {
      it.scoped(
        `F6: held by all handlers for three leases, on an application's pool of ${size}, starve no renewal and no completion`,
        () =>
          Effect.gen(function* () {
            const { url, query } = yield* Database
            const job = Job.make("safe.hold", { payload: { n: Schema.Number }, queue: `safe.hold.${size}` })
            const context = yield* Layer.build(
              MysqlQueue.layer({ connections: { worker: 2, client: 2, transaction: 2 } }).pipe(
                Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(url), maxConnections: size }))
              )
            )
            yield* Effect.gen(function* () {
              const sql = yield* SqlClient.SqlClient
              const hold = Effect.zipRight(sql`SELECT 1`, Effect.sleep("9 seconds"))
              const handler = job.toLayer(({ n }) =>
                Effect.orDie(n < size ? sql.withTransaction(hold) : Queue.withTransaction(hold))
              )
              const jobs = yield* Queue.enqueueAll(
                job,
                Array.from({ length: size + 2 }, (_, n) => ({ n }))
              )
              yield* Layer.build(
                Layer.provide(
                  Worker.layer({
                    jobs: [job],
                    queues: { [job.queue]: { concurrency: size + 2 } },
                    lease: "3 seconds",
                    poll: "100 millis"
                  }),
                  handler
                )
              )
              yield* Effect.forEach(jobs, ({ id }) => Queue.result(job, id), { concurrency: "unbounded" })
            }).pipe(Effect.provide(context))
            expect(
              yield* query(
                "SELECT state, token, attempt, COUNT(*) AS jobs FROM leasehold_jobs WHERE queue = ? GROUP BY 1, 2, 3",
                [job.queue]
              )
            ).toEqual([{ state: 2, token: 1, attempt: 1, jobs: size + 2 }])
          })
      )
    }
  })
})
