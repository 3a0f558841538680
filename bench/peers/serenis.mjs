/**
 * @serenis/mysql-queue. Best settings for at most W handlers at once: two workers of half as many jobs each, so that one claims
 * while the other writes; a job is a callback of its own. The default row is one worker that takes W jobs.
 */
import { MysqlQueue } from "@serenis/mysql-queue"
import { createPool } from "mysql2/promise"
import { payload, payloads } from "./payload.mjs"

const workersOf = (concurrency, settings) => {
  if (settings === "default") return [{ pollingBatchSize: concurrency }]
  const sizes = concurrency === 1 ? [1] : [Math.ceil(concurrency / 2), Math.floor(concurrency / 2)]
  return sizes.map((size) => ({ pollingBatchSize: size, callbackBatchSize: 1, pollingIntervalMs: 10 }))
}

export const open = async ({ concurrency, payload: bytes, settings, url }, handle) => {
  const queue = MysqlQueue({ dbUri: url, loggingLevel: "silent" })
  await queue.globalInitialize()
  await queue.upsertQueue("bench")
  const job = (one) => ({ name: "work", payload: one })
  let workers = []
  return {
    enqueue: (n) => queue.enqueue("bench", job(payload(n, bytes))),
    bulk: (from, count) => queue.enqueue("bench", payloads(from, count, bytes).map(job)),
    start: async () => {
      workers = await Promise.all(
        workersOf(concurrency, settings).map((options) =>
          queue.work("bench", ([one]) => handle(one.payload.n), options)
        )
      )
      for (const worker of workers) worker.start()
    },
    stop: () => Promise.all(workers.map((worker) => worker.stop())),
    count: async () => {
      const pool = createPool(url)
      const [[row]] = await pool.query(
        `SELECT COALESCE(SUM(status <> 'completed'), 0) AS waiting,
          COALESCE(SUM(status = 'completed'), 0) AS completed FROM ${queue.jobsTable()}`
      )
      await pool.end()
      return [Number(row.waiting), Number(row.completed)]
    }
  }
}
