/**
 * Settings of the server that the library's promises, or its speed, depend on.
 */
import { Effect } from "effect"
import type { MysqlFault } from "../MysqlFault.js"
import type { OwnSession } from "../Session.js"
import * as Statements from "../statements/diagnose.js"
import { type Finding, ok, problem, warning } from "./Finding.js"

/** A payload of 1 MiB travels as two hexadecimal digits for each byte, beside the rest of its statement. */
const leastPacket = 4 * 1024 * 1024

interface Rule {
  readonly variable: string
  /** The finding for this value; undefined where it is as it should be. */
  readonly judge: (value: string, all: ReadonlyMap<string, string>) => Finding | undefined
}

const check = "settings"

const rules: ReadonlyArray<Rule> = [
  {
    variable: "super_read_only",
    judge: (value) => (value === "ON" ? readOnly : undefined)
  },
  {
    variable: "read_only",
    judge: (value, all) => (value === "ON" && all.get("super_read_only") !== "ON" ? readOnly : undefined)
  },
  {
    variable: "binlog_format",
    judge: (value, all) =>
      value === "STATEMENT" && all.get("log_bin") === "ON"
        ? problem(
            check,
            "binlog_format is STATEMENT, with which InnoDB refuses writes at READ COMMITTED (errno 1665)",
            "Set binlog_format = ROW, the server's default."
          )
        : undefined
  },
  {
    variable: "innodb_flush_log_at_trx_commit",
    judge: (value) =>
      value === "1"
        ? undefined
        : warning(
            check,
            `innodb_flush_log_at_trx_commit is ${value}: a crash of the server can lose the last second of commits, jobs included`,
            "Set it to 1 where a job must not be lost."
          )
  },
  {
    variable: "sync_binlog",
    judge: (value, all) =>
      value === "1" || all.get("log_bin") !== "ON"
        ? undefined
        : warning(
            check,
            `sync_binlog is ${value}: a crash can leave replicas without the last commits`,
            "Set it to 1 where you fail over to a replica."
          )
  },
  {
    variable: "innodb_deadlock_detect",
    judge: (value) =>
      value === "OFF"
        ? warning(
            check,
            "innodb_deadlock_detect is OFF: a deadlock lasts until a lock wait ends, up to 3 seconds on the library's sessions",
            "Turn it on, or keep innodb_lock_wait_timeout low for your own sessions."
          )
        : undefined
  },
  {
    variable: "max_allowed_packet",
    judge: (value) =>
      Number(value) < leastPacket
        ? warning(
            check,
            `max_allowed_packet is ${value} bytes, which a payload of 1 MiB can exceed`,
            `Set it to ${leastPacket} or more, or lower Payload.Limit.`
          )
        : undefined
  }
]

const readOnly = problem(
  check,
  "the server is read-only: nothing can be enqueued, claimed or settled here",
  "Connect to the primary."
)

const wanted = [...rules.map(({ variable }) => variable), "log_bin", "transaction_isolation"]

export const examine = (session: OwnSession): Effect.Effect<ReadonlyArray<Finding>, MysqlFault> =>
  Effect.map(readVariables(session, wanted), (all) => {
    const findings = rules.flatMap(({ judge, variable }) => {
      const value = all.get(variable)
      const finding = value === undefined ? undefined : judge(value, all)
      return finding === undefined ? [] : [finding]
    })
    const isolation = ok(
      "isolation",
      `${all.get("transaction_isolation") ?? "unknown"} by default; the library's own sessions use READ-COMMITTED, an enqueue in `
        + "your transaction runs at yours"
    )
    return [
      ...(findings.length === 0
        ? [ok(check, `durable, writable, packets of ${all.get("max_allowed_packet")} bytes`)]
        : findings),
      isolation
    ]
  })

/** Variables, or status counters, by name. */
export const readVariables = (
  session: OwnSession,
  names: ReadonlyArray<string>,
  statement: (names: ReadonlyArray<string>) => string = Statements.variables
): Effect.Effect<ReadonlyMap<string, string>, MysqlFault> =>
  Effect.map(
    session.script([statement(names)]),
    ([answer]) =>
      new Map((answer?.rows ?? []).map((row) => [String(row["Variable_name"]).toLowerCase(), String(row["Value"])]))
  )
