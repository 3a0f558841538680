/**
 * graphile-worker on PostgreSQL. Best settings: a local queue, and completions in batches. By default each job is claimed and
 * completed by itself. Completed jobs are deleted.
 */
import { makeWorkerUtils, run } from "graphile-worker"
import pg from "pg"
import { payload, payloads } from "./payload.mjs"

const tuned = (concurrency) => ({
  pollInterval: 100,
  localQueue: { size: Math.max(500, 8 * concurrency) },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0
})

export const open = async ({ concurrency, payload: bytes, settings, url }, handle) => {
  const pool = new pg.Pool({ connectionString: url, max: Math.max(16, concurrency + 2) })
  const utils = await makeWorkerUtils({ pgPool: pool })
  await utils.migrate()
  let runner
  return {
    enqueue: (n) => utils.addJob("work", payload(n, bytes)),
    bulk: (from, count) =>
      utils.addJobs(payloads(from, count, bytes).map((one) => ({ identifier: "work", payload: one }))),
    start: async () => {
      runner = await run({
        pgPool: pool,
        noHandleSignals: true,
        taskList: { work: ({ n }) => handle(n) },
        preset: { worker: { concurrentJobs: concurrency, ...(settings === "default" ? {} : tuned(concurrency)) } }
      })
    },
    stop: () => runner.stop(),
    count: async () => {
      const { rows } = await pool.query("SELECT COUNT(*) AS waiting FROM graphile_worker.jobs")
      return [Number(rows[0].waiting), 0]
    }
  }
}
