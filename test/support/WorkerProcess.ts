/**
 * Starts programs of the tests as processes, and watches what they print.
 */

import { type ChildProcess, spawn } from "node:child_process"
import { Deferred, Effect, type Scope } from "effect"
import { bundle } from "./Bundle.js"
import type { Setup } from "./workerMain.js"

export interface WorkerProcess {
  readonly pid: number
  /** Whether the process was still there to get it. */
  readonly signal: (signal: NodeJS.Signals) => Effect.Effect<boolean>
  /** Waits for a line that holds the text. Fails the test after a minute. */
  readonly says: (text: string) => Effect.Effect<void>
  /** Writes a line to its standard input, which ends when the process of the tests does. */
  readonly tell: (line: string) => Effect.Effect<void>
  /** The last lines that it printed. */
  readonly lastWords: Effect.Effect<ReadonlyArray<string>>
  /** Waits for the end of the process; its exit code, or the signal that ended it. */
  readonly ended: Effect.Effect<number | string>
}

/** A process of `workerMain`; killed when the scope closes. */
export const start = (setup: Setup): Effect.Effect<WorkerProcess, never, Scope.Scope> =>
  run("test/support/workerMain.ts", setup)

/** How many of its lines are kept. */
const kept = 200

/** Runs a program of the tests, given by its path from the root, with one JSON as its argument; killed when the scope closes. */
export const run = (entry: string, argument: unknown): Effect.Effect<WorkerProcess, never, Scope.Scope> =>
  Effect.gen(function* () {
    const ended = yield* Deferred.make<number | string>()
    const lines: Array<string> = []
    const waiting = new Set<() => void>()
    const child = yield* Effect.acquireRelease(
      Effect.sync(
        (): ChildProcess =>
          spawn(process.execPath, [bundle(entry), JSON.stringify(argument)], { stdio: ["pipe", "pipe", "inherit"] })
      ),
      (running) => Effect.sync(() => running.kill("SIGKILL"))
    )
    child.stdout?.on("data", (chunk: Buffer) => {
      lines.push(...String(chunk).split("\n"))
      lines.splice(0, lines.length - kept)
      for (const look of waiting) look()
    })
    // What it is told after its end goes nowhere.
    child.stdin?.on("error", () => {})
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
          duration: "1 minute",
          onTimeout: () => new Error(`the worker never said "${text}", but: ${lines.join(" | ")}`)
        }),
        Effect.orDie
      )
    return {
      pid: child.pid ?? 0,
      signal: (signal) => Effect.sync(() => child.kill(signal)),
      says,
      tell: (line) => Effect.sync(() => void child.stdin?.write(`${line}\n`)),
      lastWords: Effect.sync(() => lines.filter((line) => line !== "")),
      ended: Deferred.await(ended)
    }
  })
