/**
 * Does a few things very often, and shows that they leave nothing behind.
 */
import { Command } from "@effect/platform"
import { Effect } from "effect"
import { bundle } from "../support/Bundle.js"
import * as Counts from "./Counts.js"
import type { Phase, Report, Setup } from "./watchedMain.js"

/** Runs in a process of its own, since only there the collector can be asked and nothing else is counted. */
export const run = (setup: Setup) =>
  Command.make(
    process.execPath,
    "--expose-gc",
    "--disable-warning=ExperimentalWarning",
    bundle("test/soak/watchedMain.ts"),
    JSON.stringify(setup)
  ).pipe(
    Command.stderr("inherit"),
    Command.string,
    Effect.flatMap((output) => Effect.try(() => JSON.parse(output) as Report))
  )

/** What has grown, and in which phase. */
export const grown = (report: Report): ReadonlyArray<string> =>
  report.flatMap((phase) => phase.grown.map((counted) => `${counted} (${phase.phase})`))

const row = (name: string, cells: ReadonlyArray<string | number>): string =>
  `  ${name.padEnd(14)}${cells.map((cell) => String(cell).padStart(11)).join("")}`

const rowsOf = ({ after, before, phase, seconds, statements, times }: Phase): ReadonlyArray<string> => [
  `  ${times} ${phase}, ${seconds} s, ${statements} statements of the sessions that are still open`,
  ...(
    [
      ["before", before],
      ["after", after]
    ] as const
  ).map(([when, counts]) =>
    row(
      `  ${when}`,
      Counts.kinds.map((kind) => counts[kind])
    )
  )
]

/** For people: what was there before and after each phase, and the verdict. */
export const table = (report: Report): string =>
  [
    row("", Counts.kinds),
    ...report.flatMap(rowsOf),
    row(
      "may grow by",
      Counts.kinds.map((kind) => Counts.bounds[kind])
    ),
    "",
    grown(report).length === 0 ? "Flat." : `GROWN: ${grown(report).join(", ")}`
  ].join("\n")

/** For programs: one line of JSON. */
export const line = (report: Report): string => JSON.stringify({ grown: grown(report), phases: report })
