/**
 * Finishes a migration that stopped in the middle of a step: its record says that the step was begun, and not that it was done.
 *
 * One DDL statement is atomic since MySQL 8.0, so its work is there as a whole or not at all, and only the record is missing.
 * Which of the two is found out and not guessed: the shipped steps are replayed on temporary tables, which only this session
 * sees and which end with it, and the definitions are compared before and after the step. Where the tables are neither,
 * somebody else has made or changed them, and nothing is touched.
 */
import { Effect } from "effect"
import { MigrationDirty, type MigrationError, type StoreError } from "../QueueError.js"
import type { Connections } from "./Connections.js"
import { locked, type Recorded, readRecords, type Step } from "./Migrations.js"
import type { MysqlFault } from "./MysqlFault.js"
import * as Schema from "./Schema.js"
import type { OwnSession } from "./Session.js"
import * as Statements from "./statements/migrate.js"
import type { Tables } from "./Tables.js"

/** What was done about a step: its work was there and is now `recorded`, or was not and the step is `withdrawn`, to be run again. */
export interface Repair {
  readonly step: string
  readonly did: "recorded" | "withdrawn"
}

/**
 * Repairs the step that was begun and not done, if there is one; its answer is durable on return. Waits for a migration that
 * is under way, which is none to repair. Needs CREATE TEMPORARY TABLES, and UPDATE and DELETE on the table of migrations.
 */
export const repair = (
  connections: Connections,
  tables: Tables,
  shipped: ReadonlyArray<Step>
): Effect.Effect<ReadonlyArray<Repair>, MigrationError | StoreError> =>
  locked(connections, tables, "repair", (session) =>
    Effect.gen(function* () {
      const recorded = yield* readRecords(session, tables).pipe(
        Effect.catchIf(
          (fault) => fault.kind === "missing",
          () => Effect.succeed<ReadonlyArray<Recorded>>([])
        )
      )
      // Steps are done in order, and one that is not done stops all later ones: so there is one at the most.
      const begun = recorded.find(({ done }) => !done)
      if (begun === undefined) return []
      const step = shipped.find(({ number }) => number === begun.number)
      if (step === undefined || step.checksum !== begun.checksum) {
        return yield* dirty(
          begun.name,
          "This release ships another step of that number: repair it with the release that began it."
        )
      }
      return [{ step: step.name, did: yield* settle(session, tables, shipped, step) }]
    })
  )

const settle = (
  session: OwnSession,
  tables: Tables,
  shipped: ReadonlyArray<Step>,
  step: Step
): Effect.Effect<Repair["did"], MysqlFault | MigrationDirty> =>
  Effect.gen(function* () {
    const before = yield* Schema.replay(
      session,
      tables,
      shipped.filter(({ number }) => number < step.number)
    )
    const after = yield* Schema.replay(
      session,
      tables,
      shipped.filter(({ number }) => number <= step.number)
    )
    const touched = Schema.names.filter((name) => before.get(name) !== after.get(name))
    const present = yield* Schema.present(session, tables)
    const is = (expected: Schema.Definitions) => touched.every((name) => present.get(name) === expected.get(name))
    if (is(after)) {
      yield* session.script([Statements.recordDone(tables, step.number)])
      return "recorded"
    }
    if (is(before)) {
      yield* session.script([Statements.withdraw(tables, step.number)])
      return "withdrawn"
    }
    return yield* dirty(
      step.name,
      `Table ${touched.map((name) => `${tables.prefix}${name}`).join(", ")} is neither what it was before that step nor what `
        + "the step makes of it: somebody else has made or changed it. Look at it; nothing was touched."
    )
  })

const dirty = (step: string, repair: string) => new MigrationDirty({ step, repair })
