/**
 * Runs the `leasehold` command: in this process, with what it prints caught, or as a process of its own.
 */
import { spawn } from "node:child_process"
import { join } from "node:path"
import * as NodeContext from "@effect/platform-node/NodeContext"
import { ConfigProvider, Console, Context, Deferred, type Duration, Effect, type Scope } from "effect"
import { run } from "../../src/cli/Command.js"
import { Source } from "../../src/cli/Stdin.js"
import { StopRequest } from "../../src/cli/StopRequest.js"
import { bundleTogether } from "./Bundle.js"

export interface Ran {
  readonly code: number
  readonly out: string
  readonly err: string
}

export interface Settings {
  /** Becomes `LEASEHOLD_MYSQL_URL`. */
  readonly url?: string
  readonly stdin?: string
  readonly stop?: Effect.Effect<130 | 143>
}

/** Runs it in this process; answers its exit code and what it printed. */
export const command = (args: ReadonlyArray<string>, { stdin = "", stop = Effect.never, url }: Settings = {}) =>
  Effect.gen(function* () {
    const outer = yield* Effect.console
    const out: Array<string> = []
    const err: Array<string> = []
    const into = (lines: Array<string>) => (text?: unknown) => Effect.sync(() => void lines.push(String(text)))
    const code = yield* run(args).pipe(
      Console.withConsole({ ...outer, log: into(out), error: into(err) }),
      Effect.provideService(Source, chunks(stdin)),
      Effect.provideService(StopRequest, stop),
      Effect.withConfigProvider(
        ConfigProvider.fromMap(new Map(url === undefined ? [] : [["LEASEHOLD_MYSQL_URL", url]]))
      ),
      Effect.provide(NodeContext.layer),
      // A module's layer must not find the services of the test.
      Effect.mapInputContext((_: Context.Context<never>) => Context.empty())
    )
    return { code, out: out.join("\n"), err: err.join("\n") } satisfies Ran
  })

async function* chunks(text: string) {
  // In two parts, which cut a character of several bytes.
  const bytes = Buffer.from(text, "utf8")
  const middle = Math.floor(bytes.length / 2)
  yield bytes.subarray(0, middle)
  yield bytes.subarray(middle)
}

export interface Running {
  readonly signal: (signal: NodeJS.Signals) => Effect.Effect<void>
  /** Waits until it has printed a text, on either stream. Fails the test after `within`, default a minute. */
  readonly says: (text: string, within?: Duration.DurationInput) => Effect.Effect<void>
  readonly ended: Effect.Effect<Ran>
}

const root = join(import.meta.dirname ?? ".", "../..")
/** The command, and the modules that it is given to run, as files that start fast. */
const bundled = () => bundleTogether(["src/cli/main.ts", "test/support/modules/worker.ts"])

/** The path of the module whose layers are workers. */
export const workerModule = (): string => bundled()[1] ?? ""

export interface ProcessSettings extends Settings {
  /** Arguments of Node before those of the command. Default: a bundle of the source. */
  readonly node?: ReadonlyArray<string>
  readonly cwd?: string
}

/** Starts it as a process; killed when the scope closes. */
export const start = (
  args: ReadonlyArray<string>,
  { cwd = root, node = bundled().slice(0, 1), stdin, url }: ProcessSettings = {}
): Effect.Effect<Running, never, Scope.Scope> =>
  Effect.gen(function* () {
    const ended = yield* Deferred.make<Ran>()
    let out = ""
    let err = ""
    const waiting = new Set<() => void>()
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn(process.execPath, [...node, ...args], {
          cwd,
          env: { ...process.env, LEASEHOLD_MYSQL_URL: url ?? "" },
          stdio: ["pipe", "pipe", "pipe"]
        })
      ),
      (running) => Effect.sync(() => running.kill("SIGKILL"))
    )
    child.stdin.end(stdin ?? "")
    child.stdout.on("data", (chunk: Buffer) => {
      out += String(chunk)
      for (const look of waiting) look()
    })
    child.stderr.on("data", (chunk: Buffer) => {
      err += String(chunk)
      for (const look of waiting) look()
    })
    child.on("close", (code, signal) =>
      Deferred.unsafeDone(
        ended,
        Effect.succeed({ code: code ?? -1, out, err: signal === null ? err : `${err}${signal}` })
      )
    )
    return {
      signal: (signal) => Effect.sync(() => void child.kill(signal)),
      says: (text, within = "1 minute") =>
        Effect.async<void>((resume) => {
          const look = () => {
            if (`${out}\n${err}`.includes(text)) resume(Effect.sync(() => waiting.delete(look)))
          }
          waiting.add(look)
          look()
        }).pipe(
          Effect.timeoutFail({
            duration: within,
            onTimeout: () => new Error(`the command never said "${text}", but: ${out} ${err}`)
          }),
          Effect.orDie
        ),
      ended: Deferred.await(ended)
    }
  })

/** Runs it as a process of its own, to its end. */
export const commandProcess = (args: ReadonlyArray<string>, settings: Settings = {}): Effect.Effect<Ran> =>
  Effect.scoped(Effect.flatMap(start(args, settings), ({ ended }) => ended))
