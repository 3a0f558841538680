/**
 * What the command prints: tables for people, JSON for scripts. Results go to stdout, everything else to stderr.
 */
import { Console, Effect, Option } from "effect"

/** Text of others in one line, so that no control character in it can move the cursor or hide what follows. */
export const printable = (text: string): string =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is taken out
  text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (character) =>
    character === "\n" || character === "\t" ? " " : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`
  )

/** Columns as wide as their widest cell. Numbers are right-aligned. */
export const table = (
  headers: ReadonlyArray<string>,
  rows: ReadonlyArray<ReadonlyArray<string | number>>
): ReadonlyArray<string> => {
  const cells = rows.map((row) => row.map((cell) => printable(String(cell))))
  const widths = headers.map((header, column) =>
    Math.max(header.length, ...cells.map((row) => row[column]?.length ?? 0))
  )
  const isNumber = (column: number) => rows.length > 0 && rows.every((row) => typeof row[column] === "number")
  const line = (row: ReadonlyArray<string>) =>
    row
      .map((cell, column) => {
        const width = widths[column] ?? 0
        return isNumber(column) ? cell.padStart(width) : cell.padEnd(width)
      })
      .join("  ")
      .trimEnd()
  return [line(headers), ...cells.map(line)]
}

/** Names and values, one to a line; a value that is none is left out. */
export const fields = (
  pairs: ReadonlyArray<readonly [name: string, value: Option.Option<string | number> | string | number]>
): ReadonlyArray<string> => {
  const known = pairs.flatMap(([name, value]) =>
    Option.match(Option.isOption(value) ? value : Option.some(value), {
      onNone: () => [],
      onSome: (some) => [[name, printable(String(some))] as const]
    })
  )
  const width = Math.max(0, ...known.map(([name]) => name.length))
  return known.map(([name, value]) => `${name.padEnd(width)}  ${value}`)
}

export const lines = (text: ReadonlyArray<string>): Effect.Effect<void> =>
  text.length === 0 ? Effect.void : Console.log(text.join("\n"))

export const json = (value: unknown): Effect.Effect<void> => Console.log(JSON.stringify(value, null, 2))

/** What is being done, for whoever waits: to stderr, so that the result stays clean. */
export const progress = (text: string): Effect.Effect<void> => Console.error(text)

/** One of the two, by the option `--json`. */
export const either = (asJson: boolean, value: () => unknown, text: () => ReadonlyArray<string>): Effect.Effect<void> =>
  Effect.suspend(() => (asJson ? json(value()) : lines(text())))
