/**
 * Follows the binary log for as long as it runs, across lost connections.
 */
import { randomUUID } from "node:crypto"
import type { MysqlClientConfig } from "@effect/sql-mysql2/MysqlClient"
import { Clock, Duration, Effect, type Scope } from "effect"
import * as Timer from "../../Timer.js"
import * as Connections from "../Connections.js"
import type { Tables } from "../Tables.js"
import * as Position from "./Position.js"
import * as Stream from "./Stream.js"
import { fromFault, silent, Unavailable } from "./Unavailable.js"

export interface Options {
  readonly config: MysqlClientConfig
  readonly tables: Tables
  readonly serverId: number
  readonly heartbeat: Duration.Duration
  /** Queues with jobs that have just become due. */
  readonly onDue: (queues: ReadonlySet<string>) => Effect.Effect<void>
  /** The log is read from now on; what was committed before may have been missed. */
  readonly onGap: Effect.Effect<void>
}

/** For looks at the server, and until it sends. */
const patience = Duration.seconds(10)

const firstDelay = 500
const longestDelay = 30_000
/** After a stream of that many milliseconds the delays begin anew. */
const steady = 10_000
/** Rights and settings are looked at again so often. */
const lastingDelay = Duration.minutes(5)

/**
 * Reads the log until it is interrupted, and never fails: what keeps it from that is logged as one warning, and once more when
 * the reason is another one. A connection that is lost is opened again after half a second, doubled up to 30, and spread.
 */
export const run = (options: Options): Effect.Effect<never> =>
  Effect.gen(function* () {
    const uuid = yield* Effect.sync(randomUUID)
    const log = makeLog()
    let failures = 0
    while (true) {
      const began = yield* Clock.currentTimeMillis
      const unavailable = yield* Effect.flip(Effect.scoped(follow(options, uuid, log)))
      const lived = (yield* Clock.currentTimeMillis) - began
      yield* log.unavailable(unavailable)
      if (unavailable.reason === "client_missing") return yield* Effect.never
      if (lived >= steady) failures = 0
      const delay = Duration.millis(Math.min(longestDelay, firstDelay * 2 ** Math.min(failures++, 10)))
      yield* Timer.sleepSome(unavailable.lasting ? lastingDelay : delay, 0.5)
    }
  })

const follow = (options: Options, uuid: string, log: Log): Effect.Effect<never, Unavailable, Scope.Scope> =>
  Effect.gen(function* () {
    const { config, heartbeat, serverId, tables } = options
    const Client = yield* Stream.load
    const position = yield* findPosition(config, tables)
    const heard = new Set<string>()
    const some = yield* Effect.makeLatch()
    const skipped = yield* Effect.makeLatch()
    const stream = yield* Stream.open(Client, {
      driver: Connections.driverOptions(config),
      tables,
      position,
      serverId,
      uuid,
      heartbeat,
      onDue: (queues) => {
        for (const queue of queues) heard.add(queue)
        some.unsafeOpen()
      },
      onSkipped: () => skipped.unsafeOpen()
    })
    yield* Effect.timeoutFail(stream.live, { duration: patience, onTimeout: () => silent })
    yield* log.works
    yield* options.onGap
    const deliver = Effect.gen(function* () {
      yield* some.await
      yield* some.close
      const queues = new Set(heard)
      heard.clear()
      yield* options.onDue(queues)
    })
    const parts: ReadonlyArray<Effect.Effect<never, Unavailable>> = [
      stream.ended,
      failWhenSilent(stream, heartbeat),
      Effect.forever(deliver),
      Effect.zipRight(skipped.await, Effect.zipRight(log.skipped, Effect.never))
    ]
    return yield* Effect.zipRight(Effect.all(parts, { concurrency: "unbounded", discard: true }), Effect.never)
  })

const findPosition = (config: MysqlClientConfig, tables: Tables): Effect.Effect<Position.Position, Unavailable> =>
  Effect.scoped(
    Effect.flatMap(
      Connections.make(config, { size: 1, statementTimeout: patience, settings: Connections.pinned }),
      (connections) => connections.use((session) => Position.find(session, tables))
    )
  ).pipe(Effect.mapError((error) => (error instanceof Unavailable ? error : fromFault(error))))

/**
 * A connection can be dead without a word. The server sends heartbeats in a log at rest, so three of them without a byte are
 * its end. Counted one by one: a handler that blocks the event loop for long must not look like silence.
 */
const failWhenSilent = (stream: Stream.Stream, heartbeat: Duration.Duration): Effect.Effect<never, Unavailable> =>
  Effect.gen(function* () {
    let received = stream.received()
    let missed = 0
    while (missed < 3) {
      yield* Timer.sleep(heartbeat)
      missed = stream.received() === received ? missed + 1 : 0
      received = stream.received()
    }
    return yield* silent
  })

interface Log {
  readonly unavailable: (unavailable: Unavailable) => Effect.Effect<void>
  readonly works: Effect.Effect<void>
  readonly skipped: Effect.Effect<void>
}

const makeLog = (): Log => {
  let said: string | undefined
  let toldSkipped = false
  return {
    unavailable: (unavailable) =>
      Effect.suspend(() => {
        const { code, message, reason } = unavailable
        if (said === reason) return Effect.void
        said = reason
        return Effect.logWarning(
          `Wake-ups by the binary log are off: ${message} Until then jobs of other processes are found by polls.`
        ).pipe(Effect.annotateLogs({ reason, ...(code === undefined ? {} : { error_code: code }) }))
      }),
    works: Effect.suspend(() => {
      said = undefined
      return Effect.logInfo("Wake-ups by the binary log are on")
    }),
    skipped: Effect.suspend(() => {
      if (toldSkipped) return Effect.void
      toldSkipped = true
      return Effect.logWarning(
        "Wake-ups by the binary log miss some jobs, which are found by polls: the server writes events that the client can not"
          + " read. Leave binlog_row_value_options empty and binlog_transaction_compression off, in all sessions."
      )
    })
  }
}
