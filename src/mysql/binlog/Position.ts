/**
 * Looks whether the server's binary log can wake workers, and where it ends now.
 */
import { Effect } from "effect"
import { readVariables } from "../diagnosis/Settings.js"
import type { MysqlFault } from "../MysqlFault.js"
import type { Answer, OwnSession } from "../Session.js"
import * as Statements from "../statements/binlog.js"
import type { Tables } from "../Tables.js"
import { lasting, type Unavailable } from "./Unavailable.js"

export interface Position {
  readonly file: string
  readonly offset: number
  /** The database of the session, as events name it. */
  readonly database: string
}

const binlogOff = lasting(
  "binlog_off",
  "The server writes no binary log",
  "Start it with log_bin, or leave Wakeup.layerBinlog out."
)

/** Fails with what is missing; each lasting reason names its remedy. */
export const find = (session: OwnSession, tables: Tables): Effect.Effect<Position, Unavailable | MysqlFault> =>
  Effect.gen(function* () {
    const variables = yield* readVariables(session, ["log_bin", "binlog_format", "binlog_transaction_compression"])
    if (variables.get("log_bin") !== "ON") return yield* binlogOff
    // Servers that know nothing but rows have no such setting any more.
    const format = variables.get("binlog_format") ?? "ROW"
    if (format !== "ROW") {
      return yield* lasting("binlog_format", `binlog_format is ${format}`, "Set it to ROW, the server's default.")
    }
    if (variables.get("binlog_transaction_compression") === "ON") {
      return yield* lasting(
        "binlog_compressed",
        "binlog_transaction_compression is ON, and the client can not read compressed transactions",
        "Turn it off, or leave Wakeup.layerBinlog out."
      )
    }
    const [found] = yield* session.script([Statements.database(tables)])
    const database = found?.rows[0]?.["name"]
    if (database === undefined) {
      return yield* lasting(
        "table_missing",
        `The database has no table ${tables.jobs}, or its user no right to it`,
        "Give Wakeup.layerBinlog the tablePrefix of MysqlQueue.layer, and let the tables be made first."
      )
    }
    const answers: ReadonlyArray<Answer> = yield* session
      .script([Statements.end])
      .pipe(Effect.catchIf(isSyntaxError, () => session.script([Statements.endBefore82])))
    const end = answers[0]?.rows[0]
    if (end === undefined) return yield* binlogOff
    const name = String(database)
    const wanted = listed(end["Binlog_Do_DB"])
    if ((wanted.length > 0 && !wanted.includes(name)) || listed(end["Binlog_Ignore_DB"]).includes(name)) {
      return yield* lasting(
        "database_filtered",
        "The server leaves this database out of its binary log",
        "Change binlog-do-db or binlog-ignore-db, or leave Wakeup.layerBinlog out."
      )
    }
    return { file: String(end["File"]), offset: Number(end["Position"]), database: name }
  })

const isSyntaxError = (fault: MysqlFault): boolean => fault.code.endsWith(" 1064")

const listed = (databases: unknown): ReadonlyArray<string> =>
  typeof databases === "string" ? databases.split(",").filter((name) => name !== "") : []
