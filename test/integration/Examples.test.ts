/**
 * The examples as a person starts them: each in a process of its own, on an empty database. What each prints must be the text
 * that stands beside it.
 */
import { execFile } from "node:child_process"
import { readdirSync, readFileSync } from "node:fs"
import { dirname } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { emptyDatabase } from "../support/Mysql.js"

const root = fileURLToPath(new URL("../../", import.meta.url))
const folder = `${root}examples/`

const files = readdirSync(folder, { recursive: true, encoding: "utf8" })
const programs = files
  .filter((file) => file.endsWith(".expected.txt"))
  .map((file) => file.replace(/\.expected\.txt$/, ""))
const isTest = (program: string) => program.endsWith(".test")
const numbered = readdirSync(folder).filter((name) => /^\d\d-/.test(name))

const expected = (program: string) => readFileSync(`${folder}${program}.expected.txt`, "utf8")

/** Starts a process at the root of the repository; fails where its exit code is not 0. */
const run = (command: string, args: ReadonlyArray<string>, url: string) =>
  Effect.promise(() =>
    promisify(execFile)(command, args, { cwd: root, env: { ...process.env, LEASEHOLD_MYSQL_URL: url } })
  )

describe("an example prints what is written beside it", () => {
  it.scopedLive.each(programs.filter((program) => !isTest(program)).sort())("%s", (program) =>
    Effect.gen(function* () {
      const { url } = yield* emptyDatabase()
      const { stderr, stdout } = yield* run(process.execPath, ["--import", "tsx", `examples/${program}.ts`], url)
      expect(stdout).toBe(expected(program))
      expect(stderr).toBe("")
    })
  )

  // These need no database, so they are told of one that is not there.
  it.live.each(programs.filter(isTest))("%s", (program) =>
    Effect.gen(function* () {
      const vitest = ["node_modules/vitest/vitest.mjs", "run", "--reporter=tap-flat", "--root"]
      const { stdout } = yield* run(
        process.execPath,
        [...vitest, dirname(`examples/${program}`)],
        "mysql://127.0.0.1:1/none"
      )
      const results = stdout.split("\n").filter((line) => /^(not )?ok /.test(line))
      const timeless = results.map((line) => line.replace(/ # time=\S+$/, "\n"))
      expect(timeless.join("")).toBe(expected(program))
    })
  )

  it("and each numbered folder has one that is compared", () => {
    const compared = new Set(programs.map((program) => program.split("/")[0]))
    expect(numbered.filter((name) => !compared.has(name))).toEqual([])
  })
})
