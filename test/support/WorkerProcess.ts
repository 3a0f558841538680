/**
 * Starts `workerMain` as a process and watches what it prints.
 */

import { type ChildProcess, spawn } from "node:child_process"
import { Deferred, Effect, type Scope } from "effect"
import { bundle } from "./Bundle.js"
import type { Setup } from "./workerMain.js"

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
          spawn(process.execPath, [bundle("test/support/workerMain.ts"), JSON.stringify(setup)], {
            stdio: ["ignore", "pipe", "inherit"]
          })
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
