/**
 * Where the claims of one queue begin: for each priority level, the place of its first due job as it was last seen.
 *
 * A claim that starts at the head of the index walks over the delete-marked entries of all jobs that were taken before, and
 * while any transaction holds an old snapshot, purge cannot remove them: without this, throughput fell from 14.7k to 0.3k jobs
 * per second (SCHEMA). The price is that a job which was committed late, or returned with an older due time, may lie before
 * the mark. So some looks begin two seconds back, where nearly all late commits lie, and some at the very start. Both are
 * allowed a small share of the time: the dearer they are, the rarer.
 */
import type { JobId } from "../JobRecord.js"
import type { NewJob } from "../JobStore.js"
import type { Level, Position } from "./statements/claim.js"

/** Where a look begins: at the marks, two seconds before them where they are later than that, or at the start of each level. */
export type Reach = "near" | "back" | "full"

/** Milliseconds between two looks of one reach at the least. */
const shortestPause = 50
/** Milliseconds between two full looks at the most: so long a job that was committed late may wait, however dear they are. */
const longestPause = 60_000
/** The share of the time that looks back and cheap full ones may take is 1/20; full ones of more than 5 ms may take 1/100. */
const pauseAfter = { back: (cost: number) => 20 * cost, full: (cost: number) => (cost > 5 ? 100 : 20) * cost }

/** What one look or claim saw at a level. */
interface Mark {
  /** Whether a job was due there. */
  readonly live: boolean
  readonly from: Position | undefined
}

/** A job that this process has just added, due now. */
export interface AddedJob {
  readonly id: JobId
  readonly job: NewJob
  /** `performance.now()` when its commit was answered. */
  readonly at: number
}

export interface ClaimFront {
  /**
   * A job of this process was committed at that level, due now. Where nothing else is known to be due but such jobs, the next
   * claim goes for them without a look before, and is followed by one, whatever it leaves: so a lone job starts a round trip
   * earlier, and no look is left out.
   */
  readonly enqueued: (added: AddedJob) => void
  /** That job, where it is the only one: a claim can take it by its id, and save a round trip more. */
  readonly lone: () => AddedJob | undefined
  /**
   * A transaction of this process was committed, which may hold jobs due now, and which it began at `since`. Workers are told of
   * that once: so claims go on until a look has come after it. Where a mark was moved since it began, its jobs may lie before
   * the mark: then that look reaches back.
   */
  readonly committed: (since: number, now: number) => void
  /** Whether a job was enqueued or a transaction committed that no look has followed yet. */
  readonly owesLook: () => boolean
  /** Whether the marks promise due jobs, so that a claim needs no look before it. */
  readonly ready: (now: number) => boolean
  /** How far the next look reaches, and from where it looks at each of the ten levels. */
  readonly lookAt: (now: number) => { readonly reach: Reach; readonly levels: ReadonlyArray<Level> }
  /** The levels that a claim names: those with due jobs, from their marks. An empty level would cost a walk of its own. */
  readonly live: () => ReadonlyArray<Level>
  readonly looked: (look: {
    readonly reach: Reach
    readonly startedAt: number
    readonly endedAt: number
    readonly found: ReadonlyArray<readonly [priority: number, position: Position]>
    /** Two seconds before the look, by the database's clock. */
    readonly clock: Position
  }) => void
  /** What a claim locked, in order. `exhausted`: it got less than it asked for, so nothing more is due after it. */
  readonly claimed: (
    positions: ReadonlyArray<readonly [priority: number, position: Position]>,
    exhausted: boolean,
    startedAt: number,
    endedAt: number
  ) => void
  /** The claim did not happen: look again before the next one. */
  readonly forget: () => void
}

export const make = (): ClaimFront => {
  let marks: ReadonlyArray<Mark> = Array.from({ length: 10 }, () => ({ live: false, from: undefined }))
  let clock: Position | undefined
  let clockRead = Number.NEGATIVE_INFINITY
  let hint: "none" | "given" | "followed" = "none"
  let lone: AddedJob | undefined
  /** When the last transaction of this process was committed that no look has followed, and the last that may lie before a mark. */
  let unseen = Number.NEGATIVE_INFINITY
  let unseenBefore = Number.NEGATIVE_INFINITY
  /** When a mark was last moved to a job. */
  let movedAt = Number.NEGATIVE_INFINITY
  const moved = (startedAt: number, endedAt: number) => {
    movedAt = endedAt
    // What was committed meanwhile may not have been seen, and lie before that mark.
    if (unseen >= startedAt) unseenBefore = unseen
  }
  const budgets = { back: makeBudget("back"), full: makeBudget("full") }
  const mark = (priority: number, change: Mark) => {
    marks = marks.map((old, level) => (level === priority ? change : old))
  }
  const isLive = () => marks.some(({ live }) => live)
  return {
    enqueued: (added) => {
      const { priority } = added.job
      const from = marks[priority]?.from
      // From the start of a level such a claim could cost more than the look.
      if (from === undefined || hint === "followed" || (hint === "none" && isLive())) return
      lone = hint === "none" ? added : undefined
      hint = "given"
      mark(priority, { live: true, from })
    },
    lone: () => lone,
    committed: (since, now) => {
      unseen = now
      if (since <= movedAt) unseenBefore = now
    },
    owesLook: () => hint === "followed" || unseen !== Number.NEGATIVE_INFINITY,
    ready: (now) => isLive() && hint !== "followed" && (hint === "given" || !budgets.full.allows(now)),
    lookAt: (now) => {
      const isBackDue = unseenBefore !== Number.NEGATIVE_INFINITY || budgets.back.allows(now)
      const reach = budgets.full.allows(now) ? "full" : isBackDue ? "back" : "near"
      const begin = {
        near: (from: Mark["from"]) => from,
        back: (from: Mark["from"]) => earlier(from, clock),
        full: () => undefined
      }
      return { reach, levels: marks.map(({ from }, priority) => ({ priority, from: begin[reach](from) })) }
    },
    live: () => marks.flatMap(({ from, live }, priority) => (live ? [{ priority, from }] : [])),
    looked: ({ clock: seenAt, endedAt, found, reach, startedAt }) => {
      // Looks beside each other may be answered in another order. New jobs come before marks of a time that has not come again.
      const setBack = startedAt >= clockRead && clock !== undefined && isBefore(seenAt, clock)
      clock = seenAt
      clockRead = endedAt
      hint = "none"
      lone = undefined
      if (found.length > 0) moved(startedAt, endedAt)
      if (startedAt > unseen) unseen = Number.NEGATIVE_INFINITY
      if (startedAt > unseenBefore && reach !== "near") unseenBefore = Number.NEGATIVE_INFINITY
      // A full look is a look back, too.
      if (reach !== "near") budgets.back.spent(startedAt, endedAt)
      if (reach === "full") budgets.full.spent(startedAt, endedAt)
      const seen = new Map(found)
      marks = marks.map((old, priority) => {
        const position = seen.get(priority)
        if (position !== undefined) return { live: true, from: position }
        // Else only a look from the start says that nothing lies before the mark, which may then move back.
        return { live: false, from: setBack || reach === "full" || isBefore(old.from, seenAt) ? seenAt : old.from }
      })
    },
    claimed: (positions, exhausted, startedAt, endedAt) => {
      if (hint === "given") hint = "followed"
      lone = undefined
      if (positions.length > 0) moved(startedAt, endedAt)
      const levels = new Set(positions.map(([priority]) => priority))
      // The first row of a level, not the last: if this claim is rolled back, its rows are still behind the mark.
      for (const [priority, position] of [...positions].reverse()) mark(priority, { live: true, from: position })
      for (const [priority, { from, live }] of marks.entries()) {
        // Rows come by priority: a level before the last one that was reached is used up, and all are when the claim came short.
        const usedUp = exhausted || [...levels].some((reached) => reached > priority)
        if (live && usedUp) mark(priority, { live: false, from })
      }
    },
    forget: () => {
      hint = "none"
      lone = undefined
      unseen = Number.NEGATIVE_INFINITY
      marks = marks.map(({ from }) => ({ live: false, from }))
    }
  }
}

/** How often looks of one reach may happen, by what they cost: the smaller of the last two, since one can be slow by chance. */
const makeBudget = (reach: "back" | "full") => {
  let last = Number.NEGATIVE_INFINITY
  let costs: readonly [last: number, before: number] = [0, 0]
  return {
    allows: (now: number) =>
      now - last >= Math.min(longestPause, Math.max(shortestPause, pauseAfter[reach](Math.min(...costs)))),
    spent: (startedAt: number, endedAt: number) => {
      last = endedAt
      costs = [endedAt - startedAt, costs[0]]
    }
  }
}

const earlier = (a: Position | undefined, b: Position | undefined): Position | undefined =>
  a === undefined || b === undefined || isBefore(a, b) ? a : b

const isBefore = (a: Position | undefined, b: Position): boolean => a === undefined || a.dueAt < b.dueAt
