/**
 * The pattern of GoRangeTask, rebuilt in Node: each worker takes one task at a time, by six statements for each task.
 *
 * Begin, select one that waits past locked ones, lease it under the next epoch, commit; then look whether the lease still
 * holds, and complete it where owner and epoch match. A rebuilt pattern, not the program itself: it shows what the shape costs, and
 * has no defaults.
 */
import { setTimeout as sleep } from "node:timers/promises"
import { createPool } from "mysql2/promise"
import { payload, payloads } from "./payload.mjs"

const poll = 10

export const open = async ({ concurrency, payload: bytes, url }, handle) => {
  const pool = createPool({ uri: url, connectionLimit: Math.max(16, concurrency) })
  await pool.query(
    `CREATE TABLE IF NOT EXISTS tasks (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, status TINYINT NOT NULL DEFAULT 0,
      owner VARCHAR(64) NULL, epoch INT UNSIGNED NOT NULL DEFAULT 0, leased_until DATETIME(6) NULL, payload TEXT NOT NULL,
      created_at DATETIME(6) NOT NULL, finished_at DATETIME(6) NULL, KEY tasks_take (status, id))`
  )
  let stopped = false
  const take = async (connection, owner) => {
    await connection.query("START TRANSACTION")
    const [[task]] = await connection.execute(
      "SELECT id, epoch, payload FROM tasks WHERE status = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
    )
    if (task !== undefined) {
      await connection.execute(
        "UPDATE tasks SET status = 1, owner = ?, epoch = ?, leased_until = NOW(6) + INTERVAL 30 SECOND WHERE id = ?",
        [owner, task.epoch + 1, task.id]
      )
    }
    await connection.query("COMMIT")
    return task
  }
  const finish = async (connection, owner, { epoch, id }) => {
    const fence = [id, owner, epoch + 1]
    const [[held]] = await connection.execute(
      "SELECT 1 AS held FROM tasks WHERE id = ? AND owner = ? AND epoch = ? AND status = 1 AND leased_until > NOW(6)",
      fence
    )
    if (held === undefined) throw new Error(`The lease on task ${id} has ended`)
    const [{ affectedRows }] = await connection.execute(
      "UPDATE tasks SET status = 2, finished_at = NOW(6) WHERE id = ? AND owner = ? AND epoch = ? AND status = 1",
      fence
    )
    if (affectedRows !== 1) throw new Error(`Task ${id} belongs to somebody else`)
  }
  const work = async (owner) => {
    const connection = await pool.getConnection()
    while (!stopped) {
      const task = await take(connection, owner)
      if (task === undefined) {
        await sleep(poll)
        continue
      }
      handle(JSON.parse(task.payload).n)
      await finish(connection, owner, task)
    }
    connection.release()
  }
  let workers = []
  return {
    enqueue: (n) =>
      pool.execute("INSERT INTO tasks (payload, created_at) VALUES (?, NOW(6))", [JSON.stringify(payload(n, bytes))]),
    bulk: async (from, count) => {
      for (let start = from; start < from + count; start += 1_000) {
        const rows = payloads(start, Math.min(1_000, from + count - start), bytes).map((one) => [
          JSON.stringify(one),
          new Date()
        ])
        await pool.query("INSERT INTO tasks (payload, created_at) VALUES ?", [rows])
      }
    },
    start: () => {
      workers = Array.from({ length: concurrency }, (_, index) => work(`worker-${index}`))
    },
    stop: () => {
      stopped = true
      return Promise.all(workers)
    },
    count: async () => {
      const [[row]] = await pool.query(
        "SELECT COALESCE(SUM(status <> 2), 0) AS waiting, COALESCE(SUM(status = 2 AND epoch = 1), 0) AS completed FROM tasks"
      )
      return [Number(row.waiting), Number(row.completed)]
    }
  }
}
