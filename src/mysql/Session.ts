/**
 * One database session, as the statements see it: two ways to send text, one shape of answer, typed faults.
 *
 * The library's own sessions and a session of the caller's open transaction are both one of these, so each statement exists
 * once.
 */
import type { Connection } from "@effect/sql/SqlConnection"
import { type Duration, Effect } from "effect"
import { fromDriver, MysqlFault } from "./MysqlFault.js"

export type Row = { readonly [column: string]: unknown }

/** A value that is bound to a placeholder. Always text or null: a placeholder remembers the type of its first value (V3). */
export type Value = string | null

/** `rows` of a SELECT; `affected` and `insertId` of a write. */
export interface Answer {
  readonly rows: ReadonlyArray<Row>
  readonly affected: number
  readonly insertId: string
  /** Whether the server had a transaction open after it; undefined where the driver does not pass that on. */
  readonly open?: boolean | undefined
}

export interface Session {
  /** One prepared statement. Its text comes from a small fixed set, since each different text is prepared once (V6). */
  readonly execute: (text: string, values: ReadonlyArray<Value>) => Effect.Effect<Answer, MysqlFault>
  /** One statement without values, unprepared: SAVEPOINT and START TRANSACTION can not be prepared (errno 1295). */
  readonly command: (text: string) => Effect.Effect<Answer, MysqlFault>
  /**
   * False where the caller's library prepares everything, and so can send no such command. Then a broken transaction, and a
   * bulk that failed half-way, are ended with their connection.
   */
  readonly commands?: boolean
}

/** A session that the library owns. */
export interface OwnSession extends Session {
  /**
   * Statements in one packet, unprepared, one answer each. An error ends the packet: what came before it is done. Values in
   * the text are checked names, whole numbers and hexadecimal literals only (`Literal`).
   */
  readonly script: (statements: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<Answer>, MysqlFault>
  /** The same session for statements of the caller. */
  readonly connection: Connection
  /** Whether some statement of this use met a deadlock, which has undone everything before it. */
  readonly undone: () => boolean
}

/** Reads what mysql2 answers for one statement: an array of rows, or a header with numbers. */
export const toAnswer = (result: unknown): Answer => {
  if (Array.isArray(result)) return { rows: result, affected: 0, insertId: "0" }
  if (typeof result !== "object" || result === null) return { rows: [], affected: 0, insertId: "0" }
  return {
    rows: [],
    affected: "affectedRows" in result ? Number(result.affectedRows) : 0,
    insertId: "insertId" in result ? String(result.insertId) : "0",
    open: "serverStatus" in result ? isInTransaction(Number(result.serverStatus)) : undefined
  }
}

/** SERVER_STATUS_IN_TRANS, or not SERVER_STATUS_AUTOCOMMIT: without autocommit the next statement begins a transaction. */
const isInTransaction = (status: number): boolean => (status & 1) !== 0 || (status & 2) === 0

/**
 * The session of a transaction that a caller opened through @effect/sql. Names and results pass the client's transforms by,
 * since the text goes to the connection itself (V8).
 */
export const fromTransaction = (connection: Connection, timeout: Duration.Duration): Session => ({
  execute: (text, values) => answer(connection.executeRaw(text, values), ({ cause }) => cause, timeout),
  command: (text) => answer(connection.executeUnprepared(text, [], undefined), ({ cause }) => cause, timeout)
})

/** The session of a transaction that another library opened. `causeOf` finds the driver's error in that of the library. */
export const fromPromises = (
  send: {
    /** Prepared or not. Answers what mysql2 does: rows, or a header with `affectedRows`, `insertId` and `serverStatus`. */
    readonly execute: (text: string, values: Array<Value>) => Promise<unknown>
    readonly command: (text: string) => Promise<unknown>
  },
  causeOf: (error: unknown) => unknown,
  timeout: Duration.Duration
): Session => ({
  execute: (text, values) =>
    answer(
      Effect.tryPromise({ try: () => send.execute(text, [...values]), catch: causeOf }),
      (error) => error,
      timeout
    ),
  command: (text) =>
    answer(Effect.tryPromise({ try: () => send.command(text), catch: causeOf }), (error) => error, timeout)
})

const answer = <E>(
  sent: Effect.Effect<unknown, E>,
  causeOf: (error: E) => unknown,
  timeout: Duration.Duration
): Effect.Effect<Answer, MysqlFault> =>
  // Where the verb may not be interrupted, the statement still must be, or its timeout would wait for it.
  Effect.interruptible(sent).pipe(
    Effect.map(toAnswer),
    Effect.mapError((error) => fromDriver(causeOf(error), true)),
    Effect.timeoutFail({
      duration: timeout,
      onTimeout: () => new MysqlFault({ kind: "timeout", code: "no answer in time", ambiguous: true })
    })
  )
