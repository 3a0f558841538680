/**
 * What the driver and the server can say went wrong, by error number, and what it means for a verb.
 */
import { Data } from "effect"
import { OutcomeUnknown, type StoreError, StoreRejected, StoreUnavailable, TransactionAborted } from "../QueueError.js"

export type FaultKind =
  | "deadlock"
  | "lock_wait"
  | "row_locked"
  | "duplicate"
  | "read_only"
  | "read_only_transaction"
  | "too_many_connections"
  | "connection"
  | "timeout"
  | "data"
  | "denied"
  | "missing"
  | "in_transaction"
  | "ended"
  | "other"

/**
 * One failed statement. It holds no text of the server or the driver: both can quote values, and the driver's error even
 * holds the whole statement (law 8).
 */
export class MysqlFault extends Data.TaggedError("MysqlFault")<{
  readonly kind: FaultKind
  /** Such as `ER_LOCK_DEADLOCK 1213`, or the driver's code. */
  readonly code: string
  /** Whether the statement may have been executed although its answer did not come. */
  readonly ambiguous: boolean
  /** The right that the user lacks, such as `UPDATE on leasehold_jobs`, where the server names it. */
  readonly right?: string | undefined
}> {}

const byNumber: { readonly [errno: number]: FaultKind } = {
  1213: "deadlock",
  // Group Replication rolls a transaction back at COMMIT when it conflicts with another member's.
  3101: "deadlock",
  1205: "lock_wait",
  3572: "row_locked",
  1062: "duplicate",
  // A primary that became a replica: --read-only, super_read_only, a commit or a statement that Group Replication refuses.
  1290: "read_only",
  1836: "read_only",
  3100: "read_only",
  3781: "read_only",
  3782: "read_only",
  3783: "read_only",
  3796: "read_only",
  3797: "read_only",
  3798: "read_only",
  3799: "read_only",
  1792: "read_only_transaction",
  1040: "too_many_connections",
  1203: "too_many_connections",
  1226: "too_many_connections",
  // The server ended the session or the statement before executing it: shutdown, KILL, idle for wait_timeout, a member that
  // has left its group (offline mode).
  1053: "connection",
  3032: "connection",
  1927: "connection",
  3168: "connection",
  4031: "connection",
  1317: "timeout",
  3024: "timeout",
  1044: "denied",
  1045: "denied",
  1142: "denied",
  1143: "denied",
  1227: "denied",
  1370: "denied",
  1049: "missing",
  1054: "missing",
  1146: "missing",
  1568: "in_transaction",
  // A savepoint is not there any more: its transaction has ended.
  1305: "ended",
  1153: "data",
  1264: "data",
  1265: "data",
  1292: "data",
  1366: "data",
  1406: "data",
  3140: "data",
  3141: "data",
  3156: "data",
  3819: "data",
  3903: "data"
}

/** Faults of the session itself: it can not be used again. */
export const breaksSession = (kind: FaultKind): boolean =>
  kind === "connection" || kind === "timeout" || kind === "read_only" || kind === "read_only_transaction"

/** What a server says that can not tell how its statement ended: an error in the middle of COMMIT, or a broken network. */
const unknownEnds: ReadonlySet<number> = new Set([1158, 1159, 1160, 1161, 1180])

/** Reads the driver's error. `sent`: the statement had left for the server. */
export const fromDriver = (error: unknown, sent: boolean): MysqlFault => {
  const { code, errno } = errorFields(error)
  if (errno !== undefined && unknownEnds.has(errno)) {
    return new MysqlFault({ kind: "connection", code: `${code ?? "errno"} ${errno}`, ambiguous: sent })
  }
  const kind = errno !== undefined ? byNumber[errno] : undefined
  if (kind !== undefined) {
    const right = kind === "denied" ? missingRight(error) : undefined
    return new MysqlFault({ kind, code: `${code ?? "errno"} ${errno}`, ambiguous: false, right })
  }
  // Everything that the server itself answered has a positive number and a name that starts with ER_.
  if (errno !== undefined && errno >= 1000 && (code === undefined || code.startsWith("ER_"))) {
    return new MysqlFault({ kind: "other", code: `${code ?? "errno"} ${errno}`, ambiguous: false })
  }
  return new MysqlFault({ kind: "connection", code: code ?? "connection", ambiguous: sent })
}

const errorFields = (error: unknown): { readonly code: string | undefined; readonly errno: number | undefined } => {
  if (typeof error !== "object" || error === null) return { code: undefined, errno: undefined }
  const code = "code" in error && typeof error.code === "string" ? error.code : undefined
  const errno = "errno" in error && typeof error.errno === "number" ? error.errno : undefined
  return { code, errno }
}

// Nothing but the words of a right and the plain name of a table is taken from the server's text (law 8).
const deniedCommand =
  /^([A-Z ]+|SELECT with locking clause) command denied .* table '?`?(?:\w+['`.]+)?([a-z][a-z0-9_]*)['`]*$/

const missingRight = (error: unknown): string | undefined => {
  const message = typeof error === "object" && error !== null && "message" in error ? String(error.message) : ""
  const [, command, table] = deniedCommand.exec(message) ?? []
  if (command === undefined || table === undefined) return undefined
  // To lock rows takes the right to update them.
  return `${command === "SELECT with locking clause" ? "UPDATE" : command} on ${table}`
}

/** The fault of a verb on a session of the library. `repeatable`: doing the verb again does no harm if it had been done. */
export const toStoreError =
  (verb: string, repeatable: boolean) =>
  (fault: MysqlFault): StoreError => {
    switch (fault.kind) {
      case "connection":
      case "timeout":
        return fault.ambiguous && !repeatable
          ? new OutcomeUnknown({ verb })
          : new StoreUnavailable({ verb, reason: fault.kind, code: fault.code })
      case "deadlock":
      case "lock_wait":
      case "read_only":
      case "too_many_connections":
        return new StoreUnavailable({ verb, reason: fault.kind, code: fault.code })
      case "read_only_transaction":
        return new StoreUnavailable({ verb, reason: "read_only", code: fault.code })
      case "row_locked":
        return new StoreUnavailable({ verb, reason: "lock_wait", code: fault.code })
      case "denied":
        return new StoreRejected({
          verb,
          code: fault.code,
          hint:
            fault.right === undefined
              ? hints.denied
              : `Grant the database user ${fault.right}; the README lists what each role needs.`
        })
      default:
        return new StoreRejected({ verb, code: fault.code, hint: hints[fault.kind] })
    }
  }

const hints = {
  ended:
    "A statement of the effect has ended its transaction: DDL, COMMIT or ROLLBACK, or a lock wait that was caught where the server has"
    + " innodb_rollback_on_timeout. What was written after it is committed, and nothing else was done.",
  duplicate: "A row with this key exists although it was looked for; please report this.",
  data: "A value does not fit its column or the server's max_allowed_packet.",
  denied: "Grant the database user what the README lists for its role.",
  missing: 'Create the tables: Migrations.run, or migrate: "auto" with a user who may create tables.',
  in_transaction: "A transaction is open where none should be; please report this.",
  other: "Look the number up in the MySQL error reference, and the statement up in the server's log."
}

/** The fault of a verb inside of the caller's transaction, which the caller has to run again where it was undone. */
export const toTransactionError =
  (verb: string, repeatable = false) =>
  (fault: MysqlFault): StoreError | TransactionAborted =>
    fault.kind === "deadlock" || fault.kind === "lock_wait"
      ? new TransactionAborted({ verb, reason: fault.kind })
      : fault.kind === "ended"
        ? new TransactionAborted({ verb, reason: "ended" })
        : toStoreError(verb, repeatable)(fault)
