/**
 * The faults of a torture: which were armed, and which of them happened.
 *
 * They are not the same: a rule may never meet a statement that it waits for, a process may have ended before its signal, a
 * network that is cut may have no connection. A torture is worth as much as what happened.
 */
import { Clock, Effect } from "effect"

export interface Entry<Name extends string> {
  readonly fault: Name
  /** To whom: a place of the crew, the server, or the callers. */
  readonly place: string
  /** Milliseconds of the wall clock, as all times here. */
  readonly armedAt: number
  /** When it first did what it was for; undefined where it never did. */
  happenedAt: number | undefined
  /** When it was mended, or, for a rule, armed: from then on it waits for its statement. Undefined where the torture ended first. */
  overAt: number | undefined
}

export type Counts<Name extends string> = { readonly [Fault in Name]?: number }

export class Tally<Name extends string> {
  readonly entries: Array<Entry<Name>> = []

  /** One more that is armed. */
  arm(fault: Name, place: string): Effect.Effect<Entry<Name>> {
    return Effect.map(Clock.currentTimeMillis, (armedAt) => {
      const entry: Entry<Name> = { fault, place, armedAt, happenedAt: undefined, overAt: undefined }
      this.entries.push(entry)
      return entry
    })
  }

  get armed(): Counts<Name> {
    return countsOf(this.entries)
  }

  get happened(): Counts<Name> {
    return countsOf(this.entries.filter(({ happenedAt }) => happenedAt !== undefined))
  }
}

const countsOf = <Name extends string>(entries: ReadonlyArray<Entry<Name>>): Counts<Name> => {
  const counts: { [Fault in Name]?: number } = {}
  for (const { fault } of entries) counts[fault] = (counts[fault] ?? 0) + 1
  return counts
}

/** It did what it was for, once more or for the first time. */
export const happened = (entry: Entry<string>): void => {
  entry.happenedAt ??= Date.now()
}
