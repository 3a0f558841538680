/**
 * Signals within one process that a queue has got work, so that a worker need not wait for its next poll; and a tailer of the
 * binary log, which brings the commits of all processes.
 *
 * They are hints: a poll finds every job without them.
 *
 * @module
 */
import { MysqlClient } from "@effect/sql-mysql2/MysqlClient"
import { type Duration, Effect, Layer, Random } from "effect"
import * as Tailer from "./mysql/binlog/Tailer.js"
import * as Tables from "./mysql/Tables.js"
import type { InvalidName, InvalidOption } from "./QueueError.js"
import * as Restarting from "./Restarting.js"
import * as Setting from "./Setting.js"
import { Wakeup } from "./Wakeup.js"

export * from "./Wakeup.js"

/** How {@link layerBinlog} reads the binary log. Each option has a default. */
export interface BinlogOptions {
  /** That of `MysqlQueue.layer`. Default `"leasehold_"`. */
  readonly tablePrefix?: string
  /**
   * The id that this process shows to the server, as a replica does: 1 to 4,294,967,295. Default: a random one above
   * 2,147,483,647, where replicas rarely are. Two tailers with the same id do not disturb each other.
   */
  readonly serverId?: number
  /** Wake-ups are put off at random, up to so long, so that a fleet does not ask all at once: 0 to 1 second, default 10 ms. */
  readonly spread?: Duration.DurationInput
  /** The server says so often that it is alive; after three times of silence the tailer connects anew. 1 second to 10 minutes, default 5 seconds. */
  readonly heartbeat?: Duration.DurationInput
}

const largestServerId = 2 ** 32 - 1

/**
 * Wakes the workers of this process within milliseconds when any process commits a job that is due: an enqueue, also from a
 * program without Effect, a job that was given back or retried, the end of a pause. One tailer reads the binary log of the
 * server, on two connections with the client's configuration.
 *
 * It provides the `Wakeup` that it is given, so it stands between a worker and the queue:
 * `WorkerLive.pipe(Layer.provide(Wakeup.layerBinlog()), Layer.provideMerge(MysqlQueue.layer()))`.
 *
 * It needs the package `@vlasky/zongji`, a server with `log_bin` and `binlog_format = ROW`, and a user with REPLICATION SLAVE
 * and REPLICATION CLIENT. Where one of them is missing it starts all the same, says so in one warning, and workers poll as
 * without it. So they do for as long as a connection is lost; when it is back, every queue is looked at once. A job whose time
 * comes later, and one whose lease has run out, are found by polls.
 *
 * Fails with `InvalidOption` and `InvalidName` only.
 */
export const layerBinlog = (
  options: BinlogOptions = {}
): Layer.Layer<Wakeup, InvalidOption | InvalidName, Wakeup | MysqlClient> =>
  Layer.scoped(
    Wakeup,
    Effect.gen(function* () {
      const tables = yield* Tables.make(options.tablePrefix ?? Tables.defaultPrefix)
      const random = yield* Random.nextIntBetween(2 ** 31, largestServerId + 1)
      const serverId = yield* Setting.wholeNumber("serverId", options.serverId, random, 1, largestServerId)
      const spread = yield* Setting.duration("spread", options.spread, "10 millis", "0 millis", "1 second")
      const heartbeat = yield* Setting.duration("heartbeat", options.heartbeat, "5 seconds", "1 second", "10 minutes")
      const { config } = yield* MysqlClient
      const wakeup = yield* Wakeup
      const tailer = Tailer.run({
        config,
        tables,
        serverId,
        heartbeat,
        onDue: (queues) => wakeup.notifyCommitted(queues, spread),
        onGap: wakeup.notifyCommitted("every queue", spread)
      })
      yield* Effect.forkScoped(Restarting.forever("The tailer of the binary log", tailer))
      return wakeup
    })
  )
