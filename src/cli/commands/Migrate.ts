/**
 * The tables: create, upgrade, check, and repair them.
 */
import * as Options from "@effect/cli/Options"
import { Effect } from "effect"
import * as MigrationRepair from "../../mysql/MigrationRepair.js"
import * as Migrations from "../../mysql/Migrations.js"
import * as Connection from "../Connection.js"
import { usage } from "../Failure.js"
import * as Output from "../Output.js"
import * as Verb from "../Verb.js"
import { json } from "./Read.js"

export const migrate = Verb.make(
  "migrate",
  {
    summary: "Creates and upgrades the tables; --verify, --dry-run and --repair do less",
    about: [
      "Any number of processes may migrate at once: one works, the others wait. Steps only add, and never delete data. The "
        + "user needs CREATE, SELECT, INSERT and UPDATE.",
      "--repair finishes a migration whose process died in the middle of a step. It replays the steps on temporary tables, "
        + "compares definitions, and then records the step as done, or withdraws it so that it runs again; it then migrates. "
        + "Where a table is neither what it was before the step nor after it, it touches nothing and says so. It needs CREATE "
        + "TEMPORARY TABLES, and DELETE on the table of migrations, as well."
    ],
    examples: [
      "leasehold migrate",
      "leasehold migrate --verify   # in CI, or before a deployment",
      "leasehold migrate --dry-run"
    ]
  },
  {
    ...Connection.options,
    verify: Options.boolean("verify").pipe(
      Options.withDescription("Only look; exit code 4 unless the tables are those of this release")
    ),
    dryRun: Options.boolean("dry-run").pipe(Options.withDescription("Print the statements that would run")),
    repair: Options.boolean("repair").pipe(Options.withDescription("Finish a step that was begun and not done")),
    json
  },
  (given) =>
    Effect.gen(function* () {
      if ([given.verify, given.dryRun, given.repair].filter(Boolean).length > 1) {
        return yield* usage("Give one of --verify, --dry-run and --repair.")
      }
      const { connections, tables } = yield* Connection.connect(given)
      const steps = yield* Migrations.steps
      const say = (value: unknown, text: ReadonlyArray<string>) =>
        Output.either(
          given.json,
          () => value,
          () => text
        )
      if (given.verify) {
        yield* Migrations.verify(connections, tables, steps)
        return yield* say({ missing: [] }, ["The tables are those of this release."])
      }
      if (given.dryRun) {
        const planned = yield* Migrations.plan(connections, tables, steps)
        return yield* say(
          { planned },
          planned.length === 0
            ? ["Nothing to do: the tables are those of this release."]
            : planned.flatMap(({ name, statement }) => [`-- ${name}`, `${statement};`])
        )
      }
      const repaired = given.repair ? yield* MigrationRepair.repair(connections, tables, steps) : []
      yield* Output.progress("Migrating; another process that does so is waited for.")
      const done = yield* Migrations.run(connections, tables, steps)
      yield* say(given.repair ? { repaired, done } : { done }, [
        ...repaired.map(({ did, step }) =>
          did === "recorded"
            ? `${step}: its table was there, recorded as done`
            : `${step}: its table was not there, run again`
        ),
        ...(given.repair && repaired.length === 0 ? ["Nothing to repair."] : []),
        ...(done.length === 0
          ? ["Nothing to do: the tables are those of this release."]
          : done.map((name) => `${name}: done`))
      ])
    }).pipe(Effect.scoped)
)
