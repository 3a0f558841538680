/**
 * The stream of the binary log, read by `@vlasky/zongji`: an optional package, loaded when it is needed.
 */
import { Socket } from "node:net"
import type {
  AnyBinlogEvent,
  BinlogEventByTypeName,
  BinlogEventTypeName,
  default as Client,
  ZongJiDsn
} from "@vlasky/zongji"
import { Deferred, Duration, Effect, type Scope } from "effect"
import type * as Mysql from "mysql2"
import * as Statements from "../statements/binlog.js"
import type { Tables } from "../Tables.js"
import { columns, DueQueues } from "./DueQueues.js"
import type { Position } from "./Position.js"
import { fromClient, lasting, type Unavailable } from "./Unavailable.js"

export interface StreamOptions {
  readonly driver: Mysql.PoolOptions
  readonly tables: Tables
  readonly position: Position
  readonly serverId: number
  /** Names this reader to the server, which ends an older stream of the same name. */
  readonly uuid: string
  readonly heartbeat: Duration.Duration
  /** Called with each commit that gave queues work. Must not throw. */
  readonly onDue: (queues: ReadonlySet<string>) => void
  /** Called once where the log has events that the client can not read, such as partial updates of JSON. */
  readonly onSkipped: () => void
}

export interface Stream {
  /** Returns when the server has begun to send. */
  readonly live: Effect.Effect<void, Unavailable>
  /** Fails when the stream has ended. */
  readonly ended: Effect.Effect<never, Unavailable>
  /** Bytes that came from the server so far: heartbeats, and what the filters drop, count too. */
  readonly received: () => number
}

export const packageName = "@vlasky/zongji"

export type ClientClass = typeof Client

/** The client; fails where it is not installed. */
export const load: Effect.Effect<ClientClass, Unavailable> = Effect.map(
  Effect.tryPromise({
    try: () => import("@vlasky/zongji"),
    catch: () =>
      lasting(
        "client_missing",
        `The package ${packageName} can not be loaded`,
        `Install it: npm install ${packageName}@0.9.0`
      )
  }),
  (module) => module.default
)

/** Opens the stream at a position. Closing the scope ends it at the server too, and leaves no socket behind. */
export const open = (Client: ClientClass, options: StreamOptions): Effect.Effect<Stream, never, Scope.Scope> =>
  Effect.gen(function* () {
    const live = yield* Deferred.make<void, Unavailable>()
    const ended = yield* Deferred.make<never, Unavailable>()
    const client = yield* Effect.acquireRelease(
      Effect.sync(() => new Client(dsn(options.driver))),
      close
    )
    const due = new DueQueues(options.tables)
    client.on("error", (error) => {
      if (isSkipped(error)) return options.onSkipped()
      const unavailable = fromClient(error)
      Deferred.unsafeDone(live, Effect.fail(unavailable))
      Deferred.unsafeDone(ended, Effect.fail(unavailable))
    })
    client.on("ready", () => {
      // Goes out before the request for events, which is added after this.
      const nanos = BigInt(Math.round(Duration.toMillis(options.heartbeat))) * 1_000_000n
      client.connection?.query(Statements.announce(nanos, options.uuid), (error) => {
        if (error) client.emit("error", error)
      })
    })
    client.on("binlog", (event) => {
      Deferred.unsafeDone(live, Effect.void)
      const queues = take(client, due, event)
      if (queues.size > 0) options.onDue(queues)
    })
    client.start({
      serverId: options.serverId,
      filename: options.position.file,
      position: options.position.offset,
      // The first event is a rotation: it says that the server has accepted the request.
      includeEvents: ["rotate", "tablemap", "writerows", "updaterows", "xid"],
      includeSchema: { [options.position.database]: [options.tables.jobs, options.tables.queues] }
    })
    const socket = socketOf(client.connection)
    return {
      live: Deferred.await(live),
      ended: Deferred.await(ended),
      received: () => socket?.bytesRead ?? 0
    }
  })

const dsn = (driver: Mysql.PoolOptions): ZongJiDsn => ({
  ...driver,
  // Times as the database has them, and not as dates of this machine's time zone (V1).
  dateStrings: true,
  multipleStatements: false,
  connectTimeout: 10_000
})

const none: ReadonlySet<string> = new Set()

const take = (client: Client, due: DueQueues, event: AnyBinlogEvent): ReadonlySet<string> => {
  if (is(event, "TableMap")) {
    prepareTable(client, event)
    return none
  }
  if (is(event, "Xid")) return due.commit(event.timestamp)
  if (is(event, "WriteRows")) {
    const table = client.tableMap[event.tableId]?.tableName ?? ""
    for (const row of event.rows) due.add(table, row)
  }
  if (is(event, "UpdateRows")) {
    const table = client.tableMap[event.tableId]?.tableName ?? ""
    for (const { after, before } of event.rows) due.add(table, after, before)
  }
  return none
}

const is = <Name extends BinlogEventTypeName>(
  event: AnyBinlogEvent,
  name: Name
): event is BinlogEventByTypeName<Name> => event.getTypeName() === name

/** Column types of the protocol. */
const varchar = 15
const json = 245
const blob = 252

/**
 * The client decodes every column of a row. Here all but a few are made to look like bytes, which it cuts out and does not
 * read: no payload becomes a string, and no ledger is parsed. It also keeps the tables that it has seen, and a table gets a new
 * number each time that the server opens it: the old numbers are forgotten.
 */
const prepareTable = ({ tableMap }: Client, event: BinlogEventByTypeName<"TableMap">): void => {
  for (const [id, { tableName }] of Object.entries(tableMap)) {
    if (tableName === event.tableName && id !== String(event.tableId)) delete tableMap[Number(id)]
  }
  const table = tableMap[event.tableId]
  for (const [index, column] of (table?.columns ?? []).entries()) {
    if (columns.has(column.name)) continue
    const schema = table?.columnSchemas[index]
    if (column.type === json) column.type = blob
    if (column.type === blob) column.charset = null
    if (column.type === varchar && schema !== undefined) schema.COLUMN_TYPE = "varbinary"
  }
}

/** The client says once of each kind of event that it can not read that it skips those; the stream goes on. */
const isSkipped = (error: Error): boolean => /^Server sent a [A-Z_]+_EVENT /.test(error.message)

const socketOf = (connection: unknown): Socket | undefined =>
  typeof connection === "object" && connection !== null && "stream" in connection && connection.stream instanceof Socket
    ? connection.stream
    : undefined

/** The client ends its session at the server by a KILL. A server that does not answer must not hold up the stop. */
const close = (client: Client): Effect.Effect<void> =>
  Effect.suspend(() => {
    const sockets = [socketOf(client.connection), socketOf(client.ctrlConnection)]
    return Effect.async<void>((resume) => {
      client.once("stopped", () => resume(Effect.void))
      client.stop()
    }).pipe(
      Effect.interruptible,
      Effect.timeoutOption("2 seconds"),
      // The driver only says goodbye; a peer that is gone never answers that.
      Effect.zipRight(
        Effect.sync(() => {
          for (const socket of sockets) socket?.destroy()
        })
      )
    )
  })
