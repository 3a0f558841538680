/**
 * One file with everything in it starts in a third of a second; through a loader it would take four times as long.
 */
import { mkdtempSync, rmSync } from "node:fs"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { buildSync } from "esbuild"

const bundles = new Map<string, string>()

/** The bundle of a TypeScript file, given by its path in the repository; made once, and gone with this process. */
export const bundle = (entry: string): string => {
  const made = bundles.get(entry)
  if (made !== undefined) return made
  const folder = mkdtempSync(join(tmpdir(), "leasehold-bundle-"))
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, "bundle.cjs")
  buildSync({
    entryPoints: [join(import.meta.dirname ?? ".", "../..", entry)],
    bundle: true,
    platform: "node",
    target: "node20",
    format: "cjs",
    outfile: file,
    logLevel: "error",
    // Files beside the source are found from here, which is as deep in the repository as they expect.
    define: { "import.meta.url": JSON.stringify(import.meta.url) },
    nodePaths: [join(createRequire(import.meta.url).resolve("effect"), "../../../..")]
  })
  bundles.set(entry, file)
  return file
}
