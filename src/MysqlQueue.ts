/**
 * The queue in MySQL: the layer that an application provides once, beside its own SQL client.
 */
import { MysqlClient } from "@effect/sql-mysql2/MysqlClient"
import { Duration, Effect, Layer } from "effect"
import { JobStore } from "./JobStore.js"
import * as Connections from "./mysql/Connections.js"
import * as Migrations from "./mysql/Migrations.js"
import * as MysqlJobStore from "./mysql/MysqlJobStore.js"
import * as ServerCheck from "./mysql/ServerCheck.js"
import * as Tables from "./mysql/Tables.js"
import * as Queue from "./Queue.js"
import { type InvalidName, InvalidOption, type MigrationError, type StoreError, type UnsupportedServer } from "./QueueError.js"
import { finite } from "./RetryPolicy.js"
import * as Wakeup from "./Wakeup.js"

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
   * settle, `client` ones enqueue outside of transactions, read, and run `completeWith`. 2 to 100 each; default 4 and 8.
   */
  readonly connections?: { readonly worker?: number; readonly client?: number }
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
  Queue.layer.pipe(Layer.provideMerge(Layer.merge(store(options), Wakeup.layer)))

const store = (options: Options): Layer.Layer<JobStore, StartError, MysqlClient> =>
  Layer.scoped(
    JobStore,
    Effect.gen(function*() {
      const settings = yield* checkOptions(options)
      const tables = yield* Tables.make(options.tablePrefix ?? Tables.defaultPrefix)
      const { config } = yield* MysqlClient
      const { statementTimeout } = settings
      const worker = yield* Connections.make(config, { size: settings.worker, statementTimeout })
      const client = yield* Connections.make(config, { size: settings.client, statementTimeout })
      const server = yield* ServerCheck.identify(client)
      const shipped = yield* Migrations.steps
      if (settings.migrate === "auto") yield* Migrations.run(client, tables, shipped)
      if (settings.migrate === "verify") yield* Migrations.verify(client, tables, shipped)
      yield* ServerCheck.trySkipLocked(client, tables, server.version)
      return MysqlJobStore.make({ tables, worker, client, statementTimeout, packet: server.packet, fronts: new Map() })
    })
  )

const checkOptions = (options: Options) =>
  Effect.gen(function*() {
    const { migrate = "auto" } = options
    const { client = 8, worker = 4 } = options.connections ?? {}
    if (!["auto", "verify", "off"].includes(migrate)) {
      yield* new InvalidOption({ option: "migrate", value: migrate, accepted: "\"auto\", \"verify\" or \"off\"" })
    }
    for (const [option, value] of [["connections.worker", worker], ["connections.client", client]] as const) {
      if (!(Number.isInteger(value) && value >= 2 && value <= 100)) {
        yield* new InvalidOption({ option, value, accepted: "a whole number from 2 to 100" })
      }
    }
    const timeout = options.statementTimeout ?? "5 seconds"
    const statementTimeout = yield* Effect.mapError(
      Effect.filterOrFail(finite(timeout), Duration.between({ minimum: Duration.millis(100), maximum: Duration.minutes(10) })),
      () => new InvalidOption({ option: "statementTimeout", value: timeout, accepted: "100 milliseconds to 10 minutes" })
    )
    return { migrate, client, worker, statementTimeout }
  })
