/**
 * The contract of `JobStore` on MySQL: the verbs that are one or two statements, and the others put together.
 */
import { type Duration, Effect, Option } from "effect"
import type { JobId } from "../JobRecord.js"
import { type EndedJob, type JobFilter, JobStore } from "../JobStore.js"
import { JobNotEnded, JobNotFound } from "../QueueError.js"
import * as CallersTransaction from "./CallersTransaction.js"
import * as Claiming from "./Claiming.js"
import * as CompletingWith from "./CompletingWith.js"
import type { Connections } from "./Connections.js"
import * as Enqueueing from "./Enqueueing.js"
import { idOf, isSet, stateOf, timeOf, toRecord } from "./JobRow.js"
import type { Answer, OwnSession, Row, Session } from "./Session.js"
import * as Settling from "./Settling.js"
import * as Maintain from "./statements/maintain.js"
import * as Operate from "./statements/operate.js"
import * as Read from "./statements/read.js"
import type { Tables } from "./Tables.js"
import * as Transaction from "./Transaction.js"

export interface MysqlJobStoreOptions {
  readonly tables: Tables
  /** For what workers need: claim, renew, settle, maintenance. Callers can not use them up. */
  readonly worker: Connections
  /** For what callers ask: enqueue, get, cancel and the rest. */
  readonly client: Connections
  /** For `completeWith` and `transaction`, which hold one for as long as the caller's effect runs. */
  readonly transactions: Connections
  readonly statementTimeout: Duration.Duration
  /** The server's `max_allowed_packet`, in bytes. */
  readonly packet: number
  /** Where claims begin. Whoever moves due times by hand, as tests do, empties it. */
  readonly fronts: Claiming.Fronts
}

export const make = (options: MysqlJobStoreOptions): JobStore["Type"] => {
  const { client, fronts, packet, statementTimeout, tables, worker } = options
  const joining = { whenLost: "again", timeout: statementTimeout } as const
  const inTransaction = CallersTransaction.make(options.transactions)
  const looking = { ...joining, reads: true } as const
  const reading = (verb: string, statement: string) =>
    Effect.map(
      Transaction.run(client, verb, "again", (session) => session.script([statement])),
      rowsOf
    )

  /** The claims look for what it leaves due, also where a mark moved past it before the commit. */
  const committing = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.suspend(() => {
      const since = performance.now()
      return Effect.tap(effect, () => Effect.sync(() => Claiming.noteCommitted(fronts, since)))
    })

  return JobStore.of({
    enqueue: Enqueueing.make(tables, client, statementTimeout, packet, (jobs, enqueued, since) =>
      Claiming.noteEnqueued(fronts, jobs, enqueued, since)
    ),
    requireTransaction: Transaction.requireTransaction,
    refuseTransaction: Transaction.refuseTransaction,
    detached: Transaction.detached,
    transaction: (effect) => committing(inTransaction(effect)),
    claim: Claiming.make(tables, worker, fronts),
    renew: Settling.makeRenew(tables, worker, statementTimeout),
    settle: Settling.makeSettle(tables, worker, packet),
    completeWith: CompletingWith.make(tables, options.transactions),

    get: (id) =>
      Transaction.joined(client, "get", looking, (session) =>
        Effect.map(session.execute(Read.get(tables), [id]), firstRecord)
      ),
    find: (scope, key) =>
      Transaction.joined(client, "find", looking, (session) =>
        Effect.map(session.execute(Read.find(tables), [hex(scope), hex(key)]), firstRecord)
      ),
    list: (filter, after, limit) =>
      Effect.map(reading("list", Read.list(tables, filter, start(after), limit)), (rows) => rows.map(toRecord)),
    counts: Effect.map(
      Effect.suspend(() => reading("counts", Read.counts(tables))),
      (rows) => rows.map((row) => ({ queue: String(row["queue"]), state: stateOf(row), count: Number(row["count"]) }))
    ),

    cancel: (id) => Transaction.joined(client, "cancel", joining, (session) => cancel(tables, session, id)),
    retry: (id) =>
      // Repeating it after a lost answer would meet the pending job and report that as a failure.
      committing(
        Transaction.joined(client, "retry", { ...joining, whenLost: "unknown" }, (session) =>
          retry(tables, session, id)
        )
      ),
    retryAll: (filter, after, limit) => committing(retryAll(tables, client, filter, start(after), limit)),

    setPaused: (queue, paused) =>
      Effect.asVoid(
        Transaction.run(client, paused ? "pause" : "resume", "again", (session) =>
          session.script([Operate.setPaused(tables, queue, paused)])
        )
      ),
    paused: Effect.map(
      Effect.suspend(() => reading("paused", Read.paused(tables))),
      (rows) => rows.map((row) => String(row["name"]))
    ),

    reap: (after, limit) => reap(tables, worker, start(after), limit),
    clean: (retention, after, limit) =>
      Transaction.run(worker, "clean", "again", (session) =>
        Effect.gen(function* () {
          const walked = yield* walk(session, Maintain.walkOutlived(tables, retention, start(after), limit), limit)
          if (walked.wanted.length === 0) return { next: walked.next, cleaned: 0 }
          const [, locked] = yield* session.script([
            "START TRANSACTION",
            Maintain.lockOutlived(tables, retention, walked.wanted.map(idOf))
          ])
          const ids = (locked?.rows ?? []).map(idOf)
          yield* session.script([
            ...(ids.length === 0 ? [] : [Maintain.deleteRefusals(tables, ids), Maintain.deleteJobs(tables, ids)]),
            "COMMIT"
          ])
          return { next: walked.next, cleaned: ids.length }
        })
      ),

    recordRefusals: (refusals) =>
      refusals.length === 0
        ? Effect.void
        : Effect.asVoid(
            Transaction.run(worker, "recordRefusals", "unavailable", (session) =>
              session.script(refusals.map((refusal) => Maintain.recordRefusal(tables, refusal)))
            )
          ),
    refusals: (id) =>
      Effect.map(reading("refusals", Maintain.refusals(tables, id)), (rows) =>
        rows.map((row) => ({
          token: Number(row["token"]),
          verb: String(row["verb"]),
          worker: String(row["worker"]),
          at: timeOf(row, "refused_at")
        }))
      )
  })
}

const rowsOf = (answers: ReadonlyArray<Answer>): ReadonlyArray<Row> => answers[0]?.rows ?? []

const firstRecord = ({ rows }: Answer) => Option.map(Option.fromNullable(rows[0]), toRecord)

const hex = (text: string): string => Buffer.from(text, "utf8").toString("hex")

/** The empty cursor is the start: no id is 0. */
const start = (cursor: string): string => (cursor === "" ? "0" : cursor)

const cancel = (tables: Tables, session: Session, id: JobId) =>
  Effect.gen(function* () {
    const { rows } = yield* session.execute(Operate.lockOne(tables), [id])
    const row = rows[0]
    if (row === undefined) return yield* new JobNotFound({ jobId: id })
    const state = stateOf(row)
    switch (state) {
      case "pending":
        yield* session.execute(Operate.cancelPending(tables), [id])
        return { _tag: "canceled" } as const
      case "running":
        if (!isSet(row, "cancel_requested")) yield* session.execute(Operate.requestCancel(tables), [id])
        return { _tag: "requested" } as const
      default:
        return { _tag: "ended", state } as const
    }
  })

const retry = (tables: Tables, session: Session, id: JobId) =>
  Effect.gen(function* () {
    const { rows } = yield* session.execute(Operate.lockOne(tables), [id])
    const row = rows[0]
    if (row === undefined) return yield* new JobNotFound({ jobId: id })
    const { affected } = yield* session.execute(Operate.retryOne(tables), [id])
    if (affected === 0) return yield* new JobNotEnded({ jobId: id, state: stateOf(row) })
    return String(row["queue"])
  })

/** One step of a walk over the primary key: the rows that look as if something had to be done, and where to go on. */
const walk = (session: OwnSession, statement: string, limit: number) =>
  Effect.map(session.script([statement]), (answers) => {
    const rows = rowsOf(answers)
    const last = rows.at(-1)
    return {
      wanted: rows.filter((row) => isSet(row, "wanted")),
      next: last === undefined || rows.length < limit ? Option.none<string>() : Option.some<string>(idOf(last))
    }
  })

const retryAll = (tables: Tables, connections: Connections, filter: JobFilter, after: string, limit: number) => {
  // Kept where the answer to the commit is lost and it is done again: then there is nothing left to find.
  const queues = new Set<string>()
  return Transaction.run(connections, "retryAll", "again", (session) =>
    Effect.gen(function* () {
      const { next, wanted } = yield* walk(session, Read.walkRetryable(tables, filter, after, limit), limit)
      for (const row of wanted) queues.add(String(row["queue"]))
      const [answer] = wanted.length === 0 ? [] : yield* session.script([Operate.retryMany(tables, wanted.map(idOf))])
      return { next, retried: answer?.affected ?? 0, queues: Array.from(queues) }
    })
  )
}

const reap = (tables: Tables, connections: Connections, after: string, limit: number) =>
  Transaction.run(connections, "reap", "again", (session) =>
    Effect.gen(function* () {
      const { next, wanted } = yield* walk(session, Maintain.walkVanished(tables, after, limit), limit)
      if (wanted.length === 0) return { next, ended: [] }
      const [, locked] = yield* session.script(["START TRANSACTION", Maintain.lockVanished(tables, wanted.map(idOf))])
      const rows = locked?.rows ?? []
      yield* session.script([...(rows.length === 0 ? [] : [Maintain.endVanished(tables, rows.map(idOf))]), "COMMIT"])
      return {
        next,
        ended: rows.map(
          (row): EndedJob => ({
            id: idOf(row),
            queue: String(row["queue"]),
            type: String(row["type"]),
            state: isSet(row, "cancel_requested") ? "canceled" : "dead"
          })
        )
      }
    })
  )
