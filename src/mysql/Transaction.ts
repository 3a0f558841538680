/**
 * The one place where the library opens, joins and retries transactions.
 */
import * as SqlClient from "@effect/sql/SqlClient"
import { Context, type Duration, Effect, Option, Schedule } from "effect"
import { InTransaction, NotInTransaction, type StoreError, type TransactionAborted } from "../QueueError.js"
import type { Connections } from "./Connections.js"
import { MysqlFault, toStoreError, toTransactionError } from "./MysqlFault.js"
import { fromTransaction, type OwnSession, type Session } from "./Session.js"

/** The connection of the caller's open transaction; it travels in the fiber's context (T1). */
const openTransaction = Effect.map(
  Effect.serviceOption(SqlClient.TransactionConnection),
  Option.map(([connection]) => connection)
)

/** Whether the caller has a transaction of an @effect/sql client open here. */
export const isOpen: Effect.Effect<boolean> = Effect.map(openTransaction, Option.isSome)

export const requireTransaction = (verb: string): Effect.Effect<void, NotInTransaction> =>
  Effect.flatMap(openTransaction, (open) =>
    Option.isSome(open) ? Effect.void : Effect.fail(new NotInTransaction({ verb }))
  )

export const refuseTransaction = (verb: string): Effect.Effect<void, InTransaction> =>
  Effect.flatMap(openTransaction, (open) =>
    Option.isNone(open) ? Effect.void : Effect.fail(new InTransaction({ verb }))
  )

/** T1: without this, what a fiber of the library writes would land in whatever transaction it was started in. */
export const detached = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.mapInputContext(
    effect,
    (context: Context.Context<R>) =>
      // The tag is none of R's services: it is looked up as an option only.
      Context.omit(SqlClient.TransactionConnection as never)(context) as Context.Context<R>
  )

/** Deadlocks of the library's own transactions are run again, a few times, apart from each other. */
const afterDeadlock = Schedule.jittered(Schedule.exponential("5 millis", 2)).pipe(
  Schedule.intersect(Schedule.recurs(6))
)

/**
 * What a lost answer means for a verb: do it `again`, since twice is no harm; report it as `unavailable`, since it is no harm
 * but not to be repeated either; or report that its outcome is `unknown` (law 10).
 */
export type WhenLost = "again" | "unavailable" | "unknown"

/**
 * Runs a verb on a session of the library. It runs again after a deadlock, which has undone all of it, and once more where the
 * session turned out to be dead before the statement was sent, or after it where `whenLost` allows that.
 */
export const run = <A, E>(
  connections: Connections,
  verb: string,
  whenLost: WhenLost,
  body: (session: OwnSession) => Effect.Effect<A, E | MysqlFault>,
  statementTimeout?: Duration.Duration
): Effect.Effect<A, Exclude<E, MysqlFault> | StoreError> =>
  connections.use(body, statementTimeout).pipe(
    Effect.retry({ schedule: afterDeadlock, while: (error) => isFault(error) && error.kind === "deadlock" }),
    Effect.retry({
      times: 1,
      while: (error) => isFault(error) && error.kind === "connection" && (whenLost === "again" || !error.ambiguous)
    }),
    Effect.catchAll(
      (error): Effect.Effect<never, Exclude<E, MysqlFault> | StoreError> =>
        Effect.fail(
          isFault(error) ? toStoreError(verb, whenLost !== "unknown")(error) : (error as Exclude<E, MysqlFault>)
        )
    )
  )

const isFault = (error: unknown): error is MysqlFault => error instanceof MysqlFault

/**
 * Runs a verb in the caller's open transaction, or else in one of its own.
 *
 * In the caller's, a deadlock has undone everything and a lock wait a part of it (T5, T6): both become `TransactionAborted`,
 * and nothing is tried again here.
 */
export const joined = <A, E>(
  connections: Connections,
  verb: string,
  options: { readonly whenLost: WhenLost; readonly timeout: Duration.Duration },
  body: (session: Session) => Effect.Effect<A, E | MysqlFault>
): Effect.Effect<A, Exclude<E, MysqlFault> | StoreError | TransactionAborted> =>
  Effect.flatMap(openTransaction, (open) =>
    Option.match(open, {
      onNone: () => run(connections, verb, options.whenLost, (session) => transaction(session, body(session))),
      onSome: (connection) =>
        Effect.uninterruptible(body(fromTransaction(connection, options.timeout))).pipe(
          Effect.catchAll(
            (error): Effect.Effect<never, Exclude<E, MysqlFault> | StoreError | TransactionAborted> =>
              Effect.fail(isFault(error) ? toTransactionError(verb)(error) : (error as Exclude<E, MysqlFault>))
          )
        )
    })
  )

/**
 * A transaction on a session of the library, at READ COMMITTED. A failure leaves it open: the session is rolled back where it
 * is given back, or destroyed.
 */
export const transaction = <A, E>(session: OwnSession, body: Effect.Effect<A, E>): Effect.Effect<A, E | MysqlFault> =>
  session.script(["START TRANSACTION"]).pipe(Effect.zipRight(body), Effect.zipLeft(session.script(["COMMIT"])))
