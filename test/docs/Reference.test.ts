import { readFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "vitest"
import { root } from "../support/Markdown.js"

const read = (file: string) => JSON.parse(readFileSync(join(root, file), "utf8"))

describe("the reference", () => {
  it("is made from every module that the package exports", () => {
    const targets = Object.values<unknown>(read("package.json").exports)
    const sources = targets.flatMap((target) =>
      typeof target === "object" && target !== null && "default" in target
        ? [String(target.default).replace("./dist/", "src/").replace(/\.js$/, ".ts")]
        : []
    )
    expect([...read("typedoc.json").entryPoints].sort()).toEqual(sources.sort())
  })
})
