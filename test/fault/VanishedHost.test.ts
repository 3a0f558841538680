import { randomUUID } from "node:crypto"
import { SqlClient } from "@effect/sql"
import { describe, expect, layer } from "@effect/vitest"
import { Deferred, Duration, Effect, Fiber, Option, Redacted } from "effect"
import type { ClaimRequest, NewJob } from "../../src/JobStore.js"
import * as Connections from "../../src/mysql/Connections.js"
import * as MysqlJobStore from "../../src/mysql/MysqlJobStore.js"
import * as Tables from "../../src/mysql/Tables.js"
import { Database } from "../support/Mysql.js"
import * as Proxy from "../support/Proxy.js"
import { queue as queueOnMysql } from "../support/QueueOnMysql.js"
import { until } from "../support/Until.js"

/** The library's settings, but that the server ends a session which is silent for so many seconds. */
const givenUpAfter = (seconds: number) =>
  Connections.pinned.replace(/\bwait_timeout = \d+/, `wait_timeout = ${seconds}`)

/** A store behind a proxy of its own, as on another host. */
const host = (settings: string) =>
  Effect.gen(function* () {
    const { url } = yield* Database
    const proxy = yield* Proxy.make(url)
    const statementTimeout = Duration.seconds(2)
    const open = (own: string) =>
      Connections.make({ url: Redacted.make(proxy.url) }, { size: 2, statementTimeout, settings: own })
    const store = MysqlJobStore.make({
      tables: yield* Tables.make(Tables.defaultPrefix),
      worker: yield* open(settings),
      client: yield* open(settings),
      transactions: yield* open(Connections.forCallers),
      statementTimeout,
      packet: 1024 * 1024,
      fronts: new Map()
    })
    return { proxy, store }
  })

const newJob = (queue: string): NewJob => ({
  queue,
  type: "vanished",
  priority: 5,
  payload: "{}",
  payloadVersion: 1,
  maxAttempts: Option.some(5),
  due: Option.none(),
  idempotency: Option.none(),
  traceContext: Option.none()
})

const request = (queue: string, worker: string): ClaimRequest => ({
  queue,
  types: [{ type: "vanished", version: 1 }],
  worker,
  lease: Duration.minutes(1),
  limit: 10
})

/** The server gives up a silent completion as soon as its lease has ended, not five minutes later. */
const soon: Proxy.Rule = {
  matches: /SET SESSION wait_timeout = \(SELECT/,
  action: { rewrite: (text) => text.replace("+ 300 FROM", "+ 1 FROM") }
}

/** A job that one host has claimed for a second, and another host. */
const completing = Effect.gen(function* () {
  const queue = `vanished.${randomUUID().slice(0, 8)}`
  const lost = yield* host(Connections.pinned)
  const other = yield* host(Connections.pinned)
  yield* other.store.enqueue([newJob(queue)])
  const { jobs } = yield* lost.store.claim({ ...request(queue, "lost"), lease: Duration.seconds(1) })
  const lease = jobs[0]?.lease
  if (lease === undefined) return yield* Effect.dieMessage("the job was not claimed")
  return { queue, lost, other, lease }
})

// Side by side, since each has a queue and hosts of its own, and waits for most of its time.
describe("a host that vanishes", { concurrent: true }, () => {
  layer(queueOnMysql(), { excludeTestServices: true, timeout: "1 minute" })((it) => {
    it.scoped(
      "between the two packets of a claim leaves the rows to others, not to the end of its TCP connection",
      () =>
        Effect.gen(function* () {
          const queue = `vanished.${randomUUID().slice(0, 8)}`
          // Three seconds later than the claim itself, so that the other one comes in between.
          const lost = yield* host(givenUpAfter(5))
          const other = yield* host(Connections.pinned)
          yield* other.store.enqueue([newJob(queue), newJob(queue)])
          // The server locks the rows; its answer and whatever the client does then reach nobody.
          lost.proxy.rules.push({ matches: /FOR UPDATE SKIP LOCKED/, action: "hang", times: 1 })
          expect((yield* Effect.either(lost.store.claim(request(queue, "lost"))))._tag).toBe("Left")
          expect(lost.proxy.hits).toEqual([1])
          expect((yield* other.store.claim(request(queue, "other"))).jobs).toEqual([])
          const { jobs } = yield* until(
            other.store.claim(request(queue, "other")),
            (claimed) => claimed.jobs.length > 0
          )
          expect(jobs).toHaveLength(2)
        })
    )

    it.scoped("in the middle of completeWith leaves the job to others, some time after the end of its lease", () =>
      Effect.gen(function* () {
        const { lease, lost, other, queue } = yield* completing
        lost.proxy.rules.push(soon)
        const inside = yield* Deferred.make<void>()
        const work = Effect.zipRight(Deferred.succeed(inside, void 0), Effect.never)
        const writing = yield* Effect.forkScoped(lost.store.completeWith(lease, work))
        yield* Deferred.await(inside)
        yield* lost.proxy.blackHole(true)
        const taken = yield* until(other.store.claim(request(queue, "other")), (claimed) => claimed.jobs.length > 0)
        expect(taken.jobs[0]?.lease).toMatchObject({ worker: "other", token: 2 })
        yield* Fiber.interrupt(writing)
      })
    )

    it.scoped("is no live one whose completion is silent for longer than its lease: it counts", () =>
      Effect.gen(function* () {
        const { lease, lost, other, queue } = yield* completing
        const silent = Effect.as(Effect.sleep("4 seconds"), ["1", "done"] as const)
        expect(yield* lost.store.completeWith(lease, silent)).toBe("done")
        expect((yield* other.store.claim(request(queue, "other"))).jobs).toEqual([])
      })
    )

    it.scoped(
      "is one whose completion was silent for too long: it is undone and runs again, and its writes are there once",
      () =>
        Effect.gen(function* () {
          const { query } = yield* Database
          const { lease, lost, other, queue } = yield* completing
          lost.proxy.rules.push({ ...soon, times: 1 })
          yield* query("CREATE TABLE silent (session BIGINT)")
          let runs = 0
          const silent = Effect.gen(function* () {
            const sql = yield* SqlClient.SqlClient
            runs++
            yield* sql`INSERT INTO silent VALUES (CONNECTION_ID())`
            yield* Effect.sleep("2500 millis")
            return ["1", "done"] as const
          })
          expect(yield* lost.store.completeWith(lease, silent)).toBe("done")
          expect(runs).toBe(2)
          expect(yield* query("SELECT COUNT(*) AS written FROM silent")).toEqual([{ written: 1 }])
          expect((yield* other.store.claim(request(queue, "other"))).jobs).toEqual([])
        })
    )

    it.scoped("is no caller of withTransaction, however silent the completion was that had his session before", () =>
      Effect.gen(function* () {
        const { lease, lost } = yield* completing
        const silence = Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          const [row] = yield* sql<{ readonly own: number; readonly server: number; readonly id: number }>`
            SELECT @@SESSION.wait_timeout AS own, @@GLOBAL.wait_timeout AS server, CONNECTION_ID() AS id`
          return ["null", row] as const
        })
        const completion = yield* lost.store.completeWith(lease, silence)
        const [, caller] = yield* lost.store.transaction(silence)
        expect(completion?.own).toBeLessThanOrEqual(301)
        expect(caller?.id).toBe(completion?.id)
        expect(caller?.own).toBe(caller?.server)
      })
    )

    it.scoped("is given up by the server after half a minute, whatever the server's own bound is", () =>
      Effect.gen(function* () {
        const { query } = yield* Database
        const { store } = yield* host(Connections.pinned)
        yield* store.counts
        const sessions = yield* query(
          "SELECT DISTINCT variables.variable_value AS seconds FROM performance_schema.threads AS threads"
            + " JOIN performance_schema.variables_by_thread AS variables USING (thread_id)"
            + " WHERE variables.variable_name = 'wait_timeout' AND threads.processlist_db = DATABASE()"
            + " AND threads.processlist_id <> CONNECTION_ID()"
        )
        expect(sessions).toContainEqual({ seconds: "30" })
      })
    )

    it.scoped(
      "F4: a session that the server gave up while it rested is not used again, and the first call succeeds",
      () =>
        Effect.gen(function* () {
          const queue = `vanished.${randomUUID().slice(0, 8)}`
          const { proxy, store } = yield* host(givenUpAfter(1))
          yield* store.enqueue([newJob(queue)])
          expect(proxy.open()).toBeGreaterThan(0)
          yield* until(Effect.sync(proxy.open), (open) => open === 0)
          yield* store.enqueue([newJob(queue)])
          expect((yield* store.claim(request(queue, "worker"))).jobs).toHaveLength(2)
        })
    )
  })
})
