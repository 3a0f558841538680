/**
 * The rights that the README lists for each role: they suffice, and none is granted for nothing.
 */
import { SqlClient } from "@effect/sql"
import { MysqlClient } from "@effect/sql-mysql2"
import { expect, layer } from "@effect/vitest"
import { Duration, Effect, Either, Fiber, Layer, Redacted, Schema } from "effect"
import { Job, MysqlQueue, Queue, Worker } from "../../src/index.js"
import { JobStore } from "../../src/JobStore.js"
import * as Migrations from "../../src/Migrations.js"
import { StoreRejected } from "../../src/QueueError.js"
import { Database, database, emptyDatabase, type Outside } from "../support/Mysql.js"

const jobOn = (queueName: string) =>
  Job.make("mode.work", { payload: { text: Schema.String }, success: Schema.String, queue: queueName })

layer(database, { excludeTestServices: true, timeout: "1 minute" })("a database user", (it) => {
  /** A user with these rights, one a line: `SELECT ON jobs`. */
  const user = (name: string, grants: ReadonlyArray<string>) =>
    Effect.flatMap(Database, (at) => userOf(at, name, grants))

  const userOf = ({ query, url }: Outside, name: string, grants: ReadonlyArray<string>) =>
    Effect.gen(function* () {
      const schema = new URL(url).pathname.slice(1)
      const account = `'${name}_${schema.slice(-8)}'@'%'`
      yield* Effect.acquireRelease(query(`CREATE USER ${account} IDENTIFIED BY 'p'`), () =>
        query(`DROP USER ${account}`)
      )
      for (const grant of grants) {
        const [rights, table] = grant.split(" ON ")
        yield* query(`GRANT ${rights} ON ${schema}.${table === "*" ? "*" : `leasehold_${table}`} TO ${account}`)
      }
      const own = new URL(url)
      own.username = `${name}_${schema.slice(-8)}`
      own.password = "p"
      return own.href
    })

  const as = (url: string, options: MysqlQueue.Options) =>
    Layer.build(
      MysqlQueue.layer({ connections: { worker: 2, client: 2, transaction: 2 }, ...options }).pipe(
        Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(url), maxConnections: 3 }))
      )
    )

  const migrator = ["CREATE, SELECT, INSERT, UPDATE ON *"]
  const start = ["SELECT, UPDATE ON migrations"]
  const producer = [...start, "SELECT, INSERT ON jobs"]
  const operator = [
    ...start,
    "SELECT, INSERT, UPDATE ON jobs",
    "SELECT, INSERT, UPDATE ON queues",
    "SELECT ON refusals"
  ]
  const worker = [...start, "SELECT, UPDATE, DELETE ON jobs", "SELECT ON queues", "SELECT, INSERT, DELETE ON refusals"]

  /** What somebody is told who lacks a right: the error, and the right that it names. */
  const toldOf = (outcome: Either.Either<unknown, unknown>): string => {
    if (Either.isRight(outcome)) return "all done"
    const error = outcome.left
    const hint = error instanceof StoreRejected ? error.hint : String(error)
    return /Grant the database user ([A-Z ]+ on [a-z_ ]+);/.exec(hint)?.[1] ?? hint
  }
  const wantedOf = (missing: string | undefined) => missing?.replace(" ON ", " on leasehold_") ?? "all done"

  it.scoped("that migrates needs to create tables; with rights on rows only, the queue starts on them and works", () =>
    Effect.gen(function* () {
      const { query } = yield* Database
      const job = jobOn("rights")
      const creates = yield* user("mig", migrator)
      yield* as(creates, { migrate: "auto" })
      const produces = yield* as(yield* user("pro", producer), { migrate: "verify" })
      const operates = yield* as(yield* user("ope", operator), { migrate: "verify" })
      const works = yield* as(yield* user("wor", worker), { migrate: "verify" })

      yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const idempotency = { key: "k" }
        const first = yield* Queue.enqueue(job, { text: "1" }, { idempotency })
        expect(yield* sql.withTransaction(Queue.enqueue(job, { text: "1" }, { idempotency }))).toEqual({
          id: first.id,
          created: false
        })
        yield* sql.withTransaction(Queue.enqueueAll(job, [{ text: "2" }, { text: "3" }]))
        yield* Queue.withTransaction(Queue.enqueue(job, { text: "4" }))
        expect(yield* Queue.find(idempotency)).toMatchObject({ value: { id: first.id } })
        expect(yield* Queue.list()).toHaveLength(4)
        const denied = yield* Effect.flip(Queue.cancel(first.id))
        expect(denied).toMatchObject({ _tag: "StoreRejected", code: expect.stringContaining("1142") })
      }).pipe(Effect.provide(produces))

      const ids = (yield* Effect.provide(Queue.list(), operates)).map(({ id }) => id)
      yield* Effect.gen(function* () {
        yield* Queue.pause("rights")
        yield* Queue.cancel(ids[3] ?? "")
        yield* Queue.retry(ids[3] ?? "")
        yield* Queue.retryAll({ queue: "none" })
        yield* Queue.why(ids[3] ?? "")
        yield* Queue.counts
        yield* Queue.resume("rights")
      }).pipe(Effect.provide(operates))

      const results = yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const handler = job.toLayer(({ text }, lease) =>
          text === "1" ? Effect.orDie(lease.completeWith(Effect.as(sql`SELECT 1`, text))) : Effect.succeed(text)
        )
        const options = {
          jobs: [job],
          queues: { rights: { concurrency: 2 } },
          poll: "50 millis",
          lease: "1 second",
          maintenance: { reap: "1 second", retention: { succeeded: "1 millis" } }
        } as const
        const fiber = yield* Effect.fork(Effect.provide(Worker.run(options), handler))
        const answers = yield* Effect.forEach(ids, (id) => Queue.result(job, id))
        const store = yield* JobStore
        const walked = yield* store.clean({ succeeded: Duration.zero }, "", 100)
        yield* store.reap("", 100)
        yield* Fiber.interrupt(fiber)
        return { answers, cleaned: walked.cleaned }
      }).pipe(Effect.provide(works))
      expect(results).toEqual({ answers: ["1", "2", "3", "4"], cleaned: 4 })
      expect(yield* query("SELECT COUNT(*) AS left_over FROM leasehold_jobs")).toEqual([{ left_over: 0 }])
    })
  )

  /** The verbs of a role, with whatever they need: each is refused where a right is missing. */
  const work: {
    readonly [role: string]: (
      job: ReturnType<typeof jobOn>
    ) => Effect.Effect<void, unknown, Queue.Queue | JobStore | SqlClient.SqlClient>
  } = {
    producer: (job: ReturnType<typeof jobOn>) =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { id } = yield* Queue.enqueue(job, { text: "x" })
        yield* sql.withTransaction(Queue.enqueue(job, { text: "x" }, { idempotency: { key: job.queue } }))
        yield* Queue.get(id)
      }),
    operator: (job: ReturnType<typeof jobOn>) =>
      Effect.gen(function* () {
        const { id } = yield* Queue.enqueue(job, { text: "x" })
        yield* Queue.cancel(id)
        yield* Queue.retry(id)
        yield* Queue.pause(job.queue)
        yield* Queue.resume(job.queue)
        yield* Queue.paused
        yield* Queue.why(id)
      }),
    worker: (job: ReturnType<typeof jobOn>) =>
      Effect.gen(function* () {
        const store = yield* JobStore
        const { jobs } = yield* store.claim({
          queue: job.queue,
          types: [{ type: job.type, version: 1 }],
          worker: "w",
          lease: Duration.minutes(1),
          limit: 10
        })
        const lease = jobs[0]?.lease ?? (yield* Effect.die("a job was there"))
        yield* store.renew([lease], Duration.minutes(1))
        yield* store.recordRefusals([{ lease, verb: "complete" }])
        yield* store.settle([[lease, { _tag: "Complete", output: null }]])
        yield* store.reap("", 100)
        yield* store.clean({ succeeded: Duration.zero }, "", 100)
      })
  }

  it.scoped("with one right less can not do its work: none of them is granted for nothing", () =>
    Effect.gen(function* () {
      const { query, url } = yield* Database
      const admin = yield* as(url, { migrate: "auto" })
      const roles = { producer, operator, worker }
      for (const role of ["producer", "operator", "worker"] as const) {
        const rights = roles[role].flatMap((grant) => {
          const [list, table] = grant.split(" ON ")
          return (list ?? "").split(", ").map((right) => `${right} ON ${table}`)
        })
        for (const missing of [undefined, ...rights]) {
          const name = `${role.slice(0, 1)}${missing === undefined ? "" : rights.indexOf(missing)}`
          const job = jobOn(`less.${name}`)
          yield* query("DELETE FROM leasehold_jobs; DELETE FROM leasehold_refusals")
          yield* Effect.provide(Queue.enqueue(job, { text: "x" }), admin)
          const own = yield* user(
            name,
            rights.filter((right) => right !== missing)
          )
          const outcome = yield* as(own, { migrate: "verify" }).pipe(
            Effect.flatMap((install) => Effect.provide(work[role]?.(job) ?? Effect.void, install)),
            Effect.scoped,
            Effect.either
          )
          expect({ role, missing, told: toldOf(outcome) }).toEqual({ role, missing, told: wantedOf(missing) })
        }
      }
    })
  )

  it.scoped("that migrates with one right less is told which, and leaves nothing half-way to whoever has it", () =>
    Effect.gen(function* () {
      const rights = ["CREATE", "SELECT", "INSERT", "UPDATE"]
      for (const missing of [undefined, ...rights]) {
        const at = yield* emptyDatabase()
        const asUser = (name: string, granted: ReadonlyArray<string>) =>
          Effect.flatMap(userOf(at, name, granted), (own) =>
            Migrations.run().pipe(Effect.provide(MysqlClient.layer({ url: Redacted.make(own), maxConnections: 1 })))
          )
        const granted = rights.filter((right) => right !== missing).join(", ")
        const outcome = yield* Effect.either(asUser("less", [`${granted} ON *`]))
        expect({ missing, told: toldOf(outcome) }).toEqual({
          missing,
          told: missing === undefined ? "all done" : `${missing} on leasehold_migrations`
        })
        expect(yield* asUser("full", migrator)).toHaveLength(missing === undefined ? 0 : 3)
      }
    })
  )

  it.scoped("that repairs a migration needs two rights more, and is told which is missing", () =>
    Effect.gen(function* () {
      const at = yield* emptyDatabase()
      const client = (own: string) => MysqlClient.layer({ url: Redacted.make(own), maxConnections: 1 })
      yield* Effect.provide(Migrations.run(), client(at.url))
      const rights = ["CREATE TEMPORARY TABLES ON *", "DELETE ON migrations"]
      for (const missing of [...rights, undefined]) {
        // The last step as one that has begun and whose table is not there.
        yield* at.query("DROP TABLE IF EXISTS leasehold_refusals")
        yield* at.query("UPDATE leasehold_migrations SET done_at = NULL WHERE step = 3")
        const own = yield* userOf(at, `repair${rights.indexOf(missing ?? "") + 1}`, [
          ...migrator,
          ...rights.filter((right) => right !== missing)
        ])
        const outcome = yield* Effect.either(Effect.provide(Migrations.repair(), client(own)))
        if (missing === undefined) expect(outcome).toMatchObject({ _tag: "Right", right: [{}] })
        else {
          const wanted = missing.startsWith("DELETE") ? wantedOf(missing) : "CREATE TEMPORARY TABLES on the database"
          expect({ missing, told: toldOf(outcome) }).toEqual({ missing, told: wanted })
        }
      }
    })
  )
})
