/**
 * Whether a rehearsal found a handler whose effects are the same after a fault as after none.
 */
import { inspect } from "node:util"
import type { Report } from "../Rehearsal.js"
import type { Verdict } from "./Verdict.js"

/** How a report is told. */
export interface IdempotentOptions {
  /** Whether the message of an assertion that fails shows what was observed. Default false: it may hold payloads. */
  readonly showObserved?: boolean
}

const print = (value: unknown): string => inspect(value, { depth: 8, breakLength: 100 })

export const idempotent = (
  { clean, failures, points }: Report<unknown>,
  { showObserved = false }: IdempotentOptions
): Verdict => ({
  pass: failures.length === 0,
  message: () => {
    const [first] = failures
    if (first === undefined) {
      return `expected a fault at one of ${points} points to leave another world than none, but all left the same`
    }
    const places = ranges(failures.map(({ point }) => point))
    const observed = showObserved
      ? [
          `without a fault: ${print(clean)}`,
          `at point ${first.point}, when it stopped: ${print(first.left)}`,
          `at point ${first.point}, when the job had ended: ${print(first.observed)}`
        ]
      : ["what was observed is told by toBeIdempotent({ showObserved: true })"]
    return [
      `expected a fault at any of ${points} points to leave the same world as none, but ${failures.length} left another:`,
      `after ${failures.length === 1 ? "point" : "points"} ${places}; the job ended ${ends(failures.map(({ state }) => state))}`,
      ...observed
    ].join("\n  ")
  }
})

/** As `3, 7-9`. */
const ranges = (points: ReadonlyArray<number>): string => {
  const runs: Array<{ readonly from: number; to: number }> = []
  for (const point of points) {
    const last = runs.at(-1)
    if (last !== undefined && last.to === point - 1) last.to = point
    else runs.push({ from: point, to: point })
  }
  return runs.map(({ from, to }) => (from === to ? `${from}` : `${from}-${to}`)).join(", ")
}

const ends = (states: ReadonlyArray<string>): string => {
  const counts = new Map<string, number>()
  for (const state of states) counts.set(state, (counts.get(state) ?? 0) + 1)
  const [only, ...others] = counts
  if (only !== undefined && others.length === 0) return only[0]
  return Array.from(counts, ([state, count]) => `${state} ${count} ${count === 1 ? "time" : "times"}`).join(", ")
}
