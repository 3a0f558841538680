/**
 * Why the binary log can not be read now, and what to do about it. Workers then poll, as they do without it.
 */
import { Data } from "effect"
import { fromDriver, type MysqlFault } from "../MysqlFault.js"

/** Each kind has its row in docs/errors.md. */
export type Reason =
  | "client_missing"
  | "binlog_off"
  | "binlog_format"
  | "binlog_compressed"
  | "database_filtered"
  | "table_missing"
  | "denied"
  | "connection"
  | "silent"
  | "unreadable"

/** Holds no text of the server or of the client: both can quote values (law 8). */
export class Unavailable extends Data.TaggedError("BinlogUnavailable")<{
  readonly reason: Reason
  /** What was found, as a sentence without its end. */
  readonly found: string
  /** What to do about it, as a sentence. */
  readonly remedy: string
  /** The error of the server or the driver, where there was one. */
  readonly code?: string
  /** Nothing but a change of rights, settings or packages ends it. */
  readonly lasting: boolean
}> {
  override get message() {
    return `${this.found}. ${this.remedy}`
  }
}

export const lasting = (reason: Reason, found: string, remedy: string, code?: string): Unavailable =>
  new Unavailable({ reason, found, remedy, lasting: true, ...(code === undefined ? {} : { code }) })

const passing = (reason: Reason, found: string, code?: string): Unavailable =>
  new Unavailable({
    reason,
    found,
    remedy: "It is tried again by itself.",
    lasting: false,
    ...(code === undefined ? {} : { code })
  })

export const silent = passing("silent", "The server has sent nothing for three heartbeats")

export const fromFault = ({ code, kind }: MysqlFault): Unavailable => {
  switch (kind) {
    case "denied":
      return lasting(
        "denied",
        "The database user may not read the binary log",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* to it.",
        code
      )
    default:
      return passing("connection", "The connection to the binary log failed or was lost", code)
  }
}

/** From an error that the client emits: one of the server or the driver, or a complaint of its own about an event. */
export const fromClient = (error: unknown): Unavailable =>
  typeof error === "object" && error !== null && ("errno" in error || "code" in error)
    ? fromFault(fromDriver(error, false))
    : passing("unreadable", "The client could not read an event of the binary log")
