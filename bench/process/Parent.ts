/**
 * The other end of a measured process: it listens for words and prints lines.
 */
import { createInterface } from "node:readline"
import { Deferred, Effect, Schema } from "effect"
import { type Line, Line as LineSchema, Usage } from "./Lines.js"
import { monotonic } from "./Monotonic.js"
import type { Tally } from "./Tally.js"

const encode = Schema.encodeSync(LineSchema)

export const say = (line: Line): Effect.Effect<void> =>
  Effect.sync(() => void process.stdout.write(`${encode(line)}\n`))

export interface Parent {
  /** The parent said "go". */
  readonly go: Effect.Effect<void>
  /** The parent said "stop", or is gone. */
  readonly stop: Effect.Effect<void>
}

const start = { at: monotonic(), cpu: process.cpuUsage() }

/** What is measured begins now. */
export const begin = (): void => {
  start.at = monotonic()
  start.cpu = process.cpuUsage()
}

/** Milliseconds since then. */
export const elapsed = (): number => monotonic() - start.at

export const usage = (tally: Tally) => {
  const { system, user } = process.cpuUsage(start.cpu)
  const heap = process.memoryUsage().heapUsed / 2 ** 20
  return { cpu: user + system, heap, handled: tally.handled(), repeated: tally.repeated() }
}

/** Listens from now on; answers questions about usage by itself. */
export const listen = (tally: Tally): Effect.Effect<Parent> =>
  Effect.gen(function* () {
    const go = yield* Deferred.make<void>()
    const stop = yield* Deferred.make<void>()
    yield* Effect.sync(() => {
      const input = createInterface({ input: process.stdin })
      input.on("line", (word) => {
        if (word === "go") {
          begin()
          Deferred.unsafeDone(go, Effect.void)
        }
        if (word === "collect") globalThis.gc?.()
        if (word === "usage") Effect.runSync(say(new Usage(usage(tally))))
        if (word === "stop") Deferred.unsafeDone(stop, Effect.void)
      })
      // A parent that was killed closes the pipe: nobody would stop this process otherwise.
      input.on("close", () => Deferred.unsafeDone(stop, Effect.void))
    })
    return { go: Deferred.await(go), stop: Deferred.await(stop) }
  })
