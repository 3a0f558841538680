/**
 * Creates and checks the library's tables, one DDL statement per step.
 *
 * DDL commits implicitly on MySQL, so no transaction can make a migration atomic. Instead each step is recorded as started
 * before and as done after it, on one connection that holds a named lock; a step that was started and not done stops
 * everything until somebody has looked (`MigrationDirty`). Steps only add: none of them deletes data.
 */
import { createHash } from "node:crypto"
import { readdirSync, readFileSync } from "node:fs"
import { Duration, Effect } from "effect"
import {
  MigrationDirty,
  MigrationEdited,
  type MigrationError,
  SchemaNewerThanLibrary,
  SchemaOutdated,
  type StoreError,
  StoreUnavailable
} from "../QueueError.js"
import type { Connections } from "./Connections.js"
import type { MysqlFault } from "./MysqlFault.js"
import type { OwnSession } from "./Session.js"
import { tries } from "./statements/diagnose.js"
import type { Tables } from "./Tables.js"
import * as Transaction from "./Transaction.js"

export interface Step {
  readonly number: number
  readonly name: string
  readonly text: string
  /** SHA-256 of the text as it is shipped, so the same step has the same one under every prefix. */
  readonly checksum: string
}

/** The steps that the package ships, in order. */
export const steps: Effect.Effect<ReadonlyArray<Step>> = Effect.sync(() => {
  const folder = new URL("../../migrations/", import.meta.url)
  return readdirSync(folder)
    .filter((file) => file.endsWith(".sql"))
    .sort()
    .map((file) => {
      const text = readFileSync(new URL(file, folder), "utf8")
      return {
        number: Number(file.slice(0, 4)),
        name: file.slice(0, -".sql".length),
        text,
        checksum: createHash("sha256").update(statementOf(text)).digest("hex")
      }
    })
})

/** The statement without comment lines and with single blanks: a reformatted step is not an edited one. */
const statementOf = (text: string): string =>
  text
    .split("\n")
    .filter((line) => !line.startsWith("--"))
    .join(" ")
    .replace(/\s+/g, " ")
    .trim()

/** The statement of a step, with the names of these tables. */
export const statementFor = (step: Step, tables: Pick<Tables, "prefix">): string =>
  statementOf(step.text).replaceAll("{prefix}", tables.prefix)

export interface Recorded {
  readonly number: number
  readonly name: string
  readonly checksum: string
  readonly done: boolean
}

/** DDL on a large table, and the wait for another process that does it, may take as long as this. */
const patience = Duration.minutes(10)

/**
 * Brings the tables up to this release, and answers the names of the steps that it did. Any number of processes may do it at
 * once: one works, the others wait for it and then see the tables. All of it is durable on return.
 */
export const run = (
  connections: Connections,
  tables: Tables,
  shipped: ReadonlyArray<Step>
): Effect.Effect<ReadonlyArray<string>, MigrationError | StoreError> =>
  locked(connections, tables, "migrate", (session) =>
    Effect.gen(function* () {
      yield* session.script([createRecords(tables)])
      // Whoever may not say that a step is done must not begin one.
      yield* session.script([tries(tables)["UPDATE on migrations"]])
      const recorded = yield* readRecords(session, tables)
      yield* check(shipped, recorded)
      const missing = missingOf(shipped, recorded)
      yield* Effect.forEach(missing, (step) => apply(session, tables, step), { discard: true })
      return missing.map(({ name }) => name)
    })
  )

/** Runs something on a session that holds the named lock, so that nobody else migrates these tables meanwhile. */
export const locked = <A, E>(
  connections: Connections,
  tables: Tables,
  verb: string,
  body: (session: OwnSession) => Effect.Effect<A, E | MysqlFault>
): Effect.Effect<A, Exclude<E, MysqlFault> | StoreError> =>
  Transaction.run(
    connections,
    verb,
    "unavailable",
    (session) =>
      Effect.acquireUseRelease(
        takeLock(session, tables),
        () => body(session),
        // The lock belongs to the session: where this fails, the session is thrown away and the lock with it.
        () => session.script([`DO RELEASE_LOCK(${lockName(tables)})`]).pipe(Effect.catchAll(() => Effect.void))
      ),
    patience
  )

/** Fails unless the tables are those of this release. Needs no right but SELECT. */
export const verify = (
  connections: Connections,
  tables: Tables,
  shipped: ReadonlyArray<Step>
): Effect.Effect<void, MigrationError | StoreError> =>
  Effect.flatMap(plan(connections, tables, shipped), (missing) =>
    missing.length === 0 ? Effect.void : Effect.fail(new SchemaOutdated({ missing: missing.map(({ name }) => name) }))
  )

/** A step that is still to be done, and the statement that it is with the names of these tables. */
export interface Planned {
  readonly name: string
  readonly statement: string
}

/** What `run` would do, in order. Changes nothing, and needs no right but SELECT. */
export const plan = (
  connections: Connections,
  tables: Tables,
  shipped: ReadonlyArray<Step>
): Effect.Effect<ReadonlyArray<Planned>, MigrationError | StoreError> =>
  Transaction.run(connections, "verify", "again", (session) =>
    Effect.gen(function* () {
      const [answer] = yield* session.script([`SELECT IS_USED_LOCK(${lockName(tables)}) IS NOT NULL AS busy`])
      const underWay = Number(answer?.rows[0]?.["busy"]) === 1
      const begun = yield* readRecords(session, tables).pipe(
        Effect.catchIf(
          (fault) => fault.kind === "missing",
          () => Effect.succeed<ReadonlyArray<Recorded>>([])
        )
      )
      // While somebody migrates, the step that he is at is none to repair: it is missing still.
      const recorded = begun.filter(({ done }) => done || !underWay)
      yield* check(shipped, recorded)
      return missingOf(shipped, recorded).map((step) => ({ name: step.name, statement: statementFor(step, tables) }))
    })
  )

const missingOf = (shipped: ReadonlyArray<Step>, recorded: ReadonlyArray<Recorded>) =>
  shipped.filter(({ number }) => !recorded.some((record) => record.number === number))

/**
 * Names of locks are server-wide, at most 64 characters, and compared without case: so the name is a hash of what tells two
 * installs apart.
 */
const lockName = (tables: Tables): string =>
  `CONCAT('leasehold_', LEFT(SHA2(CONCAT(DATABASE(), '/${tables.prefix}'), 256), 40))`

const takeLock = (session: OwnSession, tables: Tables): Effect.Effect<void, MysqlFault | StoreUnavailable> =>
  Effect.flatMap(session.script([`SELECT GET_LOCK(${lockName(tables)}, 300) AS taken`]), ([answer]) =>
    Number(answer?.rows[0]?.["taken"]) === 1
      ? Effect.void
      : Effect.fail(new StoreUnavailable({ verb: "migrate", reason: "lock_wait", code: "GET_LOCK" }))
  )

const createRecords = (tables: Tables): string =>
  `CREATE TABLE IF NOT EXISTS ${tables.migrations} (step INT UNSIGNED NOT NULL, name VARCHAR(64) CHARACTER SET ascii`
  + ` COLLATE ascii_bin NOT NULL, checksum CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,`
  + ` started_at DATETIME(6) NOT NULL, done_at DATETIME(6) NULL, PRIMARY KEY (step)) ENGINE = InnoDB`

/** Which steps were begun and which are done, by number. */
export const readRecords = (session: OwnSession, tables: Tables): Effect.Effect<ReadonlyArray<Recorded>, MysqlFault> =>
  Effect.map(
    session.script([
      `SELECT step, name, checksum, done_at IS NOT NULL AS done FROM ${tables.migrations} ORDER BY step`
    ]),
    ([answer]) =>
      (answer?.rows ?? []).map((row) => ({
        number: Number(row["step"]),
        name: String(row["name"]),
        checksum: String(row["checksum"]),
        done: Number(row["done"]) === 1
      }))
  )

const check = (shipped: ReadonlyArray<Step>, recorded: ReadonlyArray<Recorded>): Effect.Effect<void, MigrationError> =>
  Effect.gen(function* () {
    const newest = Math.max(0, ...recorded.map(({ number }) => number))
    const known = Math.max(0, ...shipped.map(({ number }) => number))
    if (newest > known) yield* new SchemaNewerThanLibrary({ database: newest, library: known })
    for (const record of recorded) {
      if (!record.done) yield* new MigrationDirty({ step: record.name, repair: repairOf(record) })
      const step = shipped.find(({ number }) => number === record.number)
      if (step !== undefined && step.checksum !== record.checksum) yield* new MigrationEdited({ step: record.name })
    }
  })

// DDL is atomic for one statement since MySQL 8.0: the object is there as a whole, or not at all.
const repairOf = ({ name, number }: Recorded): string =>
  `Run leasehold migrate --repair. By hand: see whether what migrations/${name}.sql creates is there. If it is: set done_at = UTC_TIMESTAMP(6) for step ${number} in `
  + `the migrations table. If not: delete that row. Then migrate again.`

const apply = (session: OwnSession, tables: Tables, step: Step): Effect.Effect<void, MysqlFault> =>
  Effect.gen(function* () {
    yield* session.script([
      `INSERT INTO ${tables.migrations} (step, name, checksum, started_at)`
        + ` VALUES (${step.number}, '${step.name}', '${step.checksum}', UTC_TIMESTAMP(6))`
    ])
    // A lock that was lost with its connection would let two processes in: the statement runs on the very session that holds it.
    yield* session.script([statementFor(step, tables)])
    yield* session.script([`UPDATE ${tables.migrations} SET done_at = UTC_TIMESTAMP(6) WHERE step = ${step.number}`])
  })
