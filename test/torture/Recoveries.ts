/**
 * How long the jobs of killed workers waited for another one.
 *
 * What is counted is the time from a kill until another worker takes a job that the killed one held. Of ordinary jobs it says
 * more about the torture than about the library: they come back into a queue where hundreds are due before them. So the figure
 * is that of the watched jobs, which are so few that each finds a free slot and nobody in front of it.
 *
 * A torture breaks the survivors too, and the server. `fit` leaves out the time in which nothing could have been taken over:
 * while the server was down or read-only, or while no worker was alive, running, and reached the server.
 */
import { Effect } from "effect"
import type { Query } from "./Records.js"

export interface Recoveries {
  /** Milliseconds from the kill to the takeover of each watched job, in order. */
  readonly watched: ReadonlyArray<number>
  /** The same without the time in which nothing could be taken over, in order. */
  readonly fit: ReadonlyArray<number>
  /** Milliseconds from the kill to the takeover of every other job, in order. */
  readonly others: ReadonlyArray<number>
}

/** From, until; microseconds since 1970. */
export type Span = readonly [from: number, until: number]

/** Those times of the first that lie in one of the second, too. */
export const both = (first: ReadonlyArray<Span>, second: ReadonlyArray<Span>): ReadonlyArray<Span> =>
  first.flatMap(([from, until]) =>
    second
      .map(([start, end]): Span => [Math.max(from, start), Math.min(until, end)])
      .filter(([start, end]) => start < end)
  )

/** The times that lie in any of them, in order, none twice. */
export const either = (spans: ReadonlyArray<Span>): ReadonlyArray<Span> => {
  const merged: Array<[number, number]> = []
  for (const [from, until] of [...spans].sort(([a], [b]) => a - b)) {
    const last = merged[merged.length - 1]
    if (last !== undefined && from <= last[1]) last[1] = Math.max(last[1], until)
    else if (from < until) merged.push([from, until])
  }
  return merged
}

const lengthOf = (spans: ReadonlyArray<Span>): number => spans.reduce((sum, [from, until]) => sum + until - from, 0)

/** The whole of a span but for the times that lie in one of these, which are in order and apart. */
export const without = ([from, until]: Span, spans: ReadonlyArray<Span>): ReadonlyArray<Span> => {
  const edges = [from, ...both([[from, until]], spans).flat(), until]
  const left: Array<Span> = []
  for (let index = 0; index < edges.length; index += 2) {
    const [start = from, end = from] = [edges[index], edges[index + 1]]
    if (start < end) left.push([start, end])
  }
  return left
}

/** While each of these lasts, its worker reaches nobody or does nothing; a process that is told to stop takes no more jobs. */
const unfitting = "'suspend', 'black_hole', 'down', 'full'"

const micros = (column: string, name: string) => `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ${column}) AS ${name}`

/** The times in which something could be taken over, by what the records say of processes, networks and the server. */
const fitTimes = (query: Query): Effect.Effect<ReadonlyArray<Span>> =>
  Effect.gen(function* () {
    const spans = (rows: ReadonlyArray<Record<string, unknown>>): ReadonlyArray<Span> =>
      rows.map((row) => [Number(row["start"]), Number(row["end"])])
    const away = yield* query(
      `SELECT ${micros("armed_at", "start")}, ${micros("over_at", "end")} FROM audit_faults
        WHERE fault IN ('restart', 'crash', 'read_only')`
    )
    const lives = yield* query(
      `SELECT SUBSTRING_INDEX(worker, '.', 1) AS place, ${micros("ready_at", "start")},
        ${micros("LEAST(ended_at, COALESCE(stopped_at, ended_at))", "end")} FROM audit_lives WHERE ready_at IS NOT NULL`
    )
    const broken = yield* query(
      `SELECT place, ${micros("armed_at", "start")}, ${micros("over_at", "end")} FROM audit_faults
        WHERE fault IN (${unfitting})`
    )
    const places = Array.from(new Set(lives.map((row) => String(row["place"]))))
    const of = (place: string, rows: ReadonlyArray<Record<string, unknown>>) =>
      spans(rows.filter((row) => String(row["place"]) === place))
    const fit = places.flatMap((place) => {
      const unfit = either(of(place, broken))
      return of(place, lives).flatMap((life) => without(life, unfit))
    })
    const serverAway = either(spans(away))
    return either(fit).flatMap((span) => without(span, serverAway))
  })

/** For each job that a killed worker held until another one took it. */
const waits = `SELECT held.type, ${micros("kills.at", "start")}, ${micros("taken.at", "end")} FROM audit_kills AS kills
  JOIN audit_changes AS held ON held.owner = kills.worker AND held.act = 'update' AND held.new_state = 1
    AND held.new_token <> held.old_token
  JOIN audit_changes AS taken ON taken.job_id = held.job_id AND taken.old_token = held.new_token AND taken.old_state = 1
    AND taken.new_token = held.new_token + 1 AND taken.new_state = 1
  WHERE taken.at >= kills.at`

export const read = (query: Query): Effect.Effect<Recoveries> =>
  Effect.gen(function* () {
    const fitSpans = yield* fitTimes(query)
    const rows = (yield* query(waits)).map((row) => ({
      isWatched: row["type"] === "torture.watched",
      span: [Number(row["start"]), Number(row["end"])] as const
    }))
    const millis = (spans: ReadonlyArray<Span>) => lengthOf(spans) / 1_000
    const sorted = (lengths: ReadonlyArray<number>) => [...lengths].sort((a, b) => a - b)
    const watched = rows.filter(({ isWatched }) => isWatched)
    return {
      watched: sorted(watched.map(({ span }) => millis([span]))),
      fit: sorted(watched.map(({ span }) => millis(both([span], fitSpans)))),
      others: sorted(rows.filter(({ isWatched }) => !isWatched).map(({ span }) => millis([span])))
    }
  })
