/**
 * A transaction of the caller on a connection of the library, whose end the library therefore knows: what waits for the
 * commit can happen exactly then.
 */
import * as SqlClient from "@effect/sql/SqlClient"
import { type Cause, Context, Effect, Exit } from "effect"
import { type InTransaction, OutcomeUnknown, type StoreError, TransactionAborted } from "../QueueError.js"
import type { Connections } from "./Connections.js"
import { type MysqlFault, toTransactionError } from "./MysqlFault.js"
import type { OwnSession } from "./Session.js"
import * as Statements from "./statements/silence.js"
import * as Transaction from "./Transaction.js"

const verb = "withTransaction"

/** How it ended; what the caller's effect failed with stays apart from the faults of the library's own statements. */
type Ending<A, E> =
  | { readonly _tag: "Committed"; readonly value: A }
  | { readonly _tag: "Failed"; readonly cause: Cause.Cause<E> }
  | { readonly _tag: "Undone"; readonly reason: TransactionAborted["reason"] }

export const make =
  (connections: Connections) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E | InTransaction | TransactionAborted | StoreError, R> =>
    Effect.zipRight(Transaction.refuseTransaction(verb), run(connections, effect))

const run = <A, E, R>(
  connections: Connections,
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, E | TransactionAborted | StoreError, R> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.suspend(() => {
      let committing = false
      const body = (session: OwnSession): Effect.Effect<Ending<A, E>, MysqlFault, R> =>
        Effect.gen(function* () {
          yield* session.script([Statements.callersSilence, ...Transaction.begin])
          const exit = yield* Effect.exit(
            restore(
              Effect.mapInputContext(effect, (context: Context.Context<R>) =>
                Context.add(context, SqlClient.TransactionConnection, [session.connection, 0])
              )
            )
          )
          if (Exit.isFailure(exit)) {
            yield* Transaction.rollBack(session)
            return { _tag: "Failed", cause: exit.cause }
          }
          if (Transaction.isUndone(session)) {
            yield* Transaction.rollBack(session)
            return { _tag: "Undone", reason: session.undone() ? "deadlock" : "lock_wait" }
          }
          committing = true
          yield* session.script([Transaction.requireBegun, "COMMIT"])
          return { _tag: "Committed", value: exit.value }
        })
      return connections.use(body).pipe(
        // Nothing was written before the COMMIT was sent, whatever is unknown until then.
        Effect.mapError((fault) =>
          fault.ambiguous && committing ? new OutcomeUnknown({ verb }) : toTransactionError(verb, true)(fault)
        ),
        Effect.flatMap((ending): Effect.Effect<A, E | TransactionAborted> => {
          if (ending._tag === "Failed") return Effect.failCause(ending.cause)
          if (ending._tag === "Undone") return Effect.fail(new TransactionAborted({ verb, reason: ending.reason }))
          return Effect.succeed(ending.value)
        })
      )
    })
  )
