/**
 * Settle and renew: batches, locked rows, and what an answer that was lost has left behind. The statements are in
 * `statements/settle`.
 */
import { Duration, Effect, Option } from "effect"
import type { AttemptOutcome } from "../Attempt.js"
import type { Act, JobState } from "../JobRecord.js"
import { transition } from "../JobRecord.js"
import type { Renewal, Settlement, SettleVerdict } from "../JobStore.js"
import type { Lease } from "../Lease.js"
import type { StoreError } from "../QueueError.js"
import type { Connections } from "./Connections.js"
import * as Ends from "./Ends.js"
import { idOf, isSet, ledgerOf, numberOf, stateOf } from "./JobRow.js"
import type { MysqlFault } from "./MysqlFault.js"
import type { OwnSession, Row } from "./Session.js"
import * as Statements from "./statements/settle.js"
import type { Tables } from "./Tables.js"
import * as Transaction from "./Transaction.js"

type Item = readonly [Lease, Settlement]

/** An output above this many UTF-16 units travels alone, so that a large one does not delay its neighbours. */
const aloneAbove = 64 * 1024

/** Rows by id, as the batch's locked read or a plain read saw them. */
type Rows = ReadonlyMap<string, Row>

const byId = (rows: ReadonlyArray<Row>): Rows => new Map(rows.map((row) => [idOf(row), row]))

/** Whether the row is what the lease says: then the fenced write did happen to it. */
export const isHeld = (row: Row | undefined, lease: Lease): row is Row =>
  row !== undefined
  && stateOf(row) === "running"
  && Number(row["token"]) === lease.token
  && String(row["lease_owner"]) === lease.worker

/** Whether a statement has written all rows of a batch. */
const writesAll = (session: OwnSession, statement: string, rows: number): Effect.Effect<boolean, MysqlFault> =>
  Effect.map(session.script([statement]), ([answer]) => answer?.affected === rows)

/** Whether one statement has settled all of a batch just as it says. */
const settlesAll = (
  tables: Tables,
  session: OwnSession,
  batch: ReadonlyArray<Item>
): Effect.Effect<boolean, MysqlFault> => {
  const asText = () => writesAll(session, Statements.settle(tables, batch), batch.length)
  return Option.match(Statements.completeValues(batch), {
    onNone: asText,
    onSome: ({ size, values }) =>
      session.execute(Statements.complete(tables, size), values).pipe(
        Effect.map(({ affected }) => affected === batch.length),
        // A server that prepares no more (1461, 1615) still takes text; the settlement itself is not what it refuses.
        Effect.catchIf(({ kind }) => kind === "other", asText)
      )
  })
}

/**
 * Locks and writes a batch: in one packet where nobody else holds one of its rows, and past those that somebody holds in two.
 * `skipped`: the locked read may lack rows that exist.
 */
const lockAndWrite = (
  tables: Tables,
  session: OwnSession,
  leases: ReadonlyArray<Lease>,
  write: (held: ReadonlyArray<Lease>) => string
): Effect.Effect<{ readonly locked: Rows; readonly skipped: boolean }, MysqlFault> =>
  session.script(["START TRANSACTION", Statements.lockHeld(tables, leases, "NOWAIT"), write(leases), "COMMIT"]).pipe(
    Effect.map(([, locked]) => ({ locked: byId(locked?.rows ?? []), skipped: false })),
    Effect.catchIf(
      (fault) => fault.kind === "row_locked",
      () =>
        Effect.gen(function* () {
          const [, , answer] = yield* session.script([
            "ROLLBACK",
            "START TRANSACTION",
            Statements.lockHeld(tables, leases, "SKIP LOCKED")
          ])
          const locked = byId(answer?.rows ?? [])
          const held = leases.filter((lease) => isHeld(locked.get(lease.jobId), lease))
          yield* session.script([...(held.length === 0 ? [] : [write(held)]), "COMMIT"])
          return { locked, skipped: true }
        })
    )
  )

export const makeRenew =
  (tables: Tables, connections: Connections, statementTimeout: Duration.Duration) =>
  (leases: ReadonlyArray<Lease>, lease: Duration.Duration): Effect.Effect<ReadonlyArray<Renewal>, StoreError> => {
    if (leases.length === 0) return Effect.succeed([])
    return Transaction.run(
      connections,
      "renew",
      "again",
      (session) =>
        Effect.gen(function* () {
          if (yield* writesAll(session, Statements.renew(tables, leases, lease), leases.length)) {
            return leases.map((): Renewal => ({ _tag: "Renewed", cancelRequested: false }))
          }
          const { locked, skipped } = yield* lockAndWrite(tables, session, leases, (held) =>
            Statements.extend(tables, held, lease)
          )
          const missing = leases.filter(({ jobId }) => !locked.has(jobId))
          const read =
            skipped && missing.length > 0 ? yield* readRows(tables, session, missing) : new Map<string, Row>()
          return leases.map((held): Renewal => {
            const row = locked.get(held.jobId)
            if (isHeld(row, held)) return { _tag: "Renewed", cancelRequested: isSet(row, "cancel_requested") }
            const plain = read.get(held.jobId)
            if (row === undefined && isHeld(plain, held)) return { _tag: "Busy" }
            return { _tag: "Lost", reason: reasonOf(row ?? plain) }
          })
        }),
      // A renewal that takes longer than a third of the lease has missed its turn: the next one is due.
      Duration.min(statementTimeout, Duration.times(lease, 1 / 3))
    )
  }

const reasonOf = (row: Row | undefined) =>
  row !== undefined && stateOf(row) === "canceled" ? "canceled" : "superseded"

const readRows = (tables: Tables, session: OwnSession, leases: ReadonlyArray<Lease>): Effect.Effect<Rows, MysqlFault> =>
  Effect.map(session.script([Statements.readHeld(tables, leases)]), ([answer]) => byId(answer?.rows ?? []))

/** `packet`: bytes that one packet may have, the server's `max_allowed_packet`. */
export const makeSettle =
  (tables: Tables, connections: Connections, packet: number) =>
  (items: ReadonlyArray<Item>): Effect.Effect<ReadonlyArray<SettleVerdict>, StoreError> =>
    Effect.gen(function* () {
      const verdicts = new Map<Item, SettleVerdict>()
      for (const batch of cut(items, packet)) {
        const answers = yield* Transaction.run(connections, "settle", "again", (session) =>
          settleBatch(tables, session, batch)
        )
        for (const [index, item] of batch.entries()) verdicts.set(item, answers[index] ?? { _tag: "Unknown" })
      }
      return items.map((item) => verdicts.get(item) ?? { _tag: "Unknown" })
    })

/**
 * Batches that fit a quarter of a packet: text travels as hexadecimal digits, which doubles it. One job is at most once in a
 * batch: both would find the row held, and only one can be written.
 */
const cut = (items: ReadonlyArray<Item>, packet: number): ReadonlyArray<ReadonlyArray<Item>> => {
  const batches: Array<Array<Item>> = []
  let size = 0
  for (const item of items) {
    const own = sizeOf(item)
    const batch = batches.at(-1)
    const fits =
      batch !== undefined
      && own < aloneAbove
      && size + own < packet / 8
      && !batch.some(([lease]) => lease.jobId === item[0].jobId)
    if (fits) batch.push(item)
    else batches.push([item])
    size = own + (fits ? size : 0)
    if (own >= aloneAbove) size = packet
  }
  return batches
}

const sizeOf = ([, settlement]: Item): number =>
  200
  + (settlement._tag === "Complete" ? 3 * (settlement.output?.length ?? 0) : 0)
  + ("message" in settlement ? 3 * settlement.message.length : 0)

const settleBatch = (
  tables: Tables,
  session: OwnSession,
  batch: ReadonlyArray<Item>
): Effect.Effect<ReadonlyArray<SettleVerdict>, MysqlFault> =>
  Effect.gen(function* () {
    // A cancel is never as nearly all are.
    const usual = batch.every(([, settlement]) => settlement._tag !== "Cancel")
    if (usual && (yield* settlesAll(tables, session, batch))) {
      return batch.map(([, settlement]): SettleVerdict => ({ _tag: "Recorded", state: stateSaid(settlement) }))
    }
    const leases = batch.map(([lease]) => lease)
    const { locked } = yield* lockAndWrite(tables, session, leases, (held) =>
      Statements.writeSettlements(
        tables,
        held.length === batch.length ? batch : batch.filter(([lease]) => held.includes(lease))
      )
    )
    const refused = leases.filter((lease) => !isHeld(locked.get(lease.jobId), lease))
    const read = refused.length > 0 ? yield* readRows(tables, session, refused) : new Map<string, Row>()
    return batch.map(([lease, settlement]): SettleVerdict => {
      const row = locked.get(lease.jobId)
      return isHeld(row, lease)
        ? { _tag: "Recorded", state: stateAfter(row, settlement) }
        : readBack(read.get(lease.jobId), lease, settlement)
    })
  })

const acts = {
  Complete: "complete",
  RetryLater: "retryLater",
  Bury: "bury",
  Snooze: "snooze",
  Release: "release"
} as const satisfies { readonly [Tag in Exclude<Settlement["_tag"], "Cancel">]: Act }

const stateSaid = (settlement: Settlement): JobState => stateByOutcome[Ends.outcomeOf(settlement)]

/** The state that a settlement led to, by the table of transitions, on what the locked read saw. */
const stateAfter = (row: Row, settlement: Settlement): JobState =>
  settlement._tag === "Cancel"
    ? "canceled"
    : Option.match(
        transition(
          {
            state: "running",
            cancelRequested: isSet(row, "cancel_requested"),
            due: false,
            attemptsLeft: numberOf(row, "attempts_left")
          },
          acts[settlement._tag]
        ),
        { onNone: () => "running", onSome: ({ state }) => state }
      )

const stateByOutcome = {
  completed: "succeeded",
  retry: "pending",
  snoozed: "pending",
  released: "pending",
  dead: "dead",
  canceled: "canceled"
} as const satisfies { readonly [Outcome in AttemptOutcome]?: JobState }

/**
 * What became of a lease whose row no longer carries it (ruling 2). The ledger tells: each entry has its token, so my own
 * ending is recognised even where the job has been claimed again since.
 */
export const readBack = (row: Row | undefined, lease: Lease, settlement: Settlement): SettleVerdict => {
  if (row === undefined) return { _tag: "Unknown" }
  if (isHeld(row, lease)) return { _tag: "Busy" }
  const entry = ledgerOf(row).find(({ token }) => token === lease.token)
  if (entry === undefined) return { _tag: "Unknown" }
  // The database has forgotten what it had committed, and given the token out again.
  if (entry.worker !== lease.worker) return { _tag: "Lost", reason: reasonOf(row) }
  const outcome = Option.getOrUndefined(entry.outcome)
  if (outcome === undefined || outcome === "expired" || outcome === "reaped") {
    return { _tag: "Lost", reason: reasonOf(row) }
  }
  // A retry without budget is written as dead.
  const mine =
    outcome === Ends.outcomeOf(settlement)
    || outcome === "canceled"
    || (outcome === "dead" && settlement._tag === "RetryLater")
  return mine ? { _tag: "Recorded", state: stateByOutcome[outcome] } : { _tag: "AlreadySettled" }
}
