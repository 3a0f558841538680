/**
 * What a person reads when the command can not do what was asked: one line, and an exit code.
 */
import { Data } from "effect"
import type { StartError } from "../MysqlQueue.js"
import type { EnqueueError, FindError } from "../Queue.js"
import type { JobNotEnded, KeyInvalid, MigrationError } from "../QueueError.js"
import { ExitCode } from "./ExitCode.js"

/** The command ends with this code. `message` none: what there is to say was printed before. */
export class CommandFailed extends Data.TaggedError("CommandFailed")<{
  readonly code: ExitCode
  readonly message: string
}> {}

export const usage = (message: string): CommandFailed => new CommandFailed({ code: ExitCode.usage, message })

/** Errors of the library that a command may end with. */
export type LibraryError = EnqueueError | FindError | JobNotEnded | KeyInvalid | StartError | MigrationError

export type Failure = CommandFailed | LibraryError

const codes: { readonly [Tag in LibraryError["_tag"]]: ExitCode } = {
  InvalidName: ExitCode.usage,
  InvalidOption: ExitCode.usage,
  PayloadInvalid: ExitCode.usage,
  PayloadTooLarge: ExitCode.usage,
  KeyInvalid: ExitCode.usage,
  TimeInvalid: ExitCode.usage,
  StoreUnavailable: ExitCode.database,
  StoreRejected: ExitCode.database,
  OutcomeUnknown: ExitCode.database,
  TransactionAborted: ExitCode.database,
  NotInTransaction: ExitCode.database,
  UnsupportedServer: ExitCode.database,
  SchemaOutdated: ExitCode.tables,
  SchemaNewerThanLibrary: ExitCode.tables,
  MigrationDirty: ExitCode.tables,
  MigrationEdited: ExitCode.tables,
  JobNotFound: ExitCode.refused,
  JobNotEnded: ExitCode.refused,
  IdempotencyConflict: ExitCode.refused
}

export const explain = (failure: Failure): { readonly code: ExitCode; readonly message: string } => {
  switch (failure._tag) {
    case "CommandFailed":
      return failure
    case "SchemaOutdated":
      return {
        code: codes.SchemaOutdated,
        message: `The database lacks ${failure.missing.length} migration steps (${failure.missing.join(", ")}). Run: leasehold migrate`
      }
    default:
      return { code: codes[failure._tag], message: failure.message }
  }
}

/** Whether an error is one of those that {@link explain} knows, such as one that the layer of a user's module failed with. */
export const isLibraryError = (error: unknown): error is LibraryError =>
  typeof error === "object"
  && error !== null
  && "_tag" in error
  && typeof error._tag === "string"
  && Object.hasOwn(codes, error._tag)
  && error instanceof Error
