/**
 * What a torture came to, for people and for programs.
 */
import { countOf, percentile } from "./Auditor.js"
import type { Kind } from "./Checks.js"
import type { Report } from "./Torture.js"

/** The four that must be 0, and everything else that must hold. */
const kinds: ReadonlyArray<Kind> = ["lost", "double_owned", "double_terminal", "duplicate_effects", "other"]

/** Whether the library has kept all its promises. */
export const isGood = (report: Report): boolean => report.findings.length === 0 && report.crashes.length === 0

/** One line of JSON. */
export const line = (report: Report): string =>
  JSON.stringify({
    seed: report.seed,
    jobs: report.jobs,
    faults: report.faults,
    ...Object.fromEntries(kinds.slice(0, 4).map((kind) => [kind, countOf(report.findings, kind)])),
    recovery_p50_ms: percentile(report.recoveries, 0.5),
    recovery_p99_ms: percentile(report.recoveries, 0.99),
    other: countOf(report.findings, "other") + report.crashes.length
  })

const row = (name: string, value: string | number): string => `  ${name.padEnd(44)}${value}`

/** A table, and whatever was found. */
export const table = (report: Report): string =>
  [
    `Torture of ${report.seconds} seconds, seed ${report.seed}, MySQL ${report.version}`,
    "",
    row("jobs", report.jobs),
    row("claims", report.claims),
    row("succeeded, dead, canceled", Object.values(report.ended).join(", ")),
    row("writes by completeWith", report.effects),
    row("answers to callers", report.answers.length),
    row("late writes refused, of jobs still there", report.refusals),
    row("acts of handlers after a takeover", report.lateEvents),
    row("takeovers from killed workers", report.recoveries.length),
    row(
      "  milliseconds, median and 99 of 100",
      `${percentile(report.recoveries, 0.5)}, ${percentile(report.recoveries, 0.99)}`
    ),
    "",
    "Faults",
    ...Object.entries(report.faults)
      .sort(([a], [b]) => a.localeCompare(b))
      .map(([name, times]) => row(name, times)),
    "",
    "Verdict",
    ...kinds.map((kind) => row(kind, countOf(report.findings, kind))),
    row("processes that crashed", report.crashes.length),
    ...report.findings.flatMap(({ count, examples, finding, kind }) => [
      "",
      `FOUND (${kind}, ${count}): ${finding}`,
      ...examples.map((example) => `  ${example}`)
    ]),
    ...report.crashes.map((crash) => `\nCRASHED: ${crash}`)
  ].join("\n")
