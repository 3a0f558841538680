/**
 * Creates, upgrades and checks the library's tables, for programs that do so apart from their workers: a deployment step, or
 * a database user of its own who may create tables.
 *
 * @module
 */
import { MysqlClient } from "@effect/sql-mysql2/MysqlClient"
import { Duration, Effect } from "effect"
import * as Connections from "./mysql/Connections.js"
import type { Repair } from "./mysql/MigrationRepair.js"
import * as MigrationRepair from "./mysql/MigrationRepair.js"
import type { Planned } from "./mysql/Migrations.js"
import * as Steps from "./mysql/Migrations.js"
import * as ServerCheck from "./mysql/ServerCheck.js"
import * as Tables from "./mysql/Tables.js"
import type { InvalidName, InvalidOption, MigrationError, StoreError, UnsupportedServer } from "./QueueError.js"

export type { Repair } from "./mysql/MigrationRepair.js"
export type { Planned } from "./mysql/Migrations.js"

/** Which tables. */
export interface Options {
  /** Starts the names of all tables. Default `"leasehold_"`. */
  readonly tablePrefix?: string
}

/** What a migration or a check of it can fail with. */
export type Failure = InvalidName | InvalidOption | UnsupportedServer | MigrationError | StoreError

const prepare = (options: Options) =>
  Effect.gen(function* () {
    const tables = yield* Tables.make(options.tablePrefix ?? Tables.defaultPrefix)
    const { config } = yield* MysqlClient
    const connections = yield* Connections.make(config, {
      size: 2,
      statementTimeout: Duration.seconds(5),
      settings: Connections.pinned
    })
    yield* ServerCheck.identify(connections)
    return { tables, connections, steps: yield* Steps.steps }
  })

/**
 * Brings the tables up to this release; answers the names of the steps that were done, which are durable on return. Any
 * number of processes may run it at once: one works, the others wait. It never deletes data.
 *
 * - `MigrationDirty`: a step began and did not end; the message says how to repair that.
 * - `MigrationEdited`: a step that was applied has another text than this release ships.
 * - `SchemaNewerThanLibrary`: a newer release has migrated this database.
 */
export const run = (options: Options = {}): Effect.Effect<ReadonlyArray<string>, Failure, MysqlClient> =>
  Effect.scoped(
    Effect.flatMap(prepare(options), ({ connections, steps, tables }) => Steps.run(connections, tables, steps))
  )

/** Fails unless the tables are those of this release: with `SchemaOutdated` where steps are missing. Changes nothing. */
export const verify = (options: Options = {}): Effect.Effect<void, Failure, MysqlClient> =>
  Effect.scoped(
    Effect.flatMap(prepare(options), ({ connections, steps, tables }) => Steps.verify(connections, tables, steps))
  )

/** What {@link run} would do, in order, with the statement of each step. Changes nothing. Fails as {@link verify} does. */
export const plan = (options: Options = {}): Effect.Effect<ReadonlyArray<Planned>, Failure, MysqlClient> =>
  Effect.scoped(
    Effect.flatMap(prepare(options), ({ connections, steps, tables }) => Steps.plan(connections, tables, steps))
  )

/**
 * Finishes a migration that stopped in the middle of a step, which `MigrationDirty` reports: finds out whether the work of the
 * step is there, and then records it as done, or withdraws the step so that {@link run} does it again. Answers what it did,
 * durable on return; nothing where there is nothing to repair. It never touches tables or data.
 *
 * Fails with `MigrationDirty` where the table is neither what it was before that step nor after it. Needs CREATE TEMPORARY
 * TABLES, and DELETE on the table of migrations, beside the rights of {@link run}.
 */
export const repair = (options: Options = {}): Effect.Effect<ReadonlyArray<Repair>, Failure, MysqlClient> =>
  Effect.scoped(
    Effect.flatMap(prepare(options), ({ connections, steps, tables }) =>
      MigrationRepair.repair(connections, tables, steps)
    )
  )
