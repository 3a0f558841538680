/**
 * Sidequest on its MySQL backend. Best settings for at most W handlers at once: jobs run in the process itself, and its loop looks
 * every millisecond. By default they run in threads of another process, and it looks every 100 milliseconds.
 */
import { rmSync } from "node:fs"
import { connect, createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { createPool } from "mysql2/promise"
import { Job, Sidequest } from "sidequest"
import { payload } from "./payload.mjs"

/** Where jobs that run in another process say that they ran. */
const tally = "LEASEHOLD_BENCH_TALLY"

let say = (n) => {
  const socket = connect(process.env[tally])
  socket.unref()
  // Waited for: a thread that has no job stands still, and sends nothing.
  say = (next) => new Promise((written) => socket.write(`${next}\n`, written))
  return say(n)
}

/** Sidequest imports this module wherever it runs jobs, and makes one of these for each. */
export class Count extends Job {
  run({ n }) {
    return say(n)
  }
}

/** Hears of jobs that ran elsewhere. */
const listen = (handle) => {
  const path = join(tmpdir(), `leasehold-bench-${process.pid}.sock`)
  process.env[tally] = path
  const server = createServer((socket) => createInterface({ input: socket }).on("line", (text) => handle(Number(text))))
  server.listen(path)
  process.on("exit", () => rmSync(path, { force: true }))
}

const configurationOf = ({ concurrency, settings, url }) => ({
  backend: {
    driver: "@sidequest/mysql-backend",
    config: url
  },
  queues: [{ name: "default", concurrency }],
  maxConcurrentJobs: concurrency,
  logger: { level: "error", json: true },
  gracefulShutdown: false,
  dashboard: { enabled: false },
  ...(settings === "default" ? {} : { fork: false, runner: "inline", jobPollingInterval: 1 })
})

export const open = async (setup, handle) => {
  const configuration = configurationOf(setup)
  if (setup.settings === "default") listen(handle)
  else say = handle
  await Sidequest.configure(configuration)
  return {
    enqueue: (n) => Sidequest.build(Count).enqueue(payload(n, setup.payload)),
    start: () => Sidequest.start(configuration),
    stop: () => Sidequest.stop(),
    count: async () => {
      const pool = createPool(setup.url)
      const [[row]] = await pool.query(
        `SELECT COALESCE(SUM(state <> 'completed'), 0) AS waiting,
          COALESCE(SUM(state = 'completed' AND attempt = 1), 0) AS completed FROM sidequest_jobs`
      )
      await pool.end()
      return [Number(row.waiting), Number(row.completed)]
    }
  }
}
