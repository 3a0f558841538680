import { describe, expect, it } from "vitest"
import { pages, toPage } from "../support/Markdown.js"
import { check } from "../support/Samples.js"

const fence = "```"

describe("samples", () => {
  it("every TypeScript sample of the documentation compiles", { timeout: 120_000 }, () => {
    const mistakes = check(pages()).map(({ line, message, path }) => `${path}:${line} ${message}`)
    expect(mistakes.join("\n")).toBe("")
  })

  it("a mistake is found and told by its place in the page", { timeout: 120_000 }, () => {
    const page = toPage(
      "page.md",
      [
        "<!-- sample",
        'import { Queue } from "leasehold"',
        "declare const id: string",
        "-->",
        `${fence}ts`,
        "const record = yield* Queue.get(id)",
        "const state: number = record.state",
        fence,
        `${fence}ts continues`,
        'export const other: number = "one"',
        fence,
        `${fence}ts`,
        "export const unknown = id",
        fence
      ].join("\n")
    )
    const mistakes = check([page])
    expect(mistakes.map(({ line }) => line)).toEqual([7, 10, 13])
  })
})
