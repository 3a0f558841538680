import { randomUUID } from "node:crypto"
import { expect, layer } from "@effect/vitest"
import { Duration, Effect, Option, Redacted } from "effect"
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
    const statementTimeout = Duration.seconds(1)
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

layer(queueOnMysql(), { excludeTestServices: true, timeout: "1 minute" })("a host that vanishes", (it) => {
  it.scoped("between the two packets of a claim leaves the rows to others, not to the end of its TCP connection", () =>
    Effect.gen(function* () {
      const queue = `vanished.${randomUUID().slice(0, 8)}`
      const lost = yield* host(givenUpAfter(2))
      const other = yield* host(Connections.pinned)
      yield* other.store.enqueue([newJob(queue), newJob(queue)])
      // The server locks the rows; its answer and whatever the client does then reach nobody.
      lost.proxy.rules.push({ matches: /FOR UPDATE SKIP LOCKED/, action: "hang", times: 1 })
      expect((yield* Effect.either(lost.store.claim(request(queue, "lost"))))._tag).toBe("Left")
      expect(lost.proxy.hits).toEqual([1])
      expect((yield* other.store.claim(request(queue, "other"))).jobs).toEqual([])
      const { jobs } = yield* until(other.store.claim(request(queue, "other")), (claimed) => claimed.jobs.length > 0)
      expect(jobs).toHaveLength(2)
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
