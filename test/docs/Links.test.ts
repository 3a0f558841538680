import { existsSync, readFileSync, statSync } from "node:fs"
import { dirname, join, normalize } from "node:path"
import { describe, expect, it } from "vitest"
import * as Markdown from "../support/Markdown.js"

const all = Markdown.pages()

/** Pages that a build makes; what leads to them is looked at by that build. */
const isGenerated = (path: string) => path.startsWith("docs/api/")

const problems = (page: Markdown.Page, { line, target, text }: Markdown.Reference): ReadonlyArray<string> => {
  if (/^[a-z]+:/.test(target)) return []
  const [path = "", anchor] = target.split("#")
  const file = path === "" ? page.path : normalize(join(dirname(page.path), path))
  const at = `${page.path}:${line + 1} ${target}`
  if (isGenerated(file)) return []
  if (file.startsWith("..") || !existsSync(join(Markdown.root, file))) return [`${at}: there is no such file`]
  if (anchor !== undefined) {
    const linked = all.find((candidate) => candidate.path === file)
    return linked !== undefined && Markdown.anchors(linked).has(anchor) ? [] : [`${at}: there is no such heading`]
  }
  // A link to a test is called by the title of the test, so that nobody has to search for it.
  if (!file.startsWith("test/") || statSync(join(Markdown.root, file)).isDirectory() || text.includes("`")) return []
  const source = readFileSync(join(Markdown.root, file), "utf8")
  return source.includes(text) ? [] : [`${at}: no test there is called "${text}"`]
}

describe("links", () => {
  it("every relative link leads to a file, its heading, and the test that it names", () => {
    expect(all.flatMap((page) => Markdown.links(page).flatMap((link) => problems(page, link)))).toEqual([])
  })

  it("every path of the repository that a page names is there", () => {
    const missing = all.flatMap((page) =>
      Markdown.namedPaths(page)
        // The API reference is generated, and not kept in the repository.
        .filter(({ target }) => !/^docs\/api\b/.test(target) && !existsSync(join(Markdown.root, target)))
        .map(({ line, target }) => `${page.path}:${line + 1} ${target}`)
    )
    expect(missing).toEqual([])
  })

  it("a link that leads nowhere is found", () => {
    const page = Markdown.toPage(
      "docs/page.md",
      "[a](nothing.md) [b](../README.md#nothing) [no such test](../test/unit/Job.test.ts)"
    )
    expect(Markdown.links(page).flatMap((link) => problems(page, link))).toHaveLength(3)
  })
})
