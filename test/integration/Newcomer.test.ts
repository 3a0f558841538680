/**
 * What a newcomer does, in a folder of his own: the packed package, the README's install line, its five-minute program as it
 * is printed there, the command that shows what became of it, and the test of the page on tests.
 */
import { execFile } from "node:child_process"
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify, stripVTControlCharacters } from "node:util"
import { expect, layer } from "@effect/vitest"
import { Effect } from "effect"
import { start } from "../support/CommandRun.js"
import { blocks, root, toPage } from "../support/Markdown.js"
import { Database, database } from "../support/Mysql.js"

const folder = (name: string) =>
  Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), `leasehold-${name}-`))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )

/** Runs a line as it is typed in a shell; answers what it printed. Nothing of this process's setting may help it. */
const typed = (line: string, cwd: string) =>
  Effect.promise(async () => {
    const { LEASEHOLD_MYSQL_URL: _, NODE_OPTIONS: __, ...env } = process.env
    const { stderr, stdout } = await promisify(execFile)("bash", ["-ec", line], {
      cwd,
      env,
      maxBuffer: 16 * 1024 * 1024
    })
    return stripVTControlCharacters(`${stdout}\n${stderr}`)
  })

/** The package as it would be published, built from this very source: the path of its tarball. */
const packed = Effect.gen(function* () {
  const place = yield* folder("package")
  const { files } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
    readonly files: ReadonlyArray<string>
  }
  for (const path of ["package.json", "README.md", "LICENSE", ...files.filter((each) => each !== "dist")]) {
    cpSync(join(root, path), join(place, path), { recursive: true })
  }
  // `npm run check` looks at the types.
  yield* typed(`npx tsc -p tsconfig.build.json --noCheck --outDir ${join(place, "dist")}`, root)
  yield* typed("npm pack --silent", place)
  const tarball = readdirSync(place).find((name) => name.endsWith(".tgz"))
  return join(place, tarball ?? "no tarball")
})

/** The blocks of a section of a page, in their order. */
const section = (path: string, title: string) => {
  const lines = readFileSync(join(root, path), "utf8").split("\n")
  const from = lines.indexOf(`## ${title}`)
  const length = lines.slice(from + 1).findIndex((line) => line.startsWith("## "))
  expect(from).toBeGreaterThan(0)
  return blocks(toPage(path, lines.slice(from, from + 1 + length).join("\n")))
    .filter(({ hidden }) => !hidden)
    .map(({ code, language }) => ({ language, text: code.join("\n") }))
}

const only = (path: string, title: string, language: string, word: string): string => {
  const found = section(path, title).filter((block) => block.language === language && block.text.includes(word))
  expect(found.map(({ text }) => text)).toHaveLength(1)
  return found[0]?.text ?? ""
}

/** An install line as it is printed, which asks the registry no more than it must. */
const quietly = (install: string) =>
  install.replaceAll("npm install ", "npm install --prefer-offline --no-audit --no-fund ")

const compile = (file: string) => `npx tsc --noEmit --strict --skipLibCheck --module nodenext --target es2022 ${file}`

const printedUrl = "mysql://root@127.0.0.1:3306/app"

layer(database, { excludeTestServices: true, timeout: "5 minutes" })("a newcomer", (it) => {
  it.scoped(
    "installs the package, types the README's program, runs it, and sees its job",
    () =>
      Effect.gen(function* () {
        const { url } = yield* Database
        const withUrl = (line: string) => {
          expect(line).toContain(printedUrl)
          return line.replaceAll(printedUrl, url)
        }
        const tarball = yield* packed
        const home = yield* folder("newcomer")
        yield* typed("npm init --yes && npm pkg set type=module", home)
        const install = only("README.md", "Five minutes", "sh", "npm install leasehold")
        yield* typed(quietly(install.replace("npm install leasehold", `npm install ${tarball}`)), home)

        const program = only("README.md", "Five minutes", "ts", "Worker.layer")
        writeFileSync(join(home, "receipts.ts"), `${program}\n`)
        yield* typed(compile("receipts.ts"), home)
        const printed = yield* typed(withUrl(only("README.md", "Five minutes", "sh", "receipts.ts")), home)
        expect(printed).toContain("*** Receipt: 1 × teapot ***")
        expect(printed).toMatch(/Done.*printed.*true/s)

        const counts = yield* typed(withUrl(only("README.md", "Five minutes", "sh", "leasehold counts")), home)
        expect(counts).toMatch(/^queue +pending +running +succeeded +dead +canceled$/m)
        expect(counts).toMatch(/^receipts +0 +0 +1 +0 +0$/m)

        // The worker of the command's page, and a job for it from the command.
        writeFileSync(join(home, "worker.ts"), `${only("docs/command.md", "Work", "ts", "Worker.layer")}\n`)
        const enqueue = `npx leasehold enqueue receipt.print '{"purchaseId":"p-42"}' --queue receipts`
        expect(yield* typed(`LEASEHOLD_MYSQL_URL=${url} ${enqueue}`, home)).toContain("is enqueued")
        const worker = yield* start(["work", "worker.ts"], {
          url,
          cwd: home,
          node: ["--import", "tsx", join(home, "node_modules/.bin/leasehold")]
        })
        yield* worker.says("Receipt of p-42", "1 minute")
        yield* worker.signal("SIGTERM")
        expect((yield* worker.ended).code).toBe(0)
        expect(yield* typed(withUrl(only("README.md", "Five minutes", "sh", "leasehold counts")), home)).toMatch(
          /^receipts +0 +0 +2 +0 +0$/m
        )

        // The tests of a program, by the page on them.
        yield* typed(quietly(only("docs/testing.md", "A first test", "sh", "npm install")), home)
        writeFileSync(join(home, "receipts.test.ts"), `${only("docs/testing.md", "A first test", "ts", "it.effect")}\n`)
        yield* typed(compile("receipts.test.ts"), home)
        expect(yield* typed("npx vitest run", home)).toMatch(/Tests +2 passed \(2\)/)
      }),
    // About a minute on two idle cores; this bound is for a machine that does much else.
    480_000
  )
})
