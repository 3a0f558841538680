#!/usr/bin/env node
/**
 * The process: signals, exit code, and a last line that is really written.
 */
import * as NodeContext from "@effect/platform-node/NodeContext"
import { Deferred, Effect } from "effect"
import { run } from "./Command.js"
import { ExitCode } from "./ExitCode.js"
import { StopRequest } from "./StopRequest.js"

/** A reader that has seen enough, such as `head`, closes the pipe: that is no error. */
const leaveWithTheReader = () => {
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    process.exit(error.code === "EPIPE" ? ExitCode.done : ExitCode.unexpected)
  })
}

/** The first signal asks the command to stop, the second one ends the process. */
const listen = (stop: Deferred.Deferred<ExitCode>) => {
  for (const [signal, code] of [
    ["SIGINT", ExitCode.interrupted],
    ["SIGTERM", ExitCode.terminated]
  ] as const) {
    let asked = false
    process.on(signal, () => {
      if (asked) process.exit(code)
      asked = true
      Deferred.unsafeDone(stop, Effect.succeed(code))
    })
  }
}

const program = Effect.gen(function* () {
  const stop = yield* Deferred.make<ExitCode>()
  leaveWithTheReader()
  listen(stop)
  return yield* Effect.provideService(run(process.argv.slice(2)), StopRequest, Deferred.await(stop))
}).pipe(Effect.provide(NodeContext.layer))

/** Sockets or timers of a module that was run may still be open, so the process is ended; not before a pipe has all of it. */
const exit = (code: number) => process.stdout.write("", () => process.stderr.write("", () => process.exit(code)))

Effect.runFork(program).addObserver((ended) => exit(ended._tag === "Success" ? ended.value : ExitCode.interrupted))
