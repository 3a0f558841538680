/**
 * BullMQ on Redis. It has nothing to set but the concurrency, so its default row would be the same. The server keeps an append-only file that it flushes before each answer, as durable as a commit of the others.
 */
import { Queue, Worker } from "bullmq"
import { payload, payloads } from "./payload.mjs"

export const open = async ({ concurrency, payload: bytes, url }, handle) => {
  const { hostname: host, port } = new URL(url)
  const connection = { host, port: Number(port), maxRetriesPerRequest: null }
  const queue = new Queue("bench", { connection })
  let worker
  return {
    enqueue: (n) => queue.add("work", payload(n, bytes)),
    bulk: async (from, count) => {
      for (let start = from; start < from + count; start += 1_000) {
        const part = payloads(start, Math.min(1_000, from + count - start), bytes)
        await queue.addBulk(part.map((data) => ({ name: "work", data })))
      }
    },
    start: () => {
      worker = new Worker("bench", async ({ data }) => handle(data.n), { connection, concurrency })
      worker.on("error", (error) => process.stderr.write(`${error}\n`))
    },
    stop: () => worker.close(),
    count: async () => {
      const { completed, ...others } = await queue.getJobCounts()
      return [Object.values(others).reduce((sum, one) => sum + one, 0), completed]
    }
  }
}
