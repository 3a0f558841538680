/**
 * What an adapter makes of another library's handle: the statements of the store can be sent through it.
 */
import type { Duration } from "effect"
import { fromPromises, type Session, type Value } from "../mysql/Session.js"

/** A handle of another library, ready for `Enqueuer`. Made by the functions of `leasehold/adapters/*`. */
export interface Executor {
  /**
   * The handle as a session, whose every statement takes so long at the most.
   *
   * @internal
   */
  readonly session: (statementTimeout: Duration.Duration) => Session
  /** The library's own mark of a transaction; undefined where it has none, and the server is asked instead. */
  readonly isTransaction: boolean | undefined
}

export interface Ways {
  /** Sends one statement. Answers rows, or what mysql2 does for a write: `affectedRows`, `insertId`, `serverStatus`. */
  readonly execute: (text: string, values: Array<Value>) => Promise<unknown>
  /** Sends a statement that can not be prepared. Default: as `execute`. */
  readonly command?: (text: string) => Promise<unknown>
  /** The error of the driver within that of the library. Default: the error itself. */
  readonly causeOf?: (error: unknown) => unknown
  readonly isTransaction?: boolean | undefined
  /** Default true. False: the library can not send SAVEPOINT and START TRANSACTION, since it prepares all statements. */
  readonly commands?: boolean
}

export const make = (ways: Ways): Executor => ({
  isTransaction: ways.isTransaction,
  session: (statementTimeout) => ({
    ...fromPromises(
      { execute: ways.execute, command: ways.command ?? ((text) => ways.execute(text, [])) },
      ways.causeOf ?? ((error) => error),
      statementTimeout
    ),
    commands: ways.commands ?? true
  })
})

/** The member of an object that an error of some library keeps the driver's error in; the error itself where it has none. */
export const memberOr = (error: unknown, member: string): unknown => {
  const inner =
    typeof error === "object" && error !== null ? Object.getOwnPropertyDescriptor(error, member)?.value : null
  return inner ?? error
}
