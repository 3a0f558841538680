/**
 * Draws kept results as bars: jobs per second of each system, one panel for each case.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { Either, Schema } from "effect"
import { own } from "./Runner.js"

const Row = Schema.Struct({
  case: Schema.String,
  variant: Schema.String,
  peer: Schema.String,
  jobs: Schema.Number,
  concurrency: Schema.Number,
  jobs_per_second: Schema.Number,
  verified: Schema.Boolean
})
type Row = typeof Row.Type

const Circumstances = Schema.Struct({
  date: Schema.String,
  leasehold: Schema.String,
  mysql: Schema.String,
  node: Schema.String,
  cores: Schema.Number
})
type Circumstances = typeof Circumstances.Type

/** What one run of a case has left in its file. */
export interface Kept {
  readonly circumstances: Circumstances
  readonly rows: ReadonlyArray<Row>
}

const panels: ReadonlyArray<{ readonly name: string; readonly title: string }> = [
  { name: "drain", title: "Jobs run per second by one worker process" },
  { name: "enqueue", title: "Single enqueues per second" },
  { name: "bulk", title: "Jobs enqueued in bulk per second" }
]

/** The latest results of each case that is drawn. */
export const latest = (folder: string): ReadonlyArray<Kept> =>
  panels.flatMap(({ name }) => {
    const files = existsSync(folder) ? readdirSync(folder).filter((file) => file.endsWith(`-${name}.jsonl`)) : []
    const file = files.sort().at(-1)
    const kept = file === undefined ? [] : [read(readFileSync(join(folder, file), "utf8"))]
    // One bar alone compares with nothing.
    return kept.filter(({ rows }) => rows.length > 1)
  })

const decodeRow = Schema.decodeEither(Schema.parseJson(Row))
const decodeCircumstances = Schema.decodeSync(Schema.parseJson(Circumstances))

const read = (text: string): Kept => {
  const [head = "", ...lines] = text.trim().split("\n")
  // A system that could not be measured has no rate, and no bar.
  const rows = lines.flatMap((line) => Either.match(decodeRow(line), { onLeft: () => [], onRight: (row) => [row] }))
  return { circumstances: decodeCircumstances(head), rows }
}

const width = 760
const nameWidth = 230
const barWidth = width - nameWidth - 110
const rowHeight = 24
const titleHeight = 40

const escape = (text: string) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`)

const text = (x: number, y: number, content: string, more = "") =>
  `<text x="${Math.round(x)}" y="${y}"${more === "" ? "" : ` ${more}`}>${escape(content)}</text>`

const panel = ({ rows }: Kept, top: number): string => {
  const sorted = [...rows].sort((a, b) => b.jobs_per_second - a.jobs_per_second)
  const most = sorted[0]?.jobs_per_second ?? 1
  const [first] = rows
  const title = panels.find(({ name }) => name === first?.case)?.title ?? ""
  const about =
    first === undefined ? "" : ` (up to ${first.jobs.toLocaleString("en-US")} jobs, concurrency ${first.concurrency})`
  const bars = sorted.map((row, index) => {
    const y = top + titleHeight + index * rowHeight
    const length = Math.max(1, (row.jobs_per_second / most) * barWidth)
    const rate = `${Math.round(row.jobs_per_second).toLocaleString("en-US")}${row.verified ? "" : " (rows not as they had to be)"}`
    return [
      text(nameWidth - 10, y + 15, nameOf(row), 'text-anchor="end"'),
      `<rect x="${nameWidth}" y="${y + 3}" width="${length.toFixed(1)}" height="${rowHeight - 8}" fill="${row.peer === own ? "#0b7285" : "#adb5bd"}"/>`,
      text(nameWidth + length + 6, y + 15, rate)
    ].join("\n")
  })
  return [text(10, top + 24, title + about, 'font-weight="bold"'), ...bars].join("\n")
}

const nameOf = ({ case: name, peer, variant }: Row) =>
  variant === name || variant.startsWith(peer) ? peer : `${peer}, ${variant}`

/** All panels below each other, and where they were measured. */
export const draw = (kept: ReadonlyArray<Kept>): string => {
  let top = 0
  const drawn = kept.map((one) => {
    const at = top
    top += titleHeight + one.rows.length * rowHeight
    return panel(one, at)
  })
  const [first] = kept
  const where =
    first === undefined
      ? ""
      : `Measured ${first.circumstances.date.slice(0, 10)}: Leasehold ${first.circumstances.leasehold}, MySQL ${first.circumstances.mysql}, Node ${first.circumstances.node}, ${first.circumstances.cores} cores for everything`
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${top + 34}" viewBox="0 0 ${width} ${top + 34}" font-family="system-ui, sans-serif" font-size="13" fill="#343a40">`,
    "<title>Jobs per second of Leasehold and of other job queues</title>",
    `<rect width="100%" height="100%" fill="#ffffff"/>`,
    ...drawn,
    text(10, top + 22, where, 'font-size="11" fill="#868e96"'),
    "</svg>\n"
  ].join("\n")
}
