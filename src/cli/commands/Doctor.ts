/**
 * Looks at everything that the queue depends on, and says what to do.
 */
import * as Options from "@effect/cli/Options"
import { Effect, Option } from "effect"
import * as ClaimTrial from "../../mysql/diagnosis/ClaimTrial.js"
import * as Clocks from "../../mysql/diagnosis/Clocks.js"
import { type Finding, ok, problem, warning } from "../../mysql/diagnosis/Finding.js"
import * as Rights from "../../mysql/diagnosis/Rights.js"
import * as Room from "../../mysql/diagnosis/Room.js"
import * as Settings from "../../mysql/diagnosis/Settings.js"
import * as TableShapes from "../../mysql/diagnosis/TableShapes.js"
import * as Migrations from "../../mysql/Migrations.js"
import type { MysqlFault } from "../../mysql/MysqlFault.js"
import * as ServerCheck from "../../mysql/ServerCheck.js"
import type { OwnSession } from "../../mysql/Session.js"
import * as Transaction from "../../mysql/Transaction.js"
import { StoreRejected } from "../../QueueError.js"
import * as Connection from "../Connection.js"
import { ExitCode } from "../ExitCode.js"
import { CommandFailed, explain } from "../Failure.js"
import * as Output from "../Output.js"
import * as Values from "../Values.js"
import * as Verb from "../Verb.js"
import { json } from "./Read.js"

export const doctor = Verb.make(
  "doctor",
  {
    summary: "Looks at server, rights, settings, tables, the claim, clocks and connections; says what to do",
    about: [
      "It changes nothing. The claim is tried on your own due jobs: up to ten of each queue are locked for a few milliseconds "
        + "and let go of by a rollback. Exit code 6 where there is a problem; warnings count as such with --strict."
    ],
    examples: [
      "leasehold doctor",
      "leasehold doctor --role work --processes 8 --app-pool 10",
      "leasehold doctor --role migrate    # before a deploy, as the user who migrates",
      "leasehold doctor --strict --json   # in CI"
    ]
  },
  {
    ...Connection.options,
    role: Options.choice("role", Rights.roles).pipe(
      Options.withDescription(
        `What this user is to do: ${Rights.roles.join(", ")}; a right that it lacks for that is a problem. Default: the first three are looked at`
      ),
      Options.optional
    ),
    processes: Values.wholeNumber("processes", 1, 10_000).pipe(
      Options.withDescription("Processes that use the queue. Default: 1"),
      Options.withDefault(1)
    ),
    appPool: Values.wholeNumber("app-pool", 0, 10_000).pipe(
      Options.withDescription("Connections of the application's own pool in each of them. Default: 10"),
      Options.withDefault(10)
    ),
    strict: Options.boolean("strict").pipe(Options.withDescription("Warnings count as problems")),
    json
  },
  (given) =>
    Effect.gen(function* () {
      const connected = yield* Connection.connect(given)
      const findings = [
        ok(
          "server",
          `MySQL ${connected.server.version} at ${connected.place.address}, database ${connected.place.database}`
        ),
        ...(yield* look(connected, "settings", Settings.examine)),
        ...(yield* tablesOf(connected, Option.getOrUndefined(given.role))),
        ...(yield* look(connected, "clock", Clocks.examine)),
        ...(yield* look(connected, "connections", (session) => Room.examine(session, given)))
      ]
      yield* Output.either(
        given.json,
        () => findings,
        () => lines(findings)
      )
      const bad = findings.filter(({ level }) => level === "problem" || (given.strict && level === "warning"))
      if (bad.length > 0) {
        return yield* new CommandFailed({
          code: ExitCode.problem,
          message: `${bad.length} of ${findings.length} findings need attention.`
        })
      }
    }).pipe(Effect.scoped)
)

type Connected = Connection.Connected

/** One part of the examination. What the user may not look at is a finding; a database that fails ends the command. */
const look = (
  { connections }: Connected,
  check: string,
  examine: (session: OwnSession) => Effect.Effect<ReadonlyArray<Finding>, MysqlFault>
) => told(check, Transaction.run(connections, "doctor", "again", examine))

const told = <E>(check: string, examined: Effect.Effect<ReadonlyArray<Finding>, E | StoreRejected>) =>
  Effect.catchIf(
    examined,
    (error) => error instanceof StoreRejected,
    (error) => Effect.succeed([warning(check, "could not be looked at", (error as StoreRejected).message)])
  )

/** What needs the tables; where they are not those of this release, that is the finding. */
const tablesOf = (connected: Connected, role: Rights.Role | undefined) =>
  Effect.gen(function* () {
    const { connections, server, tables } = connected
    const steps = yield* Migrations.steps
    const verified = yield* Effect.either(Migrations.verify(connections, tables, steps))
    if (verified._tag === "Left") {
      return [
        ...(yield* look(connected, "rights", (session) => Rights.examineBefore(session, tables, role))),
        problem("tables", explain(verified.left).message, "Run leasehold migrate, and doctor again.")
      ]
    }
    return [
      ...(yield* look(connected, "rights", (session) => Rights.examine(session, tables, role))),
      ...(yield* look(connected, "tables", (session) => TableShapes.examine(session, tables, steps))),
      ...(yield* told(
        "locks",
        ServerCheck.trySkipLocked(connections, tables, server.version).pipe(
          Effect.as([ok("locks", "the server skips rows that another session has locked")])
        )
      )),
      ...(yield* look(connected, "claim", (session) => ClaimTrial.examine(session, tables)))
    ]
  })

const marks = { ok: "ok", warning: "WARNING", problem: "PROBLEM" } as const

const lines = (findings: ReadonlyArray<Finding>): ReadonlyArray<string> =>
  findings.flatMap(({ advice, check, level, says }) => [
    `${marks[level].padEnd(7)}  ${check}: ${Output.printable(says)}`,
    ...(advice === undefined ? [] : [`         ${Output.printable(advice)}`])
  ])
