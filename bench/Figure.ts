/**
 * What can be measured: the name in JSON lines, and how a table shows it. In the order of the table's columns.
 */

const count = (value: number) => Math.round(value).toLocaleString("en-US")
const fixed = (digits: number) => (value: number) => value.toFixed(digits)

export const figures = {
  jobs_per_second: { title: "jobs/s", show: count },
  baseline_per_second: { title: "baseline/s", show: count },
  ratio: { title: "÷ baseline", show: fixed(2) },
  to_first: { title: "÷ first row", show: fixed(2) },
  p50_ms: { title: "p50 ms", show: fixed(1) },
  p99_ms: { title: "p99 ms", show: fixed(1) },
  statements_per_second: { title: "statements/s", show: fixed(1) },
  cpu_percent: { title: "CPU %", show: fixed(2) },
  statements_per_job: { title: "statements/job", show: fixed(3) },
  node_cpu_us_per_job: { title: "node µs/job", show: fixed(0) },
  mysqld_cpu_us_per_job: { title: "mysqld µs/job", show: fixed(0) },
  heap_mb: { title: "heap MiB", show: fixed(1) },
  heap_growth_mb: { title: "heap growth MiB", show: fixed(1) },
  lost: { title: "lost leases", show: fixed(0) }
} as const

export type FigureName = keyof typeof figures
export type Figures = { readonly [Name in FigureName]?: number }

export const names = Object.keys(figures) as ReadonlyArray<FigureName>

export const median = (values: ReadonlyArray<number>): number => {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length / 2
  return sorted.length % 2 === 1
    ? (sorted[Math.floor(middle)] ?? Number.NaN)
    : ((sorted[middle - 1] ?? Number.NaN) + (sorted[middle] ?? Number.NaN)) / 2
}

/** The smallest value that `share` of all values do not exceed. */
export const percentile = (values: ReadonlyArray<number>, share: number): number =>
  [...values].sort((a, b) => a - b)[Math.max(0, Math.ceil(values.length * share) - 1)] ?? Number.NaN

/** The median of each figure that all of the runs have. */
export const medians = (runs: ReadonlyArray<Figures>): Figures =>
  Object.fromEntries(
    names.flatMap((name) => {
      const values = runs.flatMap((run) => (run[name] === undefined ? [] : [run[name]]))
      return values.length === runs.length && values.length > 0 ? [[name, median(values)]] : []
    })
  )
