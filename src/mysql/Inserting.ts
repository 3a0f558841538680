/**
 * The rows of an enqueue: in which statements they go in, and which ids they get. The statements are in `statements/enqueue`.
 */
import { Effect, Option } from "effect"
import { JobId } from "../JobRecord.js"
import type { Enqueued, NewJob } from "../JobStore.js"
import type { MysqlFault } from "./MysqlFault.js"
import type { Answer, OwnSession, Session } from "./Session.js"
import * as Statements from "./statements/enqueue.js"
import type { Tables } from "./Tables.js"

/** Where and how the rows go in. */
export interface Target {
  readonly tables: Tables
  readonly session: Session
  readonly packet: number
  /** Whether the session is the library's own, with the settings that it pins. */
  readonly own: boolean
  /** Whether rows were written. */
  readonly progress: { begun: boolean }
}

/** Inserts jobs that are due now and have no key in one statement, its own transaction. */
export const insertTogether = (
  tables: Tables,
  session: OwnSession,
  jobs: ReadonlyArray<NewJob>
): Effect.Effect<ReadonlyArray<Enqueued>, MysqlFault> =>
  Effect.gen(function* () {
    const insert = Statements.insertTogether(tables, jobs)
    const [inserted, steps] = yield* session.script(jobs.length === 1 ? [insert] : [insert, Statements.idStep])
    const first = yield* exactId(session, inserted?.insertId ?? "0")
    return idsFrom(first, stepOf(steps), jobs.length).map((id) => ({ id, created: true }))
  })

/**
 * Inserts jobs in few statements, in their order; adds the answers of each to `inserted`, so that those of the first are known where a
 * later one fails. Ids of one statement follow each other by the session's step.
 */
export const insertAll = (
  target: Target,
  jobs: ReadonlyArray<NewJob>,
  inserted: Array<Enqueued>
): Effect.Effect<void, MysqlFault> =>
  Effect.gen(function* () {
    const { progress, session } = target
    const step = jobs.length > 1 ? yield* idStep(session) : 1n
    const common = target.own && jobs.length > 1 ? Statements.commonOf(jobs) : Option.none<Statements.Common>()
    const trace = Option.flatMapNullable(common, (shared) => shared.trace)
    if (Option.isSome(trace)) yield* session.command(Statements.setTrace(trace.value))
    const parts = Option.isSome(common) ? insertAlike(target, jobs, common.value) : insertAny(target, jobs)
    for (const [part, insert] of parts) {
      const { insertId } = yield* insert
      progress.begun = true
      const ids = idsFrom(yield* exactId(session, insertId), step, part.length)
      for (const id of ids) inserted.push({ id, created: true })
    }
  })

/** The statements of an insert, each with its jobs. */
type Parts = ReadonlyArray<readonly [part: ReadonlyArray<NewJob>, insert: Effect.Effect<Answer, MysqlFault>]>

const insertAny = ({ packet, session, tables }: Target, jobs: ReadonlyArray<NewJob>): Parts =>
  chunks(jobs, Statements.rowSizes, { weigh: weighHex, limit: packet / 2 }).map(([size, part]) => [
    part,
    Effect.suspend(() => {
      const due = Statements.dueOf(part)
      return session.execute(
        Statements.insert(tables, size, due),
        part.flatMap((job) => Statements.insertValues(job, due))
      )
    })
  ])

/** The session knows the trace context that the jobs have in common. */
const insertAlike = (
  { packet, session, tables }: Target,
  jobs: ReadonlyArray<NewJob>,
  common: Statements.Common
): Parts =>
  chunks(jobs, Statements.alikeSizes, { weigh: weighPlain, limit: packet / 2 }).map(([size, part]) => [
    part,
    Effect.suspend(() =>
      session.execute(
        Statements.insertAlike(tables, size, common),
        part.map(({ payload }) => payload)
      )
    )
  ])

/** A driver that was not told to keep large numbers exact has rounded an id from 2^53 on; the server still knows it. */
const exactId = (session: Session, insertId: string): Effect.Effect<string, MysqlFault> =>
  Number(insertId) < Number.MAX_SAFE_INTEGER
    ? Effect.succeed(insertId)
    : Effect.map(session.execute(Statements.lastInsertId, []), ({ rows }) => String(rows[0]?.["id"]))

/** Ids that follow each other. */
const idsFrom = (first: string, step: bigint, count: number): ReadonlyArray<JobId> => {
  const start = BigInt(first)
  const exact = start + step * BigInt(count) < Number.MAX_SAFE_INTEGER
  const idAt = exact
    ? (index: number) => String(Number(start) + Number(step) * index)
    : (index: number) => String(start + step * BigInt(index))
  return Array.from({ length: count }, (_, index) => JobId.make(idAt(index), { disableValidation: true }))
}

const idStep = (session: Session): Effect.Effect<bigint, MysqlFault> =>
  Effect.map(session.execute(Statements.idStep, []), stepOf)

const stepOf = (answer: Answer | undefined): bigint => BigInt(String(answer?.rows[0]?.["step"] ?? 1))

/** Bytes of a row in the packet, at the most: three of UTF-8 for a UTF-16 unit. */
const weighPlain = (job: NewJob): number => 1_000 + 3 * (job.payload?.length ?? 0)

/** The same where each is two hexadecimal digits. */
const weighHex = (job: NewJob): number => 1_000 + 6 * (job.payload?.length ?? 0)

/** Cuts a list into parts of exactly the given sizes (the last of which is 1), the largest that weighs no more than the limit. */
const chunks = <A>(
  items: ReadonlyArray<A>,
  sizes: ReadonlyArray<number>,
  weight: { readonly weigh: (item: A) => number; readonly limit: number }
): ReadonlyArray<readonly [size: number, part: ReadonlyArray<A>]> => {
  const parts: Array<readonly [number, ReadonlyArray<A>]> = []
  for (let start = 0; start < items.length; ) {
    const size =
      sizes.find(
        (candidate) =>
          start + candidate <= items.length
          && items.slice(start, start + candidate).reduce((sum, item) => sum + weight.weigh(item), 0) <= weight.limit
      ) ?? 1
    parts.push([size, items.slice(start, start + size)])
    start += size
  }
  return parts
}
