import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"

const root = join(import.meta.dirname ?? ".", "../..")
const rows = readFileSync(join(root, "test/fault/COVERAGE.md"), "utf8")
  .split("\n")
  .filter((line) => /^\| [A-O]\d/.test(line))

/** The tests that a row names: a file in backticks, and a title behind it in quotes. */
const named = rows.flatMap((row) =>
  Array.from(row.matchAll(/`(test\/[^`]+)` “([^”]+)”/g), ([, file = "", title = ""]) => ({ file, title }))
)

/** Titles that a loop makes have a part that differs: a row names what stands before it. */
const hasTitle = (text: string, title: string): boolean => text.includes(`"${title}`) || text.includes(`\`${title}`)

describe("the table of scenarios", () => {
  it("has each entry once, and every entry says where it is shown or why it is not", () => {
    const entries = rows.map((row) => row.split(" | ")[0])
    expect(new Set(entries).size).toBe(entries.length)
    expect(entries).toHaveLength(98)
    for (const row of rows) {
      expect(/`test\/[^`]+` “/.test(row) || /not shown yet|does not apply/.test(row), row).toBe(true)
    }
  })

  it("names only tests that there are", () => {
    expect(named.length).toBeGreaterThan(80)
    const missing = named.filter(({ file, title }) => {
      const path = join(root, file)
      return !existsSync(path) || !hasTitle(readFileSync(path, "utf8"), title)
    })
    expect(missing).toEqual([])
  })
})
