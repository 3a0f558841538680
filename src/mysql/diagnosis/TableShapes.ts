/**
 * The tables as they are, against what the shipped steps make on this very server.
 */
import { Effect } from "effect"
import type { Step } from "../Migrations.js"
import type { MysqlFault } from "../MysqlFault.js"
import * as Schema from "../Schema.js"
import type { OwnSession } from "../Session.js"
import type { Tables } from "../Tables.js"
import { type Finding, ok, problem, warning } from "./Finding.js"

const check = "tables"

export const examine = (
  session: OwnSession,
  tables: Tables,
  shipped: ReadonlyArray<Step>
): Effect.Effect<ReadonlyArray<Finding>, MysqlFault> =>
  Effect.gen(function* () {
    const expected = yield* Schema.replay(session, tables, shipped)
    const present = yield* Schema.present(session, tables)
    const findings = Schema.names.flatMap((name) =>
      compare(`${tables.prefix}${name}`, expected.get(name) ?? "", present.get(name) ?? "")
    )
    return findings.length === 0
      ? [ok(check, `the columns and indexes are those of this release (${shipped.length} steps)`)]
      : findings
  }).pipe(
    Effect.catchIf(
      (fault) => fault.kind === "denied",
      () =>
        Effect.succeed([
          warning(
            check,
            "columns and indexes could not be compared with the migrations",
            "Grant CREATE TEMPORARY TABLES to this user, or run doctor as the one who migrates."
          )
        ])
    )
  )

/** Lines of a definition name what they are: a column, a key, a constraint. */
const compare = (table: string, expected: string, present: string): ReadonlyArray<Finding> => [
  ...Schema.missingLines(expected, present).map((line) =>
    problem(check, `${table} lacks: ${line}`, "Somebody changed the table; restore this line with ALTER TABLE.")
  ),
  ...Schema.missingLines(present, expected).map((line) =>
    warning(
      check,
      `${table} has, beside what the migrations make: ${line}`,
      "Each further index slows enqueue and claim; drop it unless you need it."
    )
  )
]
