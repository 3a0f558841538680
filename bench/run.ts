/**
 * `npm run bench`: compiles the library and the benchmarks, and runs them as a user's program runs.
 *
 * Not through a loader: tsx wraps every closure to keep its name, which costs as much as some of what is measured. What runs is
 * what `npm run build` would publish, file by file.
 */
import { spawn } from "node:child_process"
import { cpSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { build } from "esbuild"

const root = fileURLToPath(new URL("..", import.meta.url))
const compiled = join(root, "node_modules", ".cache", "leasehold-bench")

const sources = (folder: string): ReadonlyArray<string> =>
  readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(".ts"))
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((file) => !file.includes("node_modules"))

rmSync(compiled, { recursive: true, force: true })
mkdirSync(compiled, { recursive: true })
await build({
  entryPoints: ["src", "bench", "scripts"].flatMap(sources),
  outbase: root,
  outdir: compiled,
  format: "esm",
  platform: "node",
  target: "es2022",
  logLevel: "error"
})
cpSync(join(root, "migrations"), join(compiled, "migrations"), { recursive: true })
writeFileSync(join(compiled, "package.json"), '{ "type": "module" }\n')

const program = spawn(process.execPath, [join(compiled, "bench", "main.js"), ...process.argv.slice(2)], {
  stdio: "inherit",
  env: { ...process.env, LEASEHOLD_BENCH_ROOT: root }
})
// Ctrl-C reaches the whole group: the program stops its server and its workers, and this process waits for it.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => {})
program.on("exit", (code) => process.exit(code ?? 1))
