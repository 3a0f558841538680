/**
 * The PersistedQueue of @effect/experimental on the store of @effect/sql (the line for Effect 3).
 *
 * As many takers as handlers; a claim takes as many jobs as takers wait. Best settings: a pool with a connection for each of
 * them, and a shorter poll, which only matters on an empty queue. Jobs are offered one at a time, since it has nothing for many.
 */
import * as PersistedQueue from "@effect/experimental/PersistedQueue"
import { SqlClient } from "@effect/sql"
import * as SqlPersistedQueue from "@effect/sql/SqlPersistedQueue"
import { MysqlClient } from "@effect/sql-mysql2"
import { Effect, Fiber, Layer, ManagedRuntime, Redacted, Schema } from "effect"
import { payload } from "./payload.mjs"

const chosen = ({ concurrency, settings }) =>
  settings === "default"
    ? { store: {}, pool: {} }
    : { store: { pollInterval: "100 millis" }, pool: { maxConnections: Math.max(16, concurrency + 2) } }

const layer = (setup) => {
  const { pool, store } = chosen(setup)
  return PersistedQueue.layer.pipe(
    Layer.provide(SqlPersistedQueue.layerStore(store)),
    Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(setup.url), ...pool }))
  )
}

const schema = Schema.Struct({ n: Schema.Number, filler: Schema.String })

export const open = async (setup, handle) => {
  const runtime = ManagedRuntime.make(layer(setup))
  const queue = await runtime.runPromise(PersistedQueue.make({ name: "bench", schema }))
  const one = queue.take(({ n }) => Effect.sync(() => handle(n)))
  let takers
  return {
    enqueue: (n) => runtime.runPromise(queue.offer(payload(n, setup.payload))),
    start: async () => {
      takers = await runtime.runPromise(
        Effect.forEach(Array.from({ length: setup.concurrency }), () => Effect.forkDaemon(Effect.forever(one)))
      )
    },
    stop: () => runtime.runPromise(Fiber.interruptAll(takers)),
    count: () =>
      runtime.runPromise(
        Effect.flatMap(
          SqlClient.SqlClient,
          (sql) =>
            sql`SELECT COALESCE(SUM(completed = 0), 0) AS waiting, COALESCE(SUM(completed = 1 AND attempts = 1), 0) AS completed
              FROM effect_queue`
        ).pipe(Effect.map(([row]) => [Number(row.waiting), Number(row.completed)]))
      )
  }
}
