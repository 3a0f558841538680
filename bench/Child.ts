/**
 * Starts a measured process and talks to it.
 */
import { spawn } from "node:child_process"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { Deferred, Effect, Either, Queue, Schema, type Scope } from "effect"
import { BenchError } from "./BenchError.js"
import { type Done, Line, type Mark, Setup, type Usage, type Word } from "./process/Lines.js"

export interface Child {
  /** Tells it to begin. */
  readonly go: Effect.Effect<void>
  /** What it says at its end. */
  readonly done: Effect.Effect<Done, BenchError>
  readonly usage: Effect.Effect<Usage, BenchError>
  /** Has it collect its garbage, before its heap is looked at. */
  readonly collect: Effect.Effect<void>
  /** Its next mark. */
  readonly mark: Effect.Effect<Mark, BenchError>
  readonly stop: Effect.Effect<void>
  /** `kill -9`. */
  readonly kill: Effect.Effect<void>
}

/** How the process of a system is started: a program, and its arguments before the setup. */
export interface Launch {
  readonly program: string
  readonly args: ReadonlyArray<string>
}

export const ours: Launch = {
  program: process.execPath,
  args: ["--expose-gc", fileURLToPath(new URL("./process/main.js", import.meta.url))]
}

const decodeLine = Schema.decodeEither(Line)
const encodeSetup = Schema.encodeSync(Schema.parseJson(Setup))

/** Starts the process and waits until it is ready; it is killed when the scope closes. */
export const start = (
  setup: ConstructorParameters<typeof Setup>[0],
  launch: Launch = ours
): Effect.Effect<Child, BenchError, Scope.Scope> =>
  Effect.gen(function* () {
    const ready = yield* Deferred.make<void, BenchError>()
    const done = yield* Deferred.make<Done, BenchError>()
    const ended = yield* Deferred.make<never, BenchError>()
    const usages = yield* Queue.unbounded<Usage>()
    const marks = yield* Queue.unbounded<Mark>()
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn(launch.program, [...launch.args, encodeSetup(new Setup(setup))], { stdio: ["pipe", "pipe", "pipe"] })
      ),
      (running) => Effect.sync(() => running.kill("SIGKILL"))
    )
    let complaints = ""
    child.stderr.on("data", (chunk: Buffer) => {
      complaints = (complaints + String(chunk)).slice(-2_000)
    })
    // A process that was killed does not read any more.
    child.stdin.on("error", () => {})
    createInterface({ input: child.stdout }).on("line", (text) => {
      const line = decodeLine(text)
      if (Either.isLeft(line)) return
      switch (line.right._tag) {
        case "Ready":
          return Deferred.unsafeDone(ready, Effect.void)
        case "Done":
          return Deferred.unsafeDone(done, Effect.succeed(line.right))
        case "Usage":
          return usages.unsafeOffer(line.right)
        case "Mark":
          return marks.unsafeOffer(line.right)
      }
    })
    child.on("close", (code, signal) => {
      const message = `A process that did "${setup.act}" ended with ${signal ?? code}: ${complaints.trim()}`
      Deferred.unsafeDone(ended, Effect.fail(new BenchError({ message })))
    })
    const tell = (word: Word) => Effect.sync(() => void child.stdin.write(`${word}\n`))
    const orEnd = <A>(effect: Effect.Effect<A, BenchError>) => Effect.raceFirst(effect, Deferred.await(ended))
    yield* orEnd(Deferred.await(ready))
    return {
      go: tell("go"),
      done: orEnd(Deferred.await(done)),
      usage: orEnd(Effect.zipRight(tell("usage"), Queue.take(usages))),
      collect: tell("collect"),
      mark: orEnd(Queue.take(marks)),
      stop: tell("stop"),
      kill: Effect.sync(() => void child.kill("SIGKILL"))
    }
  })
