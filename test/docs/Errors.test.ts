import { describe, expect, it } from "vitest"
import { JobFailure, QueueError } from "../../src/index.js"
import * as Markdown from "../support/Markdown.js"

const page = Markdown.pages().find(({ path }) => path === "docs/errors.md")

/** What the first column of the tables under a heading names, in their order. */
const namesUnder = (heading: string): ReadonlyArray<string> => {
  const lines = page?.lines ?? []
  const start = lines.indexOf(heading)
  const end = lines.findIndex((line, index) => index > start && line.startsWith("## "))
  return lines.slice(start, end).flatMap((line) => /^\| `(\w+)` \|/.exec(line)?.[1] ?? [])
}

/** The tags of the error classes that a module exports. */
const tagsOf = (module: object): ReadonlyArray<string> =>
  Object.entries(module).flatMap(([name, value]) =>
    typeof value === "function" && value.prototype instanceof Error ? [name] : []
  )

describe("the page of errors", () => {
  it("has a row for each error of the library, and no others", () => {
    expect([...namesUnder("## Errors of the library")].sort()).toEqual([...tagsOf(QueueError)].sort())
  })

  it("has a row for each failure of a handler, and no others", () => {
    expect([...namesUnder("## What a handler says")].sort()).toEqual([...tagsOf(JobFailure)].sort())
  })

  it("names in its other tables only errors that there are", () => {
    const known = new Set([...tagsOf(QueueError), ...tagsOf(JobFailure)])
    const lines = page?.lines ?? []
    const table = lines.slice(lines.indexOf("## Which call fails with what"))
    const cells = table.flatMap((line) => (line.startsWith("| `") ? [line.split(" | ")[1] ?? ""] : []))
    const named = cells.flatMap((cell) => Array.from(cell.matchAll(/`([A-Z]\w+)`/g), ([, name = ""]) => name))
    expect(named.length).toBeGreaterThan(20)
    expect(named.filter((name) => !known.has(name))).toEqual([])
  })
})
