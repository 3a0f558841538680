/**
 * Where the claims of one queue begin: for each priority level, the place of its first due job as it was last seen.
 *
 * A claim that starts at the head of the index walks over the delete-marked entries of all jobs that were taken before, and
 * while any transaction holds an old snapshot, purge cannot remove them: without this, throughput fell from 14.7k to 0.3k jobs
 * per second (SCHEMA). The price is that a job which was committed late, or returned with an older due time, may lie before
 * the mark; a full look finds it. Full looks are allowed a small share of the time, so the dearer one is, the rarer.
 */
import type { Level, Position } from "./statements/claim.js"

/** Milliseconds between two full looks at the least. */
const shortestPause = 50
/** Milliseconds between two full looks at the most: so long a job that was committed late may wait, however dear they are. */
const longestPause = 30_000
/** A full look may take this share of the time: 1/20 while it is cheap, 1/100 where it takes more than 5 ms. */
const pauseAfter = (cost: number): number =>
  Math.min(longestPause, Math.max(shortestPause, cost * (cost > 5 ? 100 : 20)))

/** What one look or claim saw at a level. */
interface Mark {
  /** Whether a job was due there. */
  readonly live: boolean
  readonly from: Position | undefined
}

export interface ClaimFront {
  /** Whether the marks promise due jobs, so that a claim needs no look before it. */
  readonly ready: (now: number) => boolean
  /** The levels to look at next: all ten from their start where a full look is due, else from their marks. */
  readonly lookAt: (now: number) => { readonly full: boolean; readonly levels: ReadonlyArray<Level> }
  /** The levels that a claim names: those with due jobs, from their marks. An empty level would cost a walk of its own. */
  readonly live: () => ReadonlyArray<Level>
  readonly looked: (look: {
    readonly full: boolean
    readonly startedAt: number
    readonly endedAt: number
    readonly found: ReadonlyArray<readonly [priority: number, position: Position]>
    /** Where a level that showed nothing begins next: a time before any transaction that may still commit, as a rule. */
    readonly clock: Position
  }) => void
  /** What a claim locked, in order. `exhausted`: it got less than it asked for, so nothing more is due after it. */
  readonly claimed: (
    positions: ReadonlyArray<readonly [priority: number, position: Position]>,
    exhausted: boolean
  ) => void
  /** The claim did not happen: look again before the next one. */
  readonly forget: () => void
}

export const make = (): ClaimFront => {
  let marks: ReadonlyArray<Mark> = Array.from({ length: 10 }, () => ({ live: false, from: undefined }))
  let lastFull = Number.NEGATIVE_INFINITY
  // What full looks cost here: the smaller of the last two, since one can be slow for reasons of its own.
  let costs: readonly [last: number, before: number] = [0, 0]

  const fullIsDue = (now: number) => now - lastFull >= pauseAfter(Math.min(...costs))
  const mark = (priority: number, change: Mark) => {
    marks = marks.map((old, level) => (level === priority ? change : old))
  }
  return {
    ready: (now) => marks.some(({ live }) => live) && !fullIsDue(now),
    lookAt: (now) => {
      const full = fullIsDue(now)
      return { full, levels: marks.map(({ from }, priority) => ({ priority, from: full ? undefined : from })) }
    },
    live: () => marks.flatMap(({ from, live }, priority) => (live ? [{ priority, from }] : [])),
    looked: ({ clock, endedAt, found, full, startedAt }) => {
      if (full) {
        lastFull = endedAt
        costs = [endedAt - startedAt, costs[0]]
      }
      const seen = new Map(found)
      marks = marks.map((old, priority) => {
        const position = seen.get(priority)
        if (position !== undefined) return { live: true, from: position }
        // A look from the mark says nothing of what lies before it, so the mark never moves back here.
        return { live: false, from: full || isBefore(old.from, clock) ? clock : old.from }
      })
    },
    claimed: (positions, exhausted) => {
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
      marks = marks.map(({ from }) => ({ live: false, from }))
    }
  }
}

const isBefore = (a: Position | undefined, b: Position): boolean => a === undefined || a.dueAt < b.dueAt
