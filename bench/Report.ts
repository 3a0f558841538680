/**
 * Shows results: a table for people, a JSON object for machines; and what has to be known about where they were measured.
 */
import { readFileSync } from "node:fs"
import { cpus } from "node:os"
import { join } from "node:path"
import { Effect, Schema } from "effect"
import { figures, names } from "./Figure.js"
import { root } from "./Root.js"
import type { Result } from "./Runner.js"
import { Server } from "./Server.js"

export type JsonLine = { readonly [field: string]: unknown }

export const toJson = ({ case: name, figures: values, runs, variant, verified }: Result): JsonLine => ({
  case: name,
  variant: variant.name,
  peer: variant.peer,
  jobs: variant.jobs,
  concurrency: variant.concurrency,
  ...(variant.settings === undefined ? {} : { settings: variant.settings }),
  ...rounded(values),
  verified,
  runs: runs.map(rounded)
})

/** Four significant digits are more than any of these measurements has. */
const rounded = (values: Result["figures"]) =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, Number(value.toPrecision(5))]))

/** The machine, the versions and the server's settings: without them a figure says nothing. */
export const circumstances: Effect.Effect<JsonLine, never, Server> = Effect.map(Server, (server) => ({
  date: new Date().toISOString(),
  leasehold: versionOf("package.json"),
  effect: versionOf("node_modules/effect/package.json"),
  mysql2: versionOf("node_modules/mysql2/package.json"),
  node: process.version,
  mysql: server.version,
  server: server.settings,
  cpu: cpus()[0]?.model,
  cores: cpus().length
}))

const Manifest = Schema.parseJson(Schema.Struct({ version: Schema.String }))

const versionOf = (manifest: string): string =>
  Schema.decodeSync(Manifest)(readFileSync(join(root, manifest), "utf8")).version

export const table = (results: ReadonlyArray<Result>): string => {
  const used = names.filter((name) => results.some((result) => result.figures[name] !== undefined))
  const head = ["case", "system", "jobs", "c", ...used.map((name) => figures[name].title), "verified"]
  const rows = results.map(({ case: name, figures: values, variant, verified }) => [
    variant.name === name ? name : `${name}: ${variant.name}`,
    variant.peer,
    variant.jobs.toLocaleString("en-US"),
    String(variant.concurrency),
    ...used.map((figure) => {
      const value = values[figure]
      return value === undefined ? "" : figures[figure].show(value)
    }),
    verified ? "yes" : "NO"
  ])
  const widths = head.map((title, column) => Math.max(...[head, ...rows].map((row) => (row[column] ?? title).length)))
  const line = (row: ReadonlyArray<string>) =>
    row
      .map((cell, column) => (column < 2 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0)))
      .join("  ")
  return [line(head), widths.map((width) => "─".repeat(width)).join("  "), ...rows.map(line)].join("\n")
}
