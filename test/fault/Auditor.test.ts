import { SqlClient } from "@effect/sql"
import { MysqlClient } from "@effect/sql-mysql2"
import { expect, layer } from "@effect/vitest"
import { Duration, Effect, Fiber, Layer, Option, Redacted } from "effect"
import { JobStore, MysqlQueue } from "../../src/index.js"
import type { ClaimRequest, NewJob } from "../../src/JobStore.js"
import type { Lease } from "../../src/Lease.js"
import { database, emptyDatabase } from "../support/Mysql.js"
import * as Proxy from "../support/Proxy.js"
import { until } from "../support/Until.js"
import { type Audit, audit } from "../torture/Auditor.js"
import * as Records from "../torture/Records.js"
import { Exact, Plain } from "../torture/Work.js"

/** The statement that settles, and the fence in it. */
const settlement = /SET jobs\.attempts/
const fence = /jobs\.state = 1 AND jobs\.token = \S+ AND jobs\.lease_owner = [^\s;]+/

const lease = Duration.minutes(1)

/** A database with records, and stores on it whose statements a test may spoil on their way. */
const stage = Effect.gen(function* () {
  const { query, url } = yield* emptyDatabase()
  const open = Effect.gen(function* () {
    const proxy = yield* Proxy.make(url)
    const context = yield* Layer.build(
      MysqlQueue.layer({ statementTimeout: "2 seconds" }).pipe(
        Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(proxy.url) }))
      )
    )
    const store = yield* Effect.provide(JobStore.JobStore, context)
    return { proxy, store, context }
  })
  const first = yield* open
  const second = yield* open
  yield* Effect.forEach([...Records.tables, ...Records.triggers], (text) => query(text), { discard: true })
  const newJob = (job: typeof Plain | typeof Exact): NewJob => ({
    queue: job.queue,
    type: job.type,
    priority: 5,
    payload: '{"ref":1}',
    payloadVersion: 1,
    maxAttempts: Option.some(5),
    due: Option.none(),
    idempotency: Option.none(),
    traceContext: Option.none()
  })
  const request = (job: typeof Plain | typeof Exact, worker: string): ClaimRequest => ({
    queue: job.queue,
    types: [{ type: job.type, version: 1 }],
    worker,
    lease,
    limit: 1
  })
  /** The handler that a claim has started says so. */
  const started = ({ jobId, token, worker }: Lease) =>
    query("INSERT INTO audit_history (job_id, token, worker, event, at) VALUES (?, ?, ?, 'start', UTC_TIMESTAMP(6))", [
      jobId,
      token,
      worker
    ])
  const claim = (from: typeof first, job: typeof Plain | typeof Exact, worker: string) =>
    Effect.gen(function* () {
      const { jobs } = yield* from.store
        .claim(request(job, worker))
        .pipe(Effect.repeat({ until: (claimed) => claimed.jobs.length > 0 }))
      const [claimed] = jobs
      if (claimed === undefined) throw new Error("a job was claimed")
      yield* started(claimed.lease)
      return claimed.lease
    })
  /** Lets the leases of all running jobs end; the auditor sees it as the end that the library would have waited for. */
  const expire = query("UPDATE leasehold_jobs SET due_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE state = 1")
  const complete = (from: typeof first, held: Lease) =>
    from.store.settle([
      [held, { _tag: "Complete", output: JSON.stringify({ token: held.token, worker: held.worker }) }]
    ])
  return { query, first, second, newJob, claim, expire, complete, audit: audit((text) => query(text)) }
})

const found = ({ findings }: Audit) => findings.map(({ finding, kind }) => `${kind}: ${finding}`)

layer(database, { excludeTestServices: true, timeout: "2 minutes" })("the auditor of the torture", (it) => {
  it.scoped("finds nothing where a job was taken over and its former holder refused", () =>
    Effect.gen(function* () {
      const { audit, claim, complete, expire, first, newJob, second } = yield* stage
      yield* first.store.enqueue([newJob(Plain)])
      const stale = yield* claim(first, Plain, "first")
      yield* expire
      const valid = yield* claim(second, Plain, "second")
      expect(yield* complete(first, stale)).toEqual([{ _tag: "Lost", reason: "superseded" }])
      expect(yield* complete(second, valid)).toEqual([{ _tag: "Recorded", state: "succeeded" }])
      const audited = yield* audit
      expect(found(audited)).toEqual([])
      expect(audited).toMatchObject({ jobs: 1, claims: 2, ended: { succeeded: 1, dead: 0, canceled: 0 } })
    })
  )

  it.scoped("fails a store without the fence: a stale holder ends the attempt of another", () =>
    Effect.gen(function* () {
      const { audit, claim, complete, expire, first, newJob, second } = yield* stage
      yield* first.store.enqueue([newJob(Plain)])
      const stale = yield* claim(first, Plain, "first")
      yield* expire
      yield* claim(second, Plain, "second")
      first.proxy.rules.push({
        matches: settlement,
        action: { rewrite: (text) => text.replace(fence, "jobs.state = 1") }
      })
      yield* complete(first, stale)
      expect(first.proxy.hits[0]).toBe(1)
      expect(found(yield* audit)).toContain(
        "double_owned: an attempt was ended by what another holder's handler answered"
      )
    })
  )

  it.scoped("fails a store without any fence: an ended job ends once more", () =>
    Effect.gen(function* () {
      const { audit, claim, complete, expire, first, newJob, second } = yield* stage
      yield* first.store.enqueue([newJob(Plain)])
      const stale = yield* claim(first, Plain, "first")
      yield* expire
      yield* complete(second, yield* claim(second, Plain, "second"))
      first.proxy.rules.push({
        matches: settlement,
        action: { rewrite: (text) => text.replace(fence, "TRUE").replace("AND state = 1 FOR UPDATE", "FOR UPDATE") }
      })
      yield* complete(first, stale)
      expect(first.proxy.hits[0]).toBe(1)
      const all = found(yield* audit)
      expect(all).toContain("double_terminal: an ended job was changed, other than by an operator's retry")
      expect(all).toContain("double_terminal: a job ended more often than it was begun")
    })
  )

  it.scoped("fails a claim without the lock: two workers hold one job", () =>
    Effect.gen(function* () {
      const { audit, claim, first, newJob, query, second } = yield* stage
      yield* first.store.enqueue([newJob(Plain)])
      const bothHaveRead = yield* Effect.makeLatch()
      for (const { proxy } of [first, second]) {
        proxy.rules.push({
          matches: /FOR UPDATE SKIP LOCKED/,
          action: { rewrite: (text) => text.replaceAll(" FOR UPDATE SKIP LOCKED", "") }
        })
        // Both have read the job before either takes it.
        proxy.rules.push({ matches: /JSON_ARRAY_APPEND/, action: { held: bothHaveRead } })
      }
      const taking = yield* Effect.fork(
        Effect.all([claim(first, Plain, "first"), claim(second, Plain, "second")], { concurrency: 2 })
      )
      yield* until(
        Effect.sync(() => [first.proxy.hits[1], second.proxy.hits[1]]),
        ([one, other]) => one === 1 && other === 1
      )
      yield* bothHaveRead.open
      yield* Fiber.join(taking)
      expect([first.proxy.hits[0], second.proxy.hits[0]]).toEqual([1, 1])
      expect(yield* query("SELECT token FROM leasehold_jobs")).toEqual([{ token: 2 }])
      const all = found(yield* audit)
      expect(all).toContain(
        "double_owned: a job was taken, or ended from outside, before the lease of its holder had ended"
      )
      expect(all).toContain("double_owned: two handlers started under one token")
    })
  )

  it.scoped("fails a settlement outside of the transaction: the writes of completeWith stay, and happen again", () =>
    Effect.gen(function* () {
      const { audit, claim, expire, first, newJob, second } = yield* stage
      yield* first.store.enqueue([newJob(Exact)])
      const completeWith = (from: typeof first, held: Lease) =>
        from.store
          .completeWith(
            held,
            Effect.gen(function* () {
              const sql = yield* SqlClient.SqlClient
              yield* sql`INSERT INTO audit_effects (job_id, token) VALUES (${held.jobId}, ${held.token})`
              return [JSON.stringify({ token: held.token, worker: held.worker }), undefined] as const
            })
          )
          .pipe(Effect.provide(from.context))
      const held = yield* claim(first, Exact, "first")
      first.proxy.rules.push({
        matches: settlement,
        // The caller's writes are committed before the settlement, which then fails.
        action: { rewrite: (text) => `COMMIT; SIGNAL SQLSTATE '45000'; ${text}` }
      })
      expect(yield* Effect.flip(completeWith(first, held))).toMatchObject({ _tag: "StoreRejected" })
      expect(first.proxy.hits[0]).toBe(1)
      first.proxy.rules.length = 0
      yield* expire
      yield* completeWith(second, yield* claim(second, Exact, "second"))
      const all = found(yield* audit)
      expect(all).toContain("duplicate_effects: the writes of completeWith happened twice")
      expect(all).toContain("duplicate_effects: writes of completeWith were committed without the completion")
    })
  )

  it.scoped(
    "fails where an acknowledged job is gone, one never ended, one was deleted early, and a row has no job",
    () =>
      Effect.gen(function* () {
        const { audit, first, newJob, query } = yield* stage
        const [deleted] = yield* first.store.enqueue([newJob(Plain), newJob(Plain)])
        yield* query("DELETE FROM leasehold_jobs WHERE id = ?", [deleted?.id])
        yield* query("INSERT INTO audit_orders (ref) VALUES (77)")
        yield* query("INSERT INTO audit_answers (act, answer, ref, job_id) VALUES ('single', 'acknowledged', 8, 999)")
        const all = found(yield* audit).filter((text) => text.startsWith("lost"))
        expect(all).toEqual([
          "lost: a job whose enqueue was acknowledged was never there",
          "lost: a job has not ended",
          "lost: a job was deleted before its end",
          "lost: rows of a caller were committed without the job of the same transaction"
        ])
      })
  )

  it.scoped(
    "fails where a rolled back or refused enqueue left a job, a key has two, and a refused write came through",
    () =>
      Effect.gen(function* () {
        const { audit, claim, complete, first, newJob, query } = yield* stage
        yield* first.store.enqueue([newJob(Plain)])
        yield* query("INSERT INTO audit_answers (act, answer, ref) VALUES ('transactional', 'rolled back', 1)")
        const held = yield* claim(first, Plain, "first")
        yield* query(
          "INSERT INTO leasehold_refusals (job_id, token, verb, worker, refused_at) VALUES (?, ?, 'complete', 'first', UTC_TIMESTAMP(6))",
          [held.jobId, held.token]
        )
        yield* complete(first, held)
        yield* query("ALTER TABLE leasehold_jobs DROP INDEX jobs_idempotency")
        for (const ref of [5, 6]) {
          yield* query(
            "INSERT INTO leasehold_jobs (queue, type, due_at, payload, scope, idempotency_key, enqueued_at, first_due_at)"
              + ` VALUES ('q', 't', UTC_TIMESTAMP(6), '{"ref":${ref}}', 's', 'k', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))`
          )
        }
        const all = found(yield* audit)
        expect(all).toContain("other: a refused write was written after all")
        expect(all).toContain("other: one key had two jobs at once")
        expect(all).toContain(
          "other: an enqueue made a job although its caller was told that it did not, or had rolled it back"
        )
        expect(all).toContain("other: a job was committed without its caller's rows")
      })
  )

  it.scoped("fails where tokens, budgets, states and ledgers do not agree", () =>
    Effect.gen(function* () {
      const { audit, claim, first, newJob, query } = yield* stage
      yield* first.store.enqueue([newJob(Plain)])
      yield* claim(first, Plain, "first")
      // The end of an attempt without its entry in the ledger, a budget out of nowhere, and a token that goes back.
      yield* query("UPDATE leasehold_jobs SET state = 0, attempts_left = 9")
      yield* query("UPDATE leasehold_jobs SET token = 0")
      yield* query("UPDATE leasehold_jobs SET state = 2, due_at = NULL")
      const all = found(yield* audit)
      expect(all).toContain("other: a token or an attempt number went down, or rose without reason")
      expect(all).toContain("other: a change is none of those that may happen")
      expect(all).toContain("other: a budget does not add up")
      expect(all).toContain("other: the ledger and the row contradict each other")
    })
  )
})
