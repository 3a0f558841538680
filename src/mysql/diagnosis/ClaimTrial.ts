/**
 * The claim's own statement, tried on the jobs that are there: its plan, the rows that it reads and the locks that it takes.
 *
 * It locks up to ten due jobs of a queue for a few milliseconds, as a claim does, skipping what others hold, and then rolls
 * back: nothing is claimed, and workers meanwhile skip those ten.
 */
import { Duration, Effect } from "effect"
import type { ClaimRequest } from "../../JobStore.js"
import type { MysqlFault } from "../MysqlFault.js"
import type { OwnSession, Row } from "../Session.js"
import * as Claim from "../statements/claim.js"
import * as Statements from "../statements/diagnose.js"
import type { Tables } from "../Tables.js"
import { type Finding, ok, problem, warning } from "./Finding.js"

const check = "claim"
const batch = 10
/** Queues that are tried at the most. */
const mostQueues = 20
/** A due job that waits for longer than this has no worker that could keep up. */
const longWait = Duration.minutes(5)

const levels: ReadonlyArray<Claim.Level> = Array.from({ length: 10 }, (_, priority) => ({ priority, from: undefined }))

export const examine = (session: OwnSession, tables: Tables): Effect.Effect<ReadonlyArray<Finding>, MysqlFault> =>
  Effect.gen(function* () {
    const queues = yield* queuesOf(session, tables)
    const findings = yield* Effect.forEach(queues, (queue) => tryQueue(session, tables, queue))
    if (findings.some((found) => found.length > 0)) return findings.flat()
    const plan = yield* planOf(session, Claim.lock(tables, requestOf("default", ["none"]), levels))
    return [judgePlan("no job is due, so only the plan was looked at", plan)]
  }).pipe(
    Effect.catchIf(
      (fault) => fault.code.endsWith(" 1176"),
      () =>
        Effect.succeed([
          problem(
            check,
            "the index jobs_claim is missing: no job can be claimed",
            "Restore it: see the finding about tables."
          )
        ])
    )
  )

/** The first queues that have jobs, by name. */
const queuesOf = (session: OwnSession, tables: Tables): Effect.Effect<ReadonlyArray<string>, MysqlFault> =>
  Effect.gen(function* () {
    const queues: Array<string> = []
    while (queues.length < mostQueues) {
      const [answer] = yield* session.script([Statements.nextQueue(tables, queues.at(-1))])
      const next = answer?.rows[0]?.["queue"] ?? null
      if (next === null) break
      queues.push(String(next))
    }
    return queues
  })

const requestOf = (queue: string, types: ReadonlyArray<string>): ClaimRequest => ({
  queue,
  types: types.map((type) => ({ type, version: 65_535 })),
  worker: "doctor",
  lease: Duration.seconds(1),
  limit: batch
})

/** Nothing for a queue without due jobs. */
const tryQueue = (
  session: OwnSession,
  tables: Tables,
  queue: string
): Effect.Effect<ReadonlyArray<Finding>, MysqlFault> =>
  Effect.gen(function* () {
    const [types] = yield* session.script([Statements.dueTypes(tables, queue)])
    const request = requestOf(queue, (types?.rows ?? []).map((row) => String(row["type"])).slice(0, 50))
    if (request.types.length === 0) return []
    const [looked, clock] = yield* session.script([Claim.look(tables, request, levels), Statements.now])
    const found = (looked?.rows ?? []).map((row) => ({
      priority: Number(row["priority"]),
      dueAt: String(row["due_at"])
    }))
    const live = levels.filter((level) => found.some(({ priority }) => priority === level.priority))
    if (live.length === 0) return []
    const paused = found.some(({ priority }) => priority === Claim.pausedRow)
    const statement = Claim.lock(tables, request, live)
    const plan = yield* planOf(session, statement)
    const cost = yield* costOf(session, tables, statement)
    const waited = waitOf(
      found.filter(({ priority }) => priority <= 9).map(({ dueAt }) => dueAt),
      Number(clock?.rows[0]?.["now"]) / 1_000
    )
    return [judgeCost(queue, plan, cost, live.length), ...judgeWait(queue, waited, paused)]
  })

interface Plan {
  readonly type: string
  readonly key: string
  readonly filesort: boolean
}

const planOf = (session: OwnSession, statement: string): Effect.Effect<Plan, MysqlFault> =>
  Effect.map(session.script([Statements.explain(statement)]), ([answer]) => {
    const row: Row = answer?.rows.find(({ table }) => table === "jobs") ?? {}
    return {
      type: String(row["type"]),
      key: String(row["key"]),
      filesort: String(row["Extra"]).includes("filesort")
    }
  })

const isGood = ({ filesort, key, type }: Plan): boolean =>
  (type === "range" || type === "ref") && key === "jobs_claim" && !filesort

const told = ({ filesort, key, type }: Plan): string => `${type} on ${key}${filesort ? " with a filesort" : ""}`

const badPlan =
  "The optimizer does not use the index as it should: ANALYZE TABLE, then run doctor again; report it if it stays."

const judgePlan = (says: string, plan: Plan): Finding =>
  isGood(plan) ? ok(check, `${says}: ${told(plan)}`) : problem(check, `${says}: ${told(plan)}`, badPlan)

interface Cost {
  readonly rows: number
  readonly read: number
  /** Undefined where the user may not look at locks. */
  readonly locks: number | undefined
}

/** Runs the locking read and rolls it back, whatever happens in between. */
const costOf = (session: OwnSession, tables: Tables, statement: string): Effect.Effect<Cost, MysqlFault> =>
  Effect.gen(function* () {
    const [zero, before] = yield* session.script([Statements.reads, Statements.reads])
    const [, locked, after] = yield* session.script(["START TRANSACTION", statement, Statements.reads])
    const locks = yield* session.script([Statements.locks(tables)]).pipe(
      Effect.map(([answer]) => Math.max(0, ...(answer?.rows ?? []).map((row) => Number(row["locks"])))),
      Effect.catchIf(
        (fault) => fault.kind === "denied",
        () => Effect.succeed(undefined)
      )
    )
    // To ask for the counters counts as reading, too.
    const asking = sum(before?.rows) - sum(zero?.rows)
    return { rows: locked?.rows.length ?? 0, read: sum(after?.rows) - sum(before?.rows) - asking, locks }
  }).pipe(Effect.ensuring(session.script(["ROLLBACK"]).pipe(Effect.catchAll(() => Effect.void))))

const sum = (rows: ReadonlyArray<Row> = []): number => rows.reduce((all, row) => all + Number(row["Value"]), 0)

const judgeCost = (queue: string, plan: Plan, { locks, read, rows }: Cost, live: number): Finding => {
  const seen = locks === undefined ? "its locks could not be seen" : `${locks} locks in an index`
  const says = `queue ${queue}: ${told(plan)}, ${rows} jobs locked for ${read} rows read and ${seen}`
  if (!isGood(plan)) return problem(check, says, badPlan)
  if (locks !== undefined && locks > rows + live) {
    return problem(check, says, "It locks more than it takes, so workers hinder each other: please report this.")
  }
  if (read > batch + 2 * live + 5) {
    return warning(
      check,
      says,
      "It walks over rows that it can not take: jobs that others hold right now, or entries that the server has not purged "
        + "since some transaction is open for long."
    )
  }
  return locks === undefined
    ? warning(check, says, "Grant SELECT on performance_schema.data_locks and threads to see them.")
    : ok(check, says)
}

/** Since when the oldest due job has been due, in milliseconds. Due times come as exact text in UTC. */
const waitOf = (dueTimes: ReadonlyArray<string>, now: number): number =>
  Math.max(0, ...dueTimes.map((text) => now - Date.parse(`${text.slice(0, 23).replace(" ", "T")}Z`)))

const judgeWait = (queue: string, waited: number, paused: boolean): ReadonlyArray<Finding> => {
  const time = Duration.format(Duration.seconds(Math.round(waited / 1_000)))
  if (paused)
    return [
      warning(
        "backlog",
        `queue ${queue} is paused, and its oldest due job waits for ${time}`,
        `Open it: leasehold resume ${queue}`
      )
    ]
  return waited > Duration.toMillis(longWait)
    ? [
        warning(
          "backlog",
          `queue ${queue}: the oldest due job waits for ${time}`,
          "Is a worker with its handler running? Else it can not keep up: more concurrency, or more workers."
        )
      ]
    : []
}
