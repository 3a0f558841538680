/**
 * The pages of the documentation: what is checked about them.
 */
import { readdirSync, readFileSync } from "node:fs"
import { join, relative } from "node:path"
import { fileURLToPath } from "node:url"

export const root = fileURLToPath(new URL("../..", import.meta.url))

/** A page, its path relative to the repository. */
export interface Page {
  readonly path: string
  readonly lines: ReadonlyArray<string>
}

/** A block of code: a fenced one, or one that readers do not see, between `<!-- sample` and `-->`. */
export interface Block {
  readonly language: string
  /** Words after the language. */
  readonly words: ReadonlyArray<string>
  readonly hidden: boolean
  /** Index in the page of the first line of the code. */
  readonly start: number
  readonly code: ReadonlyArray<string>
}

/** A link, or a path of the repository that the text names in `code`. */
export interface Reference {
  readonly line: number
  readonly text: string
  readonly target: string
}

/** Folders whose pages come from elsewhere. */
const foreign = new Set(["node_modules", "dist", "api", ".git"])

const pathsUnder = (folder: string): ReadonlyArray<string> =>
  readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    if (entry.isDirectory()) return foreign.has(entry.name) ? [] : pathsUnder(join(folder, entry.name))
    return entry.name.endsWith(".md") ? [join(folder, entry.name)] : []
  })

/** All pages of the repository, by path. */
export const pages = (): ReadonlyArray<Page> =>
  pathsUnder(root)
    .map((path) => toPage(relative(root, path), readFileSync(path, "utf8")))
    .sort((a, b) => (a.path < b.path ? -1 : 1))

export const toPage = (path: string, text: string): Page => ({ path, lines: text.split("\n") })

/** A page's blocks of code in their order. */
export const blocks = (page: Page): ReadonlyArray<Block> => {
  const found: Array<Block> = []
  for (let at = 0; at < page.lines.length; at++) {
    const line = page.lines[at] ?? ""
    const fence = /^(\s*)```(\S*)\s*(.*)$/.exec(line)
    const hidden = line.trim() === "<!-- sample"
    if (fence === null && !hidden) continue
    const start = at + 1
    const isEnd = (candidate: string) => candidate.trim() === (hidden ? "-->" : "```")
    while (at + 1 < page.lines.length && !isEnd(page.lines[at + 1] ?? "")) at++
    const code = page.lines.slice(start, at + 1)
    found.push({
      language: hidden ? "ts" : (fence?.[2] ?? ""),
      words: (fence?.[3] ?? "").split(" ").filter((word) => word !== ""),
      hidden,
      start,
      code
    })
    at++
  }
  return found
}

/** The lines that are text, each with its index. */
const prose = (page: Page): ReadonlyArray<readonly [line: number, text: string]> => {
  const code = new Set(blocks(page).flatMap(({ code, start }) => code.map((_, index) => start + index)))
  return page.lines.flatMap((text, line) => (code.has(line) ? [] : [[line, text] as const]))
}

/** The anchors of a page's headings, as GitHub makes them. */
export const anchors = (page: Page): ReadonlySet<string> => {
  const seen = new Map<string, number>()
  const found = new Set<string>()
  for (const [, text] of prose(page)) {
    const title = /^#{1,6}\s+(.*)$/.exec(text)?.[1]
    if (title === undefined) continue
    const plain = title.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").toLowerCase()
    const slug = plain.replace(/[^\p{L}\p{N}\s_-]/gu, "").replace(/\s/g, "-")
    const times = seen.get(slug) ?? 0
    seen.set(slug, times + 1)
    found.add(times === 0 ? slug : `${slug}-${times}`)
  }
  return found
}

/** The links of a page, outside of code. */
export const links = (page: Page): ReadonlyArray<Reference> =>
  prose(page).flatMap(([line, text]) =>
    Array.from(text.matchAll(/\[((?:[^\]`]|`[^`]*`)*)\]\(([^)\s]+)\)/g), ([, label = "", target = ""]) => ({
      line,
      text: label,
      target
    }))
  )

/** Paths of the repository that a page names as code, such as `src/Job.ts`. */
export const namedPaths = (page: Page): ReadonlyArray<Reference> =>
  prose(page).flatMap(([line, text]) =>
    Array.from(
      text.matchAll(/`((?:src|test|docs|bench|scripts|examples|migrations|\.ci)\/[\w./-]+)`/g),
      ([, target = ""]) => ({ line, text: target, target })
    )
  )
