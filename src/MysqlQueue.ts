/**
 * The queue in MySQL: the layer that an application provides once, beside its own SQL client.
 *
 * @module
 */
import { MysqlClient } from "@effect/sql-mysql2/MysqlClient"
import { type Duration, Effect, Layer } from "effect"
import { JobStore } from "./JobStore.js"
import * as Connections from "./mysql/Connections.js"
import * as Migrations from "./mysql/Migrations.js"
import * as MysqlJobStore from "./mysql/MysqlJobStore.js"
import * as ServerCheck from "./mysql/ServerCheck.js"
import * as Tables from "./mysql/Tables.js"
import * as Queue from "./Queue.js"
import type { InvalidName, InvalidOption, MigrationError, StoreError, UnsupportedServer } from "./QueueError.js"
import * as Setting from "./Setting.js"
import * as Wakeup from "./Wakeup.js"

/** How {@link layer} treats the database. Each option has a default. */
export interface Options {
  /**
   * What to do about the tables at start. `"auto"` (default): create or upgrade them. `"verify"`: fail with `SchemaOutdated`
   * where they are not those of this release. `"off"`: trust that somebody else has looked.
   */
  readonly migrate?: "auto" | "verify" | "off"
  /** Starts the names of all tables: a lower-case letter and up to 29 of `a-z 0-9 _`. Default `"leasehold_"`. */
  readonly tablePrefix?: string
  /** How long one statement, and the wait for a connection, may take: 100 ms to 10 minutes. Default 5 seconds. */
  readonly statementTimeout?: Duration.DurationInput
  /**
   * The library's own connections, opened when they are needed, beside the application's pool: `worker` ones claim, renew and
   * settle; `client` ones enqueue outside of transactions, and read; `transaction` ones run `completeWith`, one for each
   * effect that is under way. 2 to 100 each; default 4, 8 and 8.
   */
  readonly connections?: { readonly worker?: number; readonly client?: number; readonly transaction?: number }
}

/** What keeps the layer from starting. */
export type StartError = InvalidName | InvalidOption | UnsupportedServer | MigrationError | StoreError

/**
 * Provides the queue in the database of the given client: checks the server, sees to the tables, and opens the library's own
 * connections with the client's configuration.
 *
 * Enqueue joins transactions of this client's `sql.withTransaction`. One client per queue: @effect/sql knows only one open
 * transaction at a time, whichever client opened it.
 */
export const layer = (
  options: Options = {}
): Layer.Layer<JobStore | Queue.Queue | Wakeup.Wakeup, StartError, MysqlClient> =>
  // Fresh: a layer is made once in a program, so two queues of one program would share the client of the first one's store.
  Layer.fresh(Queue.layer).pipe(Layer.provideMerge(Layer.merge(store(options), Layer.fresh(Wakeup.layer))))

const store = (options: Options): Layer.Layer<JobStore, StartError, MysqlClient> =>
  Layer.scoped(
    JobStore,
    Effect.gen(function* () {
      const settings = yield* checkOptions(options)
      const tables = yield* Tables.make(options.tablePrefix ?? Tables.defaultPrefix)
      const { config } = yield* MysqlClient
      const { statementTimeout } = settings
      const failover = Connections.makeFailover()
      const open = (size: number, session: string) =>
        Connections.make(config, { size, statementTimeout, settings: session, failover })
      const worker = yield* open(settings.worker, Connections.pinned)
      const client = yield* open(settings.client, Connections.pinned)
      const transactions = yield* open(settings.transaction, Connections.forCallers)
      const server = yield* ServerCheck.identify(client)
      const shipped = yield* Migrations.steps
      if (settings.migrate === "auto") yield* Migrations.run(client, tables, shipped)
      if (settings.migrate === "verify") yield* Migrations.verify(client, tables, shipped)
      yield* ServerCheck.trySkipLocked(client, tables, server.version)
      return MysqlJobStore.make({
        tables,
        worker,
        client,
        transactions,
        statementTimeout,
        packet: server.packet,
        fronts: new Map()
      })
    })
  )

const checkOptions = (options: Options) =>
  Effect.gen(function* () {
    const { client, transaction, worker } = options.connections ?? {}
    return {
      migrate: yield* Setting.word("migrate", options.migrate, ["auto", "verify", "off"]),
      client: yield* Setting.wholeNumber("connections.client", client, 8, 2, 100),
      transaction: yield* Setting.wholeNumber("connections.transaction", transaction, 8, 2, 100),
      worker: yield* Setting.wholeNumber("connections.worker", worker, 4, 2, 100),
      statementTimeout: yield* Setting.duration(
        "statementTimeout",
        options.statementTimeout,
        "5 seconds",
        "100 millis",
        "10 minutes"
      )
    }
  })
