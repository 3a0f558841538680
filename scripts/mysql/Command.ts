/**
 * Runs a program to its end.
 */

import { spawn } from "node:child_process"
import { Effect } from "effect"

/** What it printed on stdout; fails with its last words where it ends with another code than 0. Interruption kills it. */
export const run = (
  program: string,
  args: ReadonlyArray<string>,
  options: { readonly onLine?: (line: string) => void } = {}
): Effect.Effect<string, string> =>
  Effect.async((resume) => {
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] })
    let printed = ""
    let complained = ""
    child.stdout.on("data", (chunk: Buffer) => {
      printed += chunk
      for (const line of String(chunk).split("\n")) options.onLine?.(line)
    })
    child.stderr.on("data", (chunk: Buffer) => {
      complained = (complained + chunk).slice(-2_000)
    })
    child.on("error", (error) => resume(Effect.fail(error.message)))
    child.on("close", (code) =>
      resume(
        code === 0
          ? Effect.succeed(printed)
          : Effect.fail(
              `${program} ended with ${code}: ${(complained || printed).trim().split("\n").slice(-3).join(" ")}`
            )
      )
    )
    return Effect.sync(() => child.kill("SIGKILL"))
  })
