/**
 * The caller's writes and the completion of his job in one transaction: effects in the database that happen exactly once.
 */
import * as SqlClient from "@effect/sql/SqlClient"
import { type Cause, Context, Effect, Exit, Option } from "effect"
import { LeaseLost } from "../JobFailure.js"
import type { SettleVerdict } from "../JobStore.js"
import type { Lease, SettleError } from "../Lease.js"
import { AlreadySettled, OutcomeUnknown, StoreUnavailable } from "../QueueError.js"
import type { Connections } from "./Connections.js"
import { idOf, isSet } from "./JobRow.js"
import { type MysqlFault, toStoreError } from "./MysqlFault.js"
import type { OwnSession } from "./Session.js"
import { isHeld, readBack } from "./Settling.js"
import * as Statements from "./statements/settle.js"
import { silenceWithin } from "./statements/silence.js"
import type { Tables } from "./Tables.js"
import * as Transaction from "./Transaction.js"

const verb = "completeWith"

/**
 * How often the effect runs at the most: a deadlock, a commit that did not happen, or a server that has become read-only undoes
 * all that it wrote.
 */
const tries = 4

type Work<A, E, R> = Effect.Effect<readonly [output: string | null, value: A], E, R>

/** How one try ended; what the caller's effect failed with stays apart from the faults of the library's own statements. */
type Ending<A, E> =
  | { readonly _tag: "Done"; readonly value: A }
  | { readonly _tag: "Undone"; readonly reason: "deadlock" | "read_only"; readonly code: string }
  | { readonly _tag: "Failed"; readonly cause: Cause.Cause<E> }
  | { readonly _tag: "Refused"; readonly error: SettleError }

const done = <A>(value: A): Ending<A, never> => ({ _tag: "Done", value })
const undone = (code: string, reason: "deadlock" | "read_only" = "deadlock"): Ending<never, never> => ({
  _tag: "Undone",
  reason,
  code
})
const failed = <E>(cause: Cause.Cause<E>): Ending<never, E> => ({ _tag: "Failed", cause })

export const make =
  (tables: Tables, connections: Connections) =>
  <A, E, R>(lease: Lease, work: Work<A, E, R>): Effect.Effect<A, E | SettleError, R> => {
    const attempt = (triesLeft: number): Effect.Effect<A, E | SettleError, R> =>
      Effect.flatMap(once(tables, connections, lease, work), (ending) => {
        switch (ending._tag) {
          case "Done":
            return Effect.succeed(ending.value)
          case "Undone":
            return triesLeft > 1
              ? attempt(triesLeft - 1)
              : Effect.fail(new StoreUnavailable({ verb, reason: ending.reason, code: ending.code }))
          case "Failed":
            return Effect.failCause(ending.cause)
          case "Refused":
            return Effect.fail(ending.error)
        }
      })
    return Effect.zipRight(Transaction.refuseTransaction(verb), attempt(tries))
  }

const once = <A, E, R>(
  tables: Tables,
  connections: Connections,
  lease: Lease,
  work: Work<A, E, R>
): Effect.Effect<Ending<A, E>, SettleError, R> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.suspend(() => {
      let committing = Option.none<A>()
      const body = (session: OwnSession): Effect.Effect<Ending<A, E>, MysqlFault, R> =>
        Effect.gen(function* () {
          const refused = yield* lockRow(tables, session, lease)
          if (refused !== undefined) return refused
          const exit = yield* Effect.exit(
            restore(
              Effect.mapInputContext(work, (context: Context.Context<R>) =>
                Context.add(context, SqlClient.TransactionConnection, [session.connection, 0])
              )
            )
          )
          // Also where the caller caught the deadlock and went on: what he wrote before it is gone (T5).
          if (Transaction.isUndone(session)) return yield* rolledBack(session, undone("ER_LOCK_DEADLOCK 1213"))
          if (Exit.isFailure(exit)) return yield* rolledBack(session, failed(exit.cause))
          const [output, value] = exit.value
          committing = Option.some(value)
          yield* session.script([
            Transaction.requireBegun,
            Statements.writeSettlements(tables, [[lease, { _tag: "Complete", output }]]),
            "COMMIT"
          ])
          return done(value)
        })
      return connections
        .use(body)
        .pipe(
          Effect.catchAll(
            (fault): Effect.Effect<Ending<A, E>, SettleError> =>
              fault.kind === "deadlock" || fault.kind === "read_only"
                ? Effect.succeed(undone(fault.code, fault.kind))
                : fault.ambiguous && Option.isSome(committing)
                  ? askAgain(tables, connections, lease, committing.value)
                  : Effect.fail(toStoreError(verb, true)(fault))
          )
        )
    })
  )

/** Begins, and locks the job's row before anything else, so that nobody can take the job over until the end. */
const lockRow = (
  tables: Tables,
  session: OwnSession,
  lease: Lease
): Effect.Effect<Ending<never, never> | undefined, MysqlFault> =>
  Effect.gen(function* () {
    const answers = yield* session.script([
      ...Transaction.begin,
      Statements.lockHeld(tables, [lease], "WAIT"),
      silenceWithin(tables, lease)
    ])
    const locked = answers[Transaction.begin.length]
    const row = locked?.rows.find((candidate) => idOf(candidate) === lease.jobId)
    const held = isHeld(row, lease) ? row : undefined
    if (held !== undefined && !isSet(held, "cancel_requested")) return undefined
    if (held !== undefined) return yield* rolledBack(session, refusal({ _tag: "Lost", reason: "canceled" }, lease))
    const [read] = yield* session.script([Statements.readHeld(tables, [lease])])
    const verdict = readBack(read?.rows[0], lease, { _tag: "Complete", output: null })
    // Completed before by this very lease: the effect was committed then and must not run again.
    return yield* rolledBack(
      session,
      refusal(verdict._tag === "Recorded" ? { _tag: "AlreadySettled" } : verdict, lease)
    )
  })

const rolledBack = <Result>(session: OwnSession, result: Result): Effect.Effect<Result> =>
  Effect.as(Transaction.rollBack(session), result)

const refusal = (verdict: SettleVerdict, lease: Lease): { readonly _tag: "Refused"; readonly error: SettleError } => {
  const { jobId, token } = lease
  switch (verdict._tag) {
    case "Lost":
      return { _tag: "Refused", error: new LeaseLost({ jobId, token, during: verb, reason: verdict.reason }) }
    case "AlreadySettled":
      return { _tag: "Refused", error: new AlreadySettled({ jobId, token }) }
    default:
      return { _tag: "Refused", error: new OutcomeUnknown({ verb, jobId }) }
  }
}

/** The answer to COMMIT was lost: the ledger tells whether it happened (law 10). */
const askAgain = <A>(
  tables: Tables,
  connections: Connections,
  lease: Lease,
  value: A
): Effect.Effect<Ending<A, never>, SettleError> =>
  Transaction.run(connections, verb, "again", (session) =>
    // A locking read waits for the lost session's transaction, which the server may still be ending.
    session.script([
      "START TRANSACTION",
      Statements.lockHeld(tables, [lease], "WAIT"),
      Statements.readHeld(tables, [lease]),
      "COMMIT"
    ])
  ).pipe(
    Effect.map(([, , read]): Ending<A, never> => {
      const verdict = readBack(read?.rows[0], lease, { _tag: "Complete", output: null })
      if (verdict._tag === "Recorded") return done(value)
      return verdict._tag === "Busy" ? undone("COMMIT") : refusal(verdict, lease)
    }),
    Effect.catchTag("StoreUnavailable", () => Effect.fail(new OutcomeUnknown({ verb, jobId: lease.jobId })))
  )
