/**
 * A queue whose every connection goes through a proxy, with one job and a worker for it.
 */
import { randomUUID } from "node:crypto"
import { MysqlClient } from "@effect/sql-mysql2"
import { Effect, Layer, Redacted, Ref, Schema } from "effect"
import { Job, MysqlQueue, RetryPolicy, Worker } from "../../src/index.js"
import { Database } from "./Mysql.js"
import * as Proxy from "./Proxy.js"

/** The statements that a proxy looks for. */
export const statements = {
  claimLock: /FORCE INDEX \(jobs_claim\)[\s\S]*FOR UPDATE SKIP LOCKED/,
  claimTake: /JSON_ARRAY_APPEND[\s\S]*COMMIT/,
  /** A claim by id, of what this process has just added. */
  claimLone: /AS added\b/,
  renewal: /SET jobs\.due_at = UTC_TIMESTAMP\(6\) \+ INTERVAL/,
  settlement: /SET jobs\.attempts/,
  insert: /INSERT INTO leasehold_jobs/,
  /** The first of each connection of the library. */
  settings: /^SET SESSION transaction_isolation/
} as const

const newJob = () =>
  Job.make("network.work", {
    payload: { n: Schema.Number },
    success: Schema.Number,
    queue: `network.${randomUUID().slice(0, 8)}`,
    retry: RetryPolicy.fixed({ delay: "10 millis", jitter: 0, maxAttempts: 5 })
  })

/** A queue whose every connection goes through a proxy of its own. */
export const scene = (options: MysqlQueue.Options = {}) =>
  Effect.gen(function* () {
    const direct = yield* Database
    const proxy = yield* Proxy.make(direct.url)
    const context = yield* Layer.build(
      MysqlQueue.layer({ statementTimeout: "2 seconds", ...options }).pipe(
        Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(proxy.url) }))
      )
    )
    const job = newJob()
    const runs = yield* Ref.make(0)
    const work = (handler: (n: number) => Effect.Effect<number>, changes: Omit<Worker.Options, "jobs"> = {}) =>
      Layer.build(
        Layer.provide(
          // No test waits for the end of a lease unless it says so; on a busy machine a second is no time.
          Worker.layer({ jobs: [job], lease: "10 seconds", poll: "50 millis", ...changes }),
          job.toLayer(({ n }) =>
            Effect.zipRight(
              Ref.update(runs, (count) => count + 1),
              handler(n)
            )
          )
        )
      ).pipe(Effect.provide(context))
    const rows = (columns: string) =>
      direct.query(`SELECT ${columns} FROM leasehold_jobs WHERE queue = ? ORDER BY id`, [job.queue])
    return { ...direct, proxy, job, context, work, runs, rows }
  })

/** Whether so many of the jobs have succeeded. */
export const succeeded = (count: number) => (rows: ReadonlyArray<Record<string, unknown>>) =>
  rows.filter(({ state }) => state === 2).length === count
