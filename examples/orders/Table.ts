/**
 * The live table as text: a pure function from what there is to see to lines that fit the terminal.
 */
import { Duration, Option } from "effect"
import { isOpen, type Line } from "./Board.js"

export interface Frame {
  readonly title: string
  readonly lines: ReadonlyArray<Line>
  /** The id of this process's worker. */
  readonly worker: string
  /** What is going on, at the bottom. */
  readonly status: string
  /** The last warnings of the library. */
  readonly log: ReadonlyArray<string>
}

export interface Terminal {
  readonly columns: number
  readonly rows: number
  readonly colors: boolean
}

type Color = "dim" | "bold" | "red" | "green" | "yellow" | "cyan"

const codes: { readonly [C in Color]: number } = { dim: 2, bold: 1, red: 31, green: 32, yellow: 33, cyan: 36 }

const looks: { readonly [state in Line["state"]]: readonly [sign: string, color: Color] } = {
  pending: ["·", "dim"],
  running: ["▸", "yellow"],
  succeeded: ["✓", "green"],
  dead: ["✗", "red"],
  canceled: ["✗", "red"]
}

/** One piece of a line: text of a known width, and how it is coloured. */
type Cell = readonly [text: string, color?: Color]

/** The lines to draw: never more than fit, none wider than the terminal. */
export const render = (frame: Frame, terminal: Terminal): ReadonlyArray<string> => {
  const around = 7 + frame.log.length
  const shown = window(frame.lines, Math.max(1, terminal.rows - around))
  const rows: Array<ReadonlyArray<Cell>> = [
    [[frame.title, "bold"]],
    [],
    [
      ["  order  item              status      job  state       attempt  ", "dim"],
      ["error", "dim"]
    ],
    ...(shown.length === 0 ? [[["     nothing to do yet", "dim"]] as const] : []),
    ...shown.map((line) =>
      typeof line === "string" ? ([[`     ${line}`, "dim"]] as const) : rowOf(line, frame.worker)
    ),
    [],
    progress(frame.lines, Math.min(30, terminal.columns - 60)),
    [[`  ${frame.status}`, "dim"]],
    ...frame.log.map((text): ReadonlyArray<Cell> => [[`  ${text}`, "dim"]])
  ]
  return rows.map((row) => paint(row, terminal))
}

/** Where not all lines fit, those from the first order that is not done, so that what happens is in sight. */
const window = (lines: ReadonlyArray<Line>, room: number): ReadonlyArray<Line | string> => {
  if (lines.length <= room) return lines
  const inside = Math.max(1, room - 2)
  const firstOpen = lines.findIndex(isOpen)
  const start = Math.max(0, Math.min(firstOpen < 0 ? lines.length : firstOpen - 1, lines.length - inside))
  const above = lines.slice(0, start)
  const below = lines.length - start - inside
  return [
    start === 0
      ? ""
      : `↑ ${start} more, ${above.filter(({ orderStatus }) => orderStatus === "exported").length} exported`,
    ...lines.slice(start, start + inside),
    below <= 0 ? "" : `↓ ${below} more`
  ]
}

const rowOf = (line: Line, worker: string): ReadonlyArray<Cell> => {
  const [sign, color] = looks[line.state]
  return [
    [`  ${String(line.order).padStart(5)}  ${line.item.padEnd(16)}  `],
    [line.orderStatus.padEnd(8), line.orderStatus === "exported" ? "green" : "dim"],
    [`${line.job.padStart(7)}  `, "dim"],
    [`${sign} ${line.state.padEnd(9)}`, color],
    [`${line.attempt === 0 ? "" : line.attempt}`.padStart(8), line.attempt > 1 ? "cyan" : "dim"],
    ["  "],
    [
      noteOf(line, worker),
      isElsewhere(line, worker) ? "yellow" : line.state === "pending" || line.state === "dead" ? "red" : "dim"
    ]
  ]
}

const isElsewhere = (line: Line, worker: string): boolean => Option.exists(line.worker, (holder) => holder !== worker)

/** What the last column says: the trouble so far, and what an order that does not move is waiting for. */
const noteOf = (line: Line, worker: string): string => {
  const parts: Array<string> = []
  if (line.state === "pending" && Duration.toMillis(line.dueIn) > 50) parts.push(`again in ${seconds(line.dueIn)}`)
  if (isElsewhere(line, worker)) {
    parts.push(`held by another worker, lease ends in ${seconds(line.dueIn)}`)
  }
  return [...parts, ...Option.toArray(line.trouble)].join("; ")
}

const progress = (lines: ReadonlyArray<Line>, width: number): ReadonlyArray<Cell> => {
  const count = (state: Line["state"]) => lines.filter((line) => line.state === state).length
  const exported = lines.filter(({ orderStatus }) => orderStatus === "exported").length
  const filled = lines.length === 0 ? 0 : Math.round((Math.max(0, width) * exported) / lines.length)
  const lost = count("dead") + count("canceled")
  return [
    ["  "],
    ["━".repeat(filled), "green"],
    ["━".repeat(Math.max(0, width - filled)), "dim"],
    [`  ${exported} of ${lines.length} exported`],
    [`   ${count("running")} running   ${count("pending")} waiting`, "dim"],
    [lost === 0 ? "" : `   ${lost} dead`, "red"]
  ]
}

/** `3.2 s` */
export const seconds = (time: Duration.Duration): string => `${(Duration.toMillis(time) / 1_000).toFixed(1)} s`

const paint = (cells: ReadonlyArray<Cell>, { colors, columns }: Terminal): string => {
  let room = columns - 1
  let painted = ""
  for (const [text, color] of cells) {
    const cut = text.length <= room ? text : `${text.slice(0, Math.max(0, room - 1))}…`
    painted += color === undefined || !colors ? cut : `\u001b[${codes[color]}m${cut}\u001b[0m`
    room -= cut.length
    if (cut.length < text.length) break
  }
  return painted
}
