/**
 * From the options `--url`, `--prefix` and `--timeout` to the database: checked, connected, and refused with one line that
 * never holds the password.
 */
import * as Options from "@effect/cli/Options"
import * as MysqlClient from "@effect/sql-mysql2/MysqlClient"
import { Config, type Duration, Effect, Layer, Option, Redacted } from "effect"
import { JobStore } from "../JobStore.js"
import * as Connections from "../mysql/Connections.js"
import * as Migrations from "../mysql/Migrations.js"
import * as MysqlJobStore from "../mysql/MysqlJobStore.js"
import * as ServerCheck from "../mysql/ServerCheck.js"
import * as Tables from "../mysql/Tables.js"
import * as Queue from "../Queue.js"
import type { InvalidName, MigrationError, StoreError, UnsupportedServer } from "../QueueError.js"
import * as Setting from "../Setting.js"
import * as Wakeup from "../Wakeup.js"
import { ExitCode } from "./ExitCode.js"
import { CommandFailed, usage } from "./Failure.js"

export const urlVariable = "LEASEHOLD_MYSQL_URL"
const urlForm = "mysql://user:password@host:3306/database"

export const url = Options.redacted("url").pipe(
  Options.withPseudoName("mysql-url"),
  Options.withDescription(`The database, as ${urlForm}. Default: $${urlVariable}, which other users can not see in ps`),
  Options.optional
)

export const prefix = Options.text("prefix").pipe(
  Options.withPseudoName("text"),
  Options.withDescription(`Starts the names of the tables. Default: ${Tables.defaultPrefix}`),
  Options.withDefault(Tables.defaultPrefix)
)

export const timeout = Options.text("timeout").pipe(
  Options.withPseudoName("duration"),
  Options.withDescription('How long a statement may take, such as "30 seconds" (the default)'),
  Options.withDefault("30 seconds")
)

/** The options of each command that talks to the database. */
export const options = { url, prefix, timeout }

export interface Given {
  readonly url: Option.Option<Redacted.Redacted>
  readonly prefix: string
  readonly timeout: string
}

/** Where the database is, in words that may be printed. */
export interface Place {
  readonly url: Redacted.Redacted
  readonly address: string
  readonly database: string
  readonly user: string
}

/** A session pool of two, which is all that a command needs, and what was learned about the server. */
export interface Connected {
  readonly place: Place
  readonly tables: Tables.Tables
  readonly server: ServerCheck.Server
  readonly connections: Connections.Connections
  readonly statementTimeout: Duration.Duration
}

/** The URL of `--url`, else of the environment, if there is one. */
export const find = (given: Option.Option<Redacted.Redacted>): Effect.Effect<Option.Option<Place>, CommandFailed> =>
  Effect.gen(function* () {
    const fromEnvironment = yield* Config.redacted(urlVariable).pipe(Config.option)
    const known = Option.filter(
      Option.orElse(given, () => fromEnvironment),
      (candidate) => Redacted.value(candidate) !== ""
    )
    return Option.isNone(known) ? Option.none() : Option.some(yield* read(known.value))
  }).pipe(Effect.catchTag("ConfigError", () => Effect.fail(missing)))

const missing = usage(`No database is given: use --url ${urlForm}, or set ${urlVariable}.`)

export const locate = (given: Option.Option<Redacted.Redacted>): Effect.Effect<Place, CommandFailed> =>
  Effect.flatMap(find(given), Option.match({ onNone: () => Effect.fail(missing), onSome: Effect.succeed }))

/** The URL is never quoted: it holds a password. */
const read = (secret: Redacted.Redacted): Effect.Effect<Place, CommandFailed> =>
  Effect.gen(function* () {
    const refuse = (what: string) =>
      usage(`The database URL ${what}; accepted: ${urlForm}, with special characters percent-encoded.`)
    const parsed = yield* Effect.try({ try: () => new URL(Redacted.value(secret)), catch: () => refuse("is no URL") })
    if (parsed.protocol !== "mysql:") return yield* refuse("does not begin with mysql://")
    if (parsed.hostname === "") return yield* refuse("names no host")
    const database = yield* decoded(parsed.pathname.slice(1), refuse)
    if (database === "") return yield* refuse("names no database")
    const user = yield* decoded(parsed.username, refuse)
    yield* decoded(parsed.password, refuse)
    return { url: secret, address: `${parsed.hostname}:${parsed.port || "3306"}`, database, user }
  })

const decoded = (part: string, refuse: (what: string) => CommandFailed) =>
  Effect.try({ try: () => decodeURIComponent(part), catch: () => refuse("has a % that encodes nothing") })

export type ConnectError = CommandFailed | InvalidName | UnsupportedServer | StoreError

/** Connects and asks what the server is; looks at no table. */
export const connect = (given: Given) =>
  Effect.gen(function* () {
    const place = yield* locate(given.url)
    const tables = yield* Tables.make(given.prefix)
    const statementTimeout = yield* Setting.duration(
      "timeout",
      // Checked by `Setting`, which refuses what is no duration.
      given.timeout as Duration.DurationInput,
      "30 seconds",
      "100 millis",
      "10 minutes"
    )
    const connections = yield* Connections.make(
      { url: place.url },
      { size: 2, statementTimeout, settings: Connections.pinned }
    )
    const server = yield* Effect.mapError(ServerCheck.identify(connections), (error) => toldOf(place, error))
    return { place, tables, server, connections, statementTimeout } satisfies Connected
  })

/** A refused connection, in words that say what to look at. */
export const toldOf = <E>(place: Place, error: E | StoreError): E | StoreError | CommandFailed => {
  if (!isStoreError(error) || error._tag === "OutcomeUnknown") return error
  const failed = (message: string) => new CommandFailed({ code: ExitCode.database, message })
  const number = /\d+$/.exec(error.code)?.[0]
  if (number === "1045") {
    return failed(`The server at ${place.address} refuses the login of user "${place.user}": check user and password.`)
  }
  if (number === "1044") return failed(`User "${place.user}" may not use database "${place.database}" (${error.code}).`)
  if (number === "1049") return failed(`The server at ${place.address} has no database "${place.database}": create it.`)
  if (error._tag === "StoreUnavailable" && (error.reason === "connection" || error.reason === "timeout")) {
    return failed(`No MySQL server answers at ${place.address} (${error.code}).`)
  }
  return error
}

const isStoreError = (error: unknown): error is StoreError =>
  typeof error === "object"
  && error !== null
  && "_tag" in error
  && (error._tag === "StoreUnavailable" || error._tag === "StoreRejected" || error._tag === "OutcomeUnknown")

/** The SQL client of a program that has the queue in this database. */
export const client = (place: Place, maxConnections = 10) =>
  Layer.mapError(
    MysqlClient.layer({ url: place.url, maxConnections }),
    () =>
      new CommandFailed({ code: ExitCode.database, message: `No MySQL server answers at ${place.address} any more.` })
  )

/**
 * The queue on tables that are checked, and never changed. Unlike `MysqlQueue.layer` it needs no right to write: whoever may
 * only read can still count and look.
 */
export const queue = (given: Given) => Queue.layer.pipe(Layer.provideMerge(Layer.merge(store(given), Wakeup.layer)))

const store = (given: Given) =>
  Layer.scoped(
    JobStore,
    Effect.gen(function* () {
      const { connections, place, server, statementTimeout, tables } = yield* connect(given)
      yield* Migrations.verify(connections, tables, yield* Migrations.steps)
      const transactions = yield* Connections.make(
        { url: place.url },
        { size: 2, statementTimeout, settings: Connections.forCallers }
      )
      return MysqlJobStore.make({
        tables,
        worker: connections,
        client: connections,
        transactions,
        statementTimeout,
        packet: server.packet,
        fronts: new Map()
      })
    })
  )

export type QueueError = ConnectError | MigrationError
