/**
 * What a torture came to, for people and for programs.
 */
import { countOf, percentile } from "./Auditor.js"
import type { Kind } from "./Checks.js"
import type { Report } from "./Torture.js"

/** The four that must be 0, and everything else that must hold. */
const kinds: ReadonlyArray<Kind> = ["lost", "double_owned", "double_terminal", "duplicate_effects", "other"]

/** One line of JSON. */
export const line = (report: Report): string =>
  JSON.stringify({
    seed: report.seed,
    jobs: report.jobs,
    faults: report.happened,
    armed: report.armed,
    ...Object.fromEntries(kinds.slice(0, 4).map((kind) => [kind, countOf(report.findings, kind)])),
    recovery_p50_ms: percentile(report.recoveries.watched, 0.5),
    recovery_p99_ms: percentile(report.recoveries.watched, 0.99),
    recovery_fit_p50_ms: percentile(report.recoveries.fit, 0.5),
    recovery_fit_p99_ms: percentile(report.recoveries.fit, 0.99),
    recovery_others_p50_ms: percentile(report.recoveries.others, 0.5),
    recovery_others_p99_ms: percentile(report.recoveries.others, 0.99),
    other: countOf(report.findings, "other") + report.crashes.length
  })

const row = (name: string, value: string | number): string => `  ${name.padEnd(44)}${value}`

const recovery = (name: string, sorted: ReadonlyArray<number>): string =>
  row(name, `${sorted.length}; ${percentile(sorted, 0.5)}, ${percentile(sorted, 0.99)}, ${percentile(sorted, 1)}`)

const names = (armed: Report["armed"]) =>
  (Object.keys(armed) as Array<keyof Report["armed"]>).sort((a, b) => a.localeCompare(b))

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
    "",
    row("Takeovers from killed workers", "how many; milliseconds: median, 99 of 100, longest"),
    recovery("watched jobs, from the kill", report.recoveries.watched),
    recovery("  while a worker was fit to take them", report.recoveries.fit),
    recovery("others, with a backlog before them", report.recoveries.others),
    "",
    row("Faults", "happened, of those that were armed"),
    ...names(report.armed).map((name) => row(name, `${report.happened[name] ?? 0} of ${report.armed[name] ?? 0}`)),
    "",
    "Verdict",
    ...kinds.map((kind) => row(kind, countOf(report.findings, kind))),
    row("processes that crashed", report.crashes.length),
    ...report.findings.flatMap(({ count, examples, finding, kind }) => [
      "",
      `FOUND (${kind}, ${count}): ${finding}`,
      ...examples.map((example) => `  ${example}`)
    ]),
    ...report.crashes.map((crash) => `\nCRASHED: ${crash}`),
    ...(report.evidence === undefined ? [] : ["", `All records are kept in ${report.evidence}`])
  ].join("\n")
