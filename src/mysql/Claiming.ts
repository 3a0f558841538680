/**
 * The claim: look, lock, take. Transaction boundaries and verdicts; the statements are in `statements/claim`.
 */
import { Effect, Option } from "effect"
import { transition } from "../JobRecord.js"
import type { Claimed, ClaimRequest, EndedJob, Enqueued, NewJob } from "../JobStore.js"
import type { StoreError } from "../QueueError.js"
import * as ClaimFront from "./ClaimFront.js"
import type { Connections } from "./Connections.js"
import { idOf, isSet, LockedJob, numberOf, stateOf } from "./JobRow.js"
import * as LoneClaim from "./LoneClaim.js"
import type { MysqlFault } from "./MysqlFault.js"
import type { OwnSession, Row } from "./Session.js"
import * as Statements from "./statements/claim.js"
import { endVanished } from "./statements/maintain.js"
import type { Tables } from "./Tables.js"
import * as Transaction from "./Transaction.js"

const nothing: Claimed = { jobs: [], ended: [], more: false }

/** One front for each set of types that is claimed from a queue: marks hold for what the look was asked for only. */
export type Fronts = Map<string, Pick<ClaimRequest, "queue" | "types"> & { readonly front: ClaimFront.ClaimFront }>

export const make = (tables: Tables, connections: Connections, fronts: Fronts) => {
  const frontOf = ({ queue, types }: ClaimRequest) => {
    const key = JSON.stringify([queue, types])
    const { front } = fronts.get(key) ?? { front: ClaimFront.make() }
    fronts.set(key, { queue, types, front })
    return front
  }

  return (request: ClaimRequest): Effect.Effect<Claimed, StoreError> =>
    Effect.suspend(() => {
      if (request.types.length === 0) return Effect.succeed(nothing)
      const front = frontOf(request)
      return Transaction.run(connections, "claim", "unavailable", (session) => {
        const once = Effect.flatMap(ensureReady(tables, request, front, session), (ready) =>
          ready ? take(tables, request, front, session) : Effect.succeed(nothing)
        )
        // Where the job that it went for is gone, others may be due all the same.
        return Effect.flatMap(once, (claimed) =>
          claimed.jobs.length + claimed.ended.length === 0 && front.owesLook() ? once : Effect.succeed(claimed)
        )
      }).pipe(Effect.tapError(() => Effect.sync(front.forget)))
    })
}

/**
 * Tells the claims of this process what it has committed, each of what it may take: a claim locks whatever it passes by. `since`:
 * when the enqueue was asked for.
 */
export const noteEnqueued = (
  fronts: Fronts,
  jobs: ReadonlyArray<NewJob>,
  enqueued: ReadonlyArray<Enqueued>,
  since: number
): void => {
  const now = performance.now()
  for (const { front, queue, types } of fronts.values()) {
    const isOfThese = (job: NewJob) =>
      types.some(({ type, version }) => job.type === type && job.payloadVersion <= version)
    for (const [index, job] of jobs.entries()) {
      const { created, id } = enqueued[index] ?? { created: false }
      if (created && job.queue === queue && Option.isNone(job.due) && isOfThese(job)) {
        front.committed(since, now)
        front.enqueued({ id, job, at: now })
      }
    }
  }
}

/** Tells the claims of this process that it has committed a transaction, which began at `since` and may hold jobs of any queue. */
export const noteCommitted = (fronts: Fronts, since: number): void => {
  const now = performance.now()
  for (const { front } of fronts.values()) front.committed(since, now)
}

/** Whether there is something to claim: by what is known already, or by one plain read (ruling 13). */
const ensureReady = (
  tables: Tables,
  request: ClaimRequest,
  front: ClaimFront.ClaimFront,
  session: OwnSession
): Effect.Effect<boolean, MysqlFault> =>
  Effect.suspend(() => {
    const startedAt = performance.now()
    if (front.ready(startedAt)) return Effect.succeed(true)
    const { levels, reach } = front.lookAt(startedAt)
    return Effect.gen(function* () {
      const [answer] = yield* session.script([Statements.look(tables, request, levels)])
      const rows = answer?.rows ?? []
      const found = rows.map((row) => [Number(row["priority"]), positionOf(row)] as const)
      const clock = found.find(([priority]) => priority === Statements.clockRow)
      const paused = found.some(([priority]) => priority === Statements.pausedRow)
      // A primary that became a replica answers looks as ever, and may get no new jobs any more: an idle worker that went on to
      // look at it would seem well (scenario F3).
      if (found.some(([priority]) => priority === Statements.readOnlyRow)) {
        yield* session.script([Statements.tryWrite(tables)])
      }
      if (paused || clock === undefined) {
        front.forget()
        return false
      }
      front.looked({
        reach,
        startedAt,
        endedAt: performance.now(),
        found: found.filter(([priority]) => priority <= 9),
        clock: clock[1]
      })
      return front.live().length > 0
    })
  })

const positionOf = (row: Row): Statements.Position => ({ dueAt: String(row["due_at"]), id: String(row["id"]) })

const take = (
  tables: Tables,
  request: ClaimRequest,
  front: ClaimFront.ClaimFront,
  session: OwnSession
): Effect.Effect<Claimed, MysqlFault> => {
  const lone = front.lone()
  if (lone === undefined) return lockAndTake(tables, request, front, session)
  const startedAt = performance.now()
  return Effect.map(LoneClaim.take(tables, request, session, lone), (jobs): Claimed => {
    front.claimed([], true, startedAt, performance.now())
    return { jobs, ended: [], more: front.owesLook() }
  })
}

/**
 * Two packets: lock, then take and commit. A failure between them, or a lost answer to the first, leaves nothing; a lost answer
 * to the commit may leave jobs leased to nobody who knows, and they are taken over when the leases end.
 */
const lockAndTake = (
  tables: Tables,
  request: ClaimRequest,
  front: ClaimFront.ClaimFront,
  session: OwnSession
): Effect.Effect<Claimed, MysqlFault> =>
  Effect.gen(function* () {
    const startedAt = performance.now()
    const levels = front.live()
    const [, paused, locked] = yield* session.script([
      "START TRANSACTION",
      Statements.paused(tables, request.queue),
      Statements.lock(tables, request, levels)
    ])
    const rows = locked?.rows ?? []
    if ((paused?.rows.length ?? 0) > 0 || rows.length === 0) {
      yield* session.script(["ROLLBACK"])
      if (rows.length === 0) front.claimed([], true, startedAt, performance.now())
      else front.forget()
      return { ...nothing, more: front.owesLook() }
    }
    // The statement locks only what is due, so `due` is true; the table of transitions decides between running and ending.
    const vanished = rows.filter(
      (row) =>
        transition(
          {
            state: stateOf(row),
            cancelRequested: isSet(row, "cancel_requested"),
            due: true,
            attemptsLeft: numberOf(row, "attempts_left")
          },
          "reap"
        )._tag === "Some"
    )
    const taken = rows.filter((row) => !vanished.includes(row))
    yield* session.script([
      ...(taken.length === 0
        ? []
        : [
            Statements.take(
              tables,
              request,
              taken.map(idOf),
              taken.some((row) => stateOf(row) === "running")
            )
          ]),
      ...(vanished.length === 0 ? [] : [endVanished(tables, vanished.map(idOf))]),
      "COMMIT"
    ])
    const exhausted = rows.length < request.limit
    front.claimed(
      rows.map((row) => [Number(row["priority"]), positionOf(row)]),
      exhausted,
      startedAt,
      performance.now()
    )
    return {
      jobs: taken.map((row) => new LockedJob(row, request.queue, request.worker)),
      ended: vanished.map(
        (row): EndedJob => ({
          id: idOf(row),
          queue: request.queue,
          type: String(row["type"]),
          state: isSet(row, "cancel_requested") ? "canceled" : "dead"
        })
      ),
      more: !exhausted || front.owesLook()
    }
  })
