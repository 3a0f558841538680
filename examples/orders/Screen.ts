/**
 * Where the demo shows what happens: a table that is redrawn in place, plain lines for a pipe, or nothing but the end for
 * `--json`. The library's logs go where they do not tear it.
 */
import { Context, Effect, HashMap, Layer, Logger, LogLevel, Option } from "effect"
import type { Line } from "./Board.js"
import * as Table from "./Table.js"

export class Screen extends Context.Tag("demo/Screen")<
  Screen,
  {
    /** Shows how the orders stand now. */
    readonly show: (frame: Frame) => Effect.Effect<void>
    /** Says something to the person who watches, below everything that was shown. */
    readonly say: (text: string) => Effect.Effect<void>
    /** Shows how they stood at the end: with `--json`, the only thing that is shown. */
    readonly end: (frame: Frame) => Effect.Effect<void>
  }
>() {}

type Frame = Omit<Table.Frame, "log">

export type Kind = "table" | "lines" | "json"

export const layer = (kind: Kind): Layer.Layer<Screen> => {
  switch (kind) {
    case "table":
      return table
    case "lines":
      return Layer.merge(Layer.sync(Screen, plainLines), logsTo(LogLevel.Warning, toStderr))
    case "json":
      return Layer.merge(Layer.succeed(Screen, json), logsTo(LogLevel.Error, toStderr))
  }
}

const print = (text: string) => Effect.sync(() => void process.stdout.write(`${text}\n`))

const toStderr = (text: string) => void process.stderr.write(`${text}\n`)

const json: Screen["Type"] = {
  show: () => Effect.void,
  say: (text) => Effect.sync(() => toStderr(text)),
  end: ({ lines }) =>
    Effect.forEach(
      lines,
      ({ attempt, job, order, orderStatus, state }) =>
        print(JSON.stringify({ order, job, order_status: orderStatus, state, attempt })),
      { discard: true }
    )
}

/** One line for each change of an order or its job. */
const plainLines = (): Screen["Type"] => {
  const shown = new Map<number, string>()
  const textOf = ({ attempt, item, job, order, orderStatus, state, trouble }: Line): string =>
    [
      `order ${order}`,
      item,
      orderStatus,
      `job ${job} ${state}`,
      ...(attempt === 0 ? [] : [`attempt ${attempt}`]),
      ...Option.toArray(trouble)
    ].join("  ")
  const show = ({ lines }: Frame) =>
    Effect.sync(() => {
      for (const line of lines) {
        const text = textOf(line)
        if (shown.get(line.order) === text) continue
        shown.set(line.order, text)
        process.stdout.write(`${text}\n`)
      }
    })
  return { show, say: print, end: (frame) => Effect.zipRight(show(frame), print(frame.status)) }
}

const hideCursor = "\u001b[?25l"
const showCursor = "\u001b[?25h"
const keptLogs = 3

const table: Layer.Layer<Screen> = Layer.unwrapScoped(
  Effect.gen(function* () {
    const { stdout } = process
    const log: Array<string> = []
    // How many lines stand on the screen, above the cursor, that the next frame overwrites.
    let drawn = 0
    const restore = () => void stdout.write(showCursor)
    const resized = () => {
      // Lines that were wrapped by a narrower window can not be counted any more.
      stdout.write("\u001b[2J\u001b[H")
      drawn = 0
    }
    yield* Effect.acquireRelease(
      Effect.sync(() => {
        stdout.write(hideCursor)
        stdout.on("resize", resized)
        process.on("exit", restore)
      }),
      () =>
        Effect.sync(() => {
          stdout.off("resize", resized)
          process.off("exit", restore)
          restore()
        })
    )
    const draw = (frame: Table.Frame) =>
      Effect.sync(() => {
        const { columns = 80, rows = 24 } = stdout
        const lines = Table.render(frame, { columns, rows, colors: (process.env["NO_COLOR"] ?? "") === "" })
        const up = drawn === 0 ? "" : `\u001b[${drawn}A`
        stdout.write(`${up}${lines.map((line) => `${line}\u001b[K\n`).join("")}\u001b[J`)
        drawn = lines.length
      })
    const screen: Screen["Type"] = {
      show: (frame) => draw({ ...frame, log }),
      say: (text) =>
        Effect.sync(() => {
          stdout.write(`\n${text}\n`)
          drawn = 0
        }),
      end: (frame) => draw({ ...frame, log: [] })
    }
    const keep = (text: string) => {
      log.push(text)
      if (log.length > keptLogs) log.shift()
    }
    return Layer.merge(Layer.succeed(Screen, screen), logsTo(LogLevel.Warning, keep))
  })
)

/** Logs of at least this level, as one line each. */
const logsTo = (level: LogLevel.LogLevel, write: (text: string) => void): Layer.Layer<never> =>
  Layer.merge(
    Logger.replace(
      Logger.defaultLogger,
      Logger.make(({ annotations, date, logLevel, message }) => {
        const details = ["job_id", "attempt", "error_code"].flatMap((name) =>
          Option.toArray(Option.map(HashMap.get(annotations, name), (value) => `${name} ${String(value)}`))
        )
        const said = (Array.isArray(message) ? message : [message]).map(String).join(" ")
        write(
          `${date.toISOString().slice(11, 23)} ${logLevel.label} ${said}${details.length === 0 ? "" : ` (${details.join(", ")})`}`
        )
      })
    ),
    Logger.minimumLogLevel(level)
  )
