/**
 * One file with everything in it starts in a third of a second; through a loader it would take four times as long.
 */
import { mkdtempSync, rmSync } from "node:fs"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { type BuildOptions, buildSync } from "esbuild"

const root = join(import.meta.dirname ?? ".", "../..")

const options: BuildOptions = {
  bundle: true,
  platform: "node",
  target: "node20",
  logLevel: "error",
  // Files beside the source are found from here, which is as deep in the repository as they expect.
  define: { "import.meta.url": JSON.stringify(import.meta.url) },
  nodePaths: [join(createRequire(import.meta.url).resolve("effect"), "../../../..")]
}

const bundles = new Map<string, string>()

/** The bundle of a TypeScript file, given by its path in the repository; made once, and gone with this process. */
export const bundle = (entry: string): string => {
  const made = bundles.get(entry)
  if (made !== undefined) return made
  const folder = mkdtempSync(join(tmpdir(), "leasehold-bundle-"))
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, "bundle.cjs")
  buildSync({ ...options, entryPoints: [join(root, entry)], format: "cjs", outfile: file })
  bundles.set(entry, file)
  return file
}

/**
 * The bundles of several files that share what they import, in one folder: a program and a module that it loads must have one
 * and the same copy of Effect. Made once, and gone with this process.
 */
export const bundleTogether = (entries: ReadonlyArray<string>): ReadonlyArray<string> => {
  const name = (entry: string) => entry.replaceAll("/", ".").replace(/\.ts$/, "")
  const key = entries.join()
  const known = bundles.get(key)
  const folder = known ?? mkdtempSync(join(tmpdir(), "leasehold-bundle-"))
  if (known === undefined) {
    bundles.set(key, folder)
    process.on("exit", () => rmSync(folder, { recursive: true, force: true }))
    buildSync({
      ...options,
      entryPoints: entries.map((entry) => ({ in: join(root, entry), out: name(entry) })),
      format: "esm",
      splitting: true,
      outdir: folder,
      outExtension: { ".js": ".mjs" },
      // What is CommonJS among the dependencies asks for Node's own modules so.
      banner: {
        js: 'import { createRequire as makeRequire } from "node:module"; const require = makeRequire(import.meta.url);'
      }
    })
  }
  return entries.map((entry) => join(folder, `${name(entry)}.mjs`))
}
