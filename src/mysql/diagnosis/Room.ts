/**
 * Whether the server has room for the connections of all processes, and old transactions that make claims dear.
 */
import { Effect } from "effect"
import type { MysqlFault } from "../MysqlFault.js"
import type { OwnSession } from "../Session.js"
import * as Statements from "../statements/diagnose.js"
import { type Finding, ok, problem, warning } from "./Finding.js"
import { readVariables } from "./Settings.js"

/** What `MysqlQueue.layer` opens at the most by default: 4 for workers, 8 for calls, 8 for transactions. */
const ownConnections = 20

export interface Plan {
  /** Processes that build `MysqlQueue.layer`. */
  readonly processes: number
  /** Connections of the application's own pool in each of them. */
  readonly appPool: number
}

export const examine = (session: OwnSession, plan: Plan): Effect.Effect<ReadonlyArray<Finding>, MysqlFault> =>
  Effect.gen(function* () {
    const limits = yield* readVariables(session, ["max_connections"])
    const used = yield* readVariables(session, ["Threads_connected", "Max_used_connections"], Statements.status)
    const room = judge(plan, {
      most: Number(limits.get("max_connections")),
      now: Number(used.get("threads_connected")),
      peak: Number(used.get("max_used_connections"))
    })
    return [...room, ...(yield* oldTransactions(session))]
  })

export const judge = (
  { appPool, processes }: Plan,
  { most, now, peak }: { readonly most: number; readonly now: number; readonly peak: number }
): ReadonlyArray<Finding> => {
  const each = ownConnections + appPool
  const needed = processes * each
  const says =
    `max_connections is ${most}, ${now} open now, ${peak} at the most since the server's start; ${processes} `
    + `${processes === 1 ? "process" : "processes"} of ${ownConnections} own and ${appPool} application connections may open ${needed}`
  const advice = `Raise max_connections, lower connections of MysqlQueue.layer, or run at most ${Math.floor((most * 0.8) / each)} processes.`
  if (needed > most) return [problem("connections", says, advice)]
  if (needed > most * 0.8) return [warning("connections", says, advice)]
  if (peak >= most * 0.9)
    return [warning("connections", says, "The server nearly ran out of connections: raise max_connections.")]
  return [ok("connections", says)]
}

const oldTransactions = (session: OwnSession): Effect.Effect<ReadonlyArray<Finding>, MysqlFault> =>
  Effect.map(session.script([Statements.oldTransactions]), ([answer]) => {
    const row = answer?.rows[0]
    const count = Number(row?.["transactions"] ?? 0)
    return count === 0
      ? [ok("transactions", "none has been open for a minute")]
      : [
          warning(
            "transactions",
            `${count} transactions have been open for more than a minute, the oldest for ${String(row?.["seconds"])} seconds`,
            "While an old snapshot is open the server can not purge, and claims and counts get slower: find it in information_schema.innodb_trx."
          )
        ]
  }).pipe(
    // Without the right PROCESS nobody can tell.
    Effect.catchIf(
      (fault) => fault.kind === "denied",
      () => Effect.succeed([])
    ),
    Effect.catchIf(
      (fault) => fault.code.endsWith(" 3854"),
      () =>
        Effect.succeed([
          warning(
            "transactions",
            "the server could not list them (errno 3854), since a statement with a character of four bytes, such as an emoji, runs",
            "Run doctor again when that statement has ended."
          )
        ])
    )
  )
