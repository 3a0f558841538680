/**
 * The one place where the library opens, joins and retries transactions.
 */
import * as SqlClient from "@effect/sql/SqlClient"
import type { Connection } from "@effect/sql/SqlConnection"
import { Context, type Duration, Effect, Option, Schedule } from "effect"
import { InTransaction, NotInTransaction, type StoreError, TransactionAborted } from "../QueueError.js"
import type { Connections } from "./Connections.js"
import { MysqlFault, toStoreError, toTransactionError } from "./MysqlFault.js"
import { fromTransaction, type OwnSession, type Session } from "./Session.js"

/** The connection of the caller's open transaction and its depth; they travel in the fiber's context (T1). */
const openTransaction = Effect.serviceOption(SqlClient.TransactionConnection)

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

const once = Schedule.recurs(1)

/**
 * What a lost answer means for a verb: do it `again`, since twice is no harm; report it as `unavailable`, since it is no harm
 * but not to be repeated either; or report that its outcome is `unknown` (law 10).
 */
export type WhenLost = "again" | "unavailable" | "unknown"

/**
 * Runs a verb on a session of the library. It runs again after a deadlock, which has undone all of it, and once more where the
 * session turned out to be dead before the statement was sent, or after it where `whenLost` allows that, and where it led to a
 * server that has become read-only: the next session is a new one.
 */
export const run = <A, E>(
  connections: Connections,
  verb: string,
  whenLost: WhenLost,
  body: (session: OwnSession) => Effect.Effect<A, E | MysqlFault>,
  statementTimeout?: Duration.Duration
): Effect.Effect<A, Exclude<E, MysqlFault> | StoreError> =>
  connections.use(body, statementTimeout).pipe(
    retryWhere(afterDeadlock, (error) => isFault(error) && error.kind === "deadlock"),
    retryWhere(
      once,
      (error) =>
        isFault(error)
        && (error.kind === "read_only" || (error.kind === "connection" && (whenLost === "again" || !error.ambiguous)))
    ),
    Effect.catchAll(
      (error): Effect.Effect<never, Exclude<E, MysqlFault> | StoreError> =>
        Effect.fail(
          isFault(error) ? toStoreError(verb, whenLost !== "unknown")(error) : (error as Exclude<E, MysqlFault>)
        )
    )
  )

/** As `Effect.retry`, but for what succeeds at once, as nearly every statement does, no schedule is set up. */
const retryWhere =
  (schedule: Schedule.Schedule<unknown>, passes: (error: unknown) => boolean) =>
  <A, E>(effect: Effect.Effect<A, E>): Effect.Effect<A, E> =>
    Effect.catchAll(effect, (error) => {
      if (!passes(error)) return Effect.fail(error)
      const known = [Effect.fail(error)]
      return Effect.retry(
        Effect.suspend(() => known.pop() ?? effect),
        { schedule, while: passes }
      )
    })

const isFault = (error: unknown): error is MysqlFault => error instanceof MysqlFault

/**
 * Runs a verb in the caller's open transaction, or else in one of its own.
 *
 * In the caller's, a deadlock has undone everything and a lock wait a part of it (T5, T6): see {@link within}.
 */
export const joined = <A, E>(
  connections: Connections,
  verb: string,
  options: { readonly whenLost: WhenLost; readonly timeout: Duration.Duration; readonly reads?: boolean },
  body: (session: Session) => Effect.Effect<A, E | MysqlFault>
): Effect.Effect<A, Exclude<E, MysqlFault> | StoreError | TransactionAborted> =>
  Effect.flatMap(openTransaction, (open) =>
    Option.match(open, {
      onNone: () => run(connections, verb, options.whenLost, (session) => transaction(session, body(session))),
      onSome: ([connection, depth]) => {
        if (aborted.has(connection)) return Effect.fail(new TransactionAborted({ verb, reason: "ended" }))
        const session = fromTransaction(connection, options.timeout)
        const checked =
          options.reads === true ? body(session) : Effect.zipRight(requireOpen(session, verb), body(session))
        return within(session, verb, checked, () => abort(session, connection, depth))
      }
    })
  )

/**
 * Runs a verb in a transaction of the caller. Where a deadlock has undone all of it or a lock wait a part, the rest is rolled
 * back too by `giveUp`, and the error tells the caller to run the transaction again: nothing is tried again here.
 */
export const within = <A, E>(
  session: Session,
  verb: string,
  body: Effect.Effect<A, E | MysqlFault>,
  giveUp: () => Effect.Effect<void> = () => refuseWrites(session)
): Effect.Effect<A, Exclude<E, MysqlFault> | StoreError | TransactionAborted> =>
  Effect.uninterruptible(
    Effect.catchAll(body, (error): Effect.Effect<never, Exclude<E, MysqlFault> | StoreError | TransactionAborted> => {
      // Whatever is no fault is an error of the verb.
      if (!isFault(error)) return Effect.fail(error as Exclude<E, MysqlFault>)
      if (error.kind === "deadlock" || error.kind === "lock_wait") {
        return Effect.zipRight(giveUp(), Effect.fail(toTransactionError(verb)(error)))
      }
      // The statement may still wait for a lock and fail later. What ends the transaction is queued behind it, before whatever
      // the caller sends next, and not waited for.
      if (error.kind === "timeout") {
        return Effect.interruptible(giveUp()).pipe(
          Effect.timeoutOption("20 millis"),
          Effect.zipRight(Effect.fail(new TransactionAborted({ verb, reason: "timeout" })))
        )
      }
      return Effect.fail(toTransactionError(verb)(error))
    })
  )

/**
 * Whether the session has a transaction open, by the server's own word: the status flags of its answer, or, where a driver
 * hides those, whether it refuses to set what the next transaction is to be like (errno 1568, T7). It is set to the default.
 */
export const isOpenOn = (session: Session): Effect.Effect<boolean, MysqlFault> =>
  Effect.flatMap(session.execute("DO 0", []), ({ open }) =>
    open !== undefined
      ? Effect.succeed(open)
      : session.execute("SET TRANSACTION READ WRITE", []).pipe(
          Effect.as(false),
          Effect.catchIf(
            ({ kind }) => kind === "in_transaction",
            () => Effect.succeed(true)
          )
        )
  )

/** T5: after a deadlock that somebody caught there is no transaction any more, and a write would commit by itself. */
const requireOpen = (session: Session, verb: string): Effect.Effect<void, MysqlFault | TransactionAborted> =>
  Effect.flatMap(isOpenOn(session), (open) =>
    open ? Effect.void : Effect.fail(new TransactionAborted({ verb, reason: "ended" }))
  )

/** Connections whose transaction the library has given up. A client makes the object anew for each transaction. */
const aborted = new WeakSet<Connection>()

const begun = "leasehold_begun"

/** Begins a transaction that is to hold statements of the caller. */
export const begin: ReadonlyArray<string> = ["START TRANSACTION", `SAVEPOINT ${begun}`]

/**
 * Goes before the last statements of such a transaction, in their packet. Its mark is gone where something has ended the
 * transaction behind the library's back: DDL, COMMIT or ROLLBACK of the caller, or the server at a lock wait that he caught
 * (`innodb_rollback_on_timeout`). Then this fails (errno 1305) and ends the packet, and what follows does not commit by itself.
 */
export const requireBegun = `RELEASE SAVEPOINT ${begun}`

/** Whether a deadlock has undone what was written in this use of a session, or the library has given it up. */
export const isUndone = (session: OwnSession): boolean => session.undone() || aborted.has(session.connection)

/**
 * Ends a broken transaction so that nothing of it can commit, not even what a caller who caught the error still writes: he
 * goes on in a transaction that only reads. Its savepoints are there again, or the client's roll back to one of them would
 * hide the error behind a defect (T5).
 */
const abort = (session: Session, connection: Connection, depth: number): Effect.Effect<void> =>
  Effect.suspend(() => {
    aborted.add(connection)
    const savepoints = Array.from({ length: depth }, (_, index) => `SAVEPOINT effect_sql_${index + 1}`)
    // In one packet, which an error ends: a START TRANSACTION after a ROLLBACK that failed would commit.
    return Effect.ignore(session.command(["ROLLBACK", readOnly, ...savepoints].join("; ")))
  })

const readOnly = "START TRANSACTION READ ONLY"

/** Where even this fails, the session is dead and its transaction with it. */
export const refuseWrites = (session: Session): Effect.Effect<void> =>
  session.commands === false
    ? Effect.ignore(session.execute("KILL CONNECTION_ID()", []))
    : Effect.ignore(
        Effect.all([session.command("ROLLBACK"), session.command(readOnly)], {
          concurrency: "unbounded",
          discard: true
        })
      )

/**
 * Rolls back, whatever becomes of it: what the caller is told is why it came to that. A session on which it fails is given back
 * to nobody, and the server rolls back when it is closed.
 */
export const rollBack = (session: OwnSession): Effect.Effect<void> => Effect.ignore(session.script(["ROLLBACK"]))

/**
 * A transaction on a session of the library, at READ COMMITTED. A failure leaves it open: the session is rolled back where it
 * is given back, or destroyed.
 */
export const transaction = <A, E>(session: OwnSession, body: Effect.Effect<A, E>): Effect.Effect<A, E | MysqlFault> =>
  session.script(["START TRANSACTION"]).pipe(Effect.zipRight(body), Effect.zipLeft(session.script(["COMMIT"])))
