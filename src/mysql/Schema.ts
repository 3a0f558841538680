/**
 * The definitions of the library's tables: as they are, and as the shipped steps make them. Both are the server's own words
 * (SHOW CREATE TABLE), so they can be compared as text on one and the same server.
 */
import { Effect } from "effect"
import { type Step, statementFor } from "./Migrations.js"
import { MysqlFault } from "./MysqlFault.js"
import type { OwnSession } from "./Session.js"
import * as Statements from "./statements/migrate.js"
import type { Tables } from "./Tables.js"

/** The tables that the steps make, without their prefix. */
export const names = ["jobs", "queues", "refusals"] as const

/** The definition of each table that is there, by its name without prefix. */
export type Definitions = ReadonlyMap<string, string>

export const present = (session: OwnSession, tables: Tables): Effect.Effect<Definitions, MysqlFault> =>
  read(session, tables.prefix, tables.prefix)

/**
 * What the steps make of an empty database. They are replayed on temporary tables of this session, under another prefix, and
 * those are dropped again. Needs CREATE TEMPORARY TABLES.
 */
export const replay = (
  session: OwnSession,
  tables: Tables,
  steps: ReadonlyArray<Step>
): Effect.Effect<Definitions, MysqlFault> =>
  Effect.gen(function* () {
    for (const step of steps) {
      yield* session.script([Statements.asTemporary(statementFor(step, { prefix: replayPrefix }))]).pipe(
        // Of temporary tables the server says only that the database is not open to this user (errno 1044).
        Effect.mapError((fault) =>
          fault.kind === "denied" && fault.right === undefined ? new MysqlFault({ ...fault, right: temporary }) : fault
        )
      )
    }
    return yield* read(session, replayPrefix, tables.prefix)
  }).pipe(
    // Where this fails, the session is broken and thrown away, and its temporary tables with it.
    Effect.ensuring(
      session
        .script([Statements.dropTemporary(names.map((name) => `${replayPrefix}${name}`))])
        .pipe(Effect.catchAll(() => Effect.void))
    )
  )

/** No install can have it: temporary tables would hide tables of the same name from this session. */
const replayPrefix = "_replay_"

const temporary = "CREATE TEMPORARY TABLES on the database"

const read = (session: OwnSession, prefix: string, as: string): Effect.Effect<Definitions, MysqlFault> =>
  Effect.gen(function* () {
    const definitions = new Map<string, string>()
    for (const name of names) {
      const answers = yield* session.script([Statements.definition(`${prefix}${name}`)]).pipe(
        Effect.catchIf(
          (fault) => fault.kind === "missing",
          () => Effect.succeed([])
        )
      )
      const text = answers[0]?.rows[0]?.["Create Table"]
      if (text !== undefined) definitions.set(name, comparable(String(text), prefix, as))
    }
    return definitions
  })

/** Without what differs between a table in use and an empty one of the same shape. */
const comparable = (text: string, prefix: string, as: string): string =>
  text
    .replace("CREATE TEMPORARY TABLE", "CREATE TABLE")
    .replaceAll(`\`${prefix}`, `\`${as}`)
    .replace(/ AUTO_INCREMENT=\d+/, "")

/** The lines of a definition that another one lacks. */
export const missingLines = (expected: string, actual: string): ReadonlyArray<string> => {
  const known = new Set(linesOf(actual))
  return linesOf(expected).filter((line) => !known.has(line))
}

const linesOf = (text: string): ReadonlyArray<string> =>
  text
    .split("\n")
    .map((line) => line.trim().replace(/,$/, ""))
    .filter((line) => line !== "")
