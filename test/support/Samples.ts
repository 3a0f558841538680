/**
 * The samples of the documentation as programs that the compiler can judge.
 *
 * Each ```` ```ts ```` block of a page is a module of its own; one that is marked ```` ```ts continues ```` is part of the
 * module before it. A block between `<!-- sample` and `-->` belongs to what follows it, and only readers of the source see it:
 * it declares what the text has introduced in words. Where a block uses `yield*` outside of any function, it is the body of
 * `Effect.gen`, its imports apart.
 */
import { readFileSync } from "node:fs"
import { join } from "node:path"
import ts from "typescript"
import { type Block, blocks, type Page, root } from "./Markdown.js"

/** One program made of blocks, each of its lines with the place in the page that it came from. */
interface Program {
  readonly file: string
  readonly page: Page
  readonly lines: ReadonlyArray<{ readonly text: string; readonly from: number }>
}

/** A mistake in a sample; `line` counts from 1. */
export interface Mistake {
  readonly path: string
  readonly line: number
  readonly message: string
}

const isBody = (code: ReadonlyArray<string>): boolean =>
  code.some((line) => /^(?:(?:const|let) .* = |return )?yield\* /.test(line))

const programs = (page: Page): ReadonlyArray<Program> => {
  const groups: Array<Array<Block>> = []
  let hidden: ReadonlyArray<Block> = []
  for (const block of blocks(page).filter(({ language }) => language === "ts")) {
    if (block.hidden) {
      hidden = [...hidden, block]
      continue
    }
    const former = block.words.includes("continues") ? groups.at(-1) : undefined
    if (former === undefined) groups.push([...hidden, block])
    else former.push(...hidden, block)
    hidden = []
  }
  return groups.map((group, index) => toProgram(page, group, index))
}

const toProgram = (page: Page, group: ReadonlyArray<Block>, index: number): Program => {
  const lines: Array<{ text: string; from: number }> = []
  for (const { code, start } of group) {
    const numbered = code.map((text, offset) => ({ text, from: start + offset }))
    if (!isBody(code)) {
      lines.push(...numbered)
      continue
    }
    const isImport = ({ text }: { readonly text: string }) => /^import .* from "/.test(text)
    const from = start
    lines.push(...numbered.filter(isImport), { text: 'import * as Sample from "effect/Effect"', from })
    lines.push({ text: "export const sample = Sample.gen(function* () {", from })
    lines.push(...numbered.filter((line) => !isImport(line)), { text: "})", from })
  }
  const bodies = lines.filter(({ text }) => text.startsWith("export const sample = ")).length
  if (bodies > 1) throw new Error(`${page.path}: two bodies of Effect.gen in one sample`)
  // A module, whether it exports or not.
  lines.push({ text: "export {}", from: group[0]?.start ?? 0 })
  return { file: join(root, `${page.path.replace(/[^\w]/g, "-")}-sample-${index}.ts`), page, lines }
}

/** What the package's exports name, as the sources that they are made from. */
const paths = (): Record<string, Array<string>> => {
  const { exports }: { readonly exports: { readonly [name: string]: unknown } } = JSON.parse(
    readFileSync(join(root, "package.json"), "utf8")
  )
  return Object.fromEntries(
    Object.entries(exports).flatMap(([name, target]) => {
      if (typeof target !== "object" || target === null || !("default" in target)) return []
      const source = String(target.default).replace("./dist/", "./src/").replace(/\.js$/, ".ts")
      return [[name.replace(/^\./, "leasehold"), [source]]]
    })
  )
}

/** The library and what it stands on, which is the same for every check. */
const parsed = new Map<string, ts.SourceFile | undefined>()

/** All mistakes in the samples of the pages, as strictly as the library itself is checked. */
export const check = (pages: ReadonlyArray<Page>): ReadonlyArray<Mistake> => {
  const all = pages.flatMap(programs)
  const sources = new Map(all.map((program) => [program.file, program]))
  const config = ts.readConfigFile(join(root, "tsconfig.json"), ts.sys.readFile)
  const { options } = ts.parseJsonConfigFileContent(config.config, ts.sys, root)
  const settings: ts.CompilerOptions = { ...options, paths: paths(), noEmit: true }
  const host = ts.createCompilerHost(settings)
  const { fileExists, getSourceFile, readFile } = host
  const textOf = (file: string) =>
    sources
      .get(file)
      ?.lines.map(({ text }) => text)
      .join("\n")
  host.fileExists = (file) => sources.has(file) || fileExists(file)
  host.readFile = (file) => textOf(file) ?? readFile(file)
  host.getSourceFile = (file, target, ...rest) => {
    const text = textOf(file)
    if (text !== undefined) return ts.createSourceFile(file, text, target)
    if (!parsed.has(file)) parsed.set(file, getSourceFile(file, target, ...rest))
    return parsed.get(file)
  }
  const program = ts.createProgram([...sources.keys()], settings, host)
  return all.flatMap(({ file, lines, page }) => {
    const source = program.getSourceFile(file)
    if (source === undefined) throw new Error(`${file} was not compiled`)
    return [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)].map(
      ({ messageText, start }) => {
        const at = source.getLineAndCharacterOfPosition(start ?? 0).line
        return {
          path: page.path,
          line: (lines[at]?.from ?? 0) + 1,
          message: ts.flattenDiagnosticMessageText(messageText, "\n")
        }
      }
    )
  })
}
