/**
 * Starts `workerMain` as a process and watches what it prints.
 */

import { type ChildProcess, spawn } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Deferred, Effect, type Scope } from "effect"
import { buildSync } from "esbuild"
import type { Setup } from "./workerMain.js"

/** One file with everything in it starts in a third of a second; through a loader it would take four times as long. */
let bundled: string | undefined
const bundle = (): string => {
  if (bundled !== undefined) return bundled
  const folder = mkdtempSync(join(tmpdir(), "leasehold-worker-"))
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, "worker.cjs")
  buildSync({
    entryPoints: [join(import.meta.dirname ?? ".", "workerMain.ts")],
    bundle: true,
    platform: "node",
    target: "node20",
    format: "cjs",
    outfile: file,
    logLevel: "error",
    define: { "import.meta.url": JSON.stringify(import.meta.url) },
    nodePaths: [join(createRequire(import.meta.url).resolve("effect"), "../../../..")]
  })
  bundled = file
  return file
}

export interface WorkerProcess {
  readonly signal: (signal: NodeJS.Signals) => Effect.Effect<void>
  /** Waits for a line that holds the text. Fails the test after 20 seconds. */
  readonly says: (text: string) => Effect.Effect<void>
  /** Waits for the end of the process; its exit code, or the signal that ended it. */
  readonly ended: Effect.Effect<number | string>
}

/** A worker process; killed when the scope closes. */
export const start = (setup: Setup): Effect.Effect<WorkerProcess, never, Scope.Scope> =>
  Effect.gen(function* () {
    const ended = yield* Deferred.make<number | string>()
    const lines: Array<string> = []
    const waiting = new Set<() => void>()
    const child = yield* Effect.acquireRelease(
      Effect.sync(
        (): ChildProcess =>
          spawn(process.execPath, [bundle(), JSON.stringify(setup)], { stdio: ["ignore", "pipe", "inherit"] })
      ),
      (running) => Effect.sync(() => running.kill("SIGKILL"))
    )
    child.stdout?.on("data", (chunk: Buffer) => {
      lines.push(...String(chunk).split("\n"))
      for (const look of waiting) look()
    })
    child.on("exit", (code, signal) => Deferred.unsafeDone(ended, Effect.succeed(signal ?? code ?? 0)))
    const says = (text: string) =>
      Effect.async<void>((resume) => {
        const look = () => {
          if (lines.some((line) => line.includes(text))) resume(Effect.sync(() => waiting.delete(look)))
        }
        waiting.add(look)
        look()
      }).pipe(
        Effect.timeoutFail({
          duration: "20 seconds",
          onTimeout: () => new Error(`the worker never said "${text}", but: ${lines.join(" | ")}`)
        }),
        Effect.orDie
      )
    return {
      signal: (signal) => Effect.sync(() => void child.kill(signal)),
      says,
      ended: Deferred.await(ended)
    }
  })
