/**
 * pg-boss on PostgreSQL. Best settings for at most W handlers at once: two workers that fetch half as many jobs each, and fetch
 * again at once after a full batch. By default each of W workers fetches one job every two seconds.
 */
import pg from "pg"
import { PgBoss } from "pg-boss"
import { payload, payloads } from "./payload.mjs"

const workOptions = (concurrency, settings) =>
  settings === "default"
    ? { localConcurrency: concurrency }
    : {
        batchSize: Math.max(1, Math.floor(concurrency / 2)),
        localConcurrency: Math.min(2, concurrency),
        pollingIntervalSeconds: 0.5,
        burstWhenBatchFull: true
      }

export const open = async ({ concurrency, payload: bytes, settings, url }, handle) => {
  const boss = new PgBoss({ connectionString: url, max: 16, supervise: false, schedule: false })
  boss.on("error", (error) => process.stderr.write(`${error}\n`))
  await boss.start()
  await boss.createQueue("work")
  return {
    enqueue: (n) => boss.send("work", payload(n, bytes)),
    bulk: (from, count) =>
      boss.insert(
        "work",
        payloads(from, count, bytes).map((data) => ({ data }))
      ),
    start: () =>
      boss.work("work", workOptions(concurrency, settings), async (jobs) => {
        for (const { data } of jobs) handle(data.n)
      }),
    stop: () => boss.stop({ graceful: true }),
    count: async () => {
      const client = new pg.Client({ connectionString: url })
      await client.connect()
      const { rows } = await client.query(
        `SELECT COUNT(*) FILTER (WHERE state <> 'completed') AS waiting,
          COUNT(*) FILTER (WHERE state = 'completed' AND retry_count = 0) AS completed FROM pgboss.job WHERE name = 'work'`
      )
      await client.end()
      return [Number(rows[0].waiting), Number(rows[0].completed)]
    }
  }
}
