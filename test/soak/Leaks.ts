/**
 * One leak of each kind that is counted, so that a test sees the meter find it.
 */
import { createServer } from "node:net"
import { Effect } from "effect"
import * as Mysql from "mysql2/promise"
import type { Counted } from "./Counts.js"

const kept: Array<unknown> = []

const connect = (url: string) => Effect.promise(() => Mysql.createConnection(url))

/** The leak of each kind that is made once, on the server of `url`. */
export const leaksOn = (url: string): Effect.Effect<Readonly<Record<Counted, Effect.Effect<void>>>> =>
  Effect.map(connect(url), (connection) => {
    let prepared = 0
    process.setMaxListeners(0)
    return {
      heap: Effect.sync(() => void kept.push(Array.from({ length: 12_000 }, Math.random))),
      // One that does not keep the process alive is a leak too.
      timers: Effect.sync(() => void setTimeout(() => {}, 3_600_000).unref()),
      handles: Effect.async<void>((resume) => {
        createServer().listen(0, "127.0.0.1", () => resume(Effect.void))
      }),
      listeners: Effect.sync(() => void process.on("SIGUSR2", () => {})),
      fibers: Effect.map(Effect.forkDaemon(Effect.async<void>(() => {})), (fiber) => void kept.push(fiber)),
      sessions: Effect.map(connect(url), (leaked) => void kept.push(leaked)),
      prepared: Effect.promise(async () => void (await connection.execute(`SELECT ${prepared++}`)))
    }
  })
