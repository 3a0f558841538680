/**
 * Runs the layer that a module exports, until it is asked to stop.
 */
import { pathToFileURL } from "node:url"
import * as Args from "@effect/cli/Args"
import * as Options from "@effect/cli/Options"
import * as FileSystem from "@effect/platform/FileSystem"
import * as Path from "@effect/platform/Path"
import type * as MysqlClient from "@effect/sql-mysql2/MysqlClient"
import { Cause, Effect, Exit, Layer, Option } from "effect"
import * as MysqlQueue from "../../MysqlQueue.js"
import * as Connection from "../Connection.js"
import { ExitCode } from "../ExitCode.js"
import { CommandFailed, explain, isLibraryError, usage } from "../Failure.js"
import * as Output from "../Output.js"
import * as StopRequest from "../StopRequest.js"
import * as Verb from "../Verb.js"

/** What a module's layer may ask for: the queue and its SQL client, in the database of the command. */
export type Provided = Layer.Layer.Success<ReturnType<typeof MysqlQueue.layer>> | MysqlClient.MysqlClient

export const work = Verb.make(
  "work",
  {
    summary: "Runs the worker that a module exports, until SIGTERM or SIGINT",
    about: [
      "The module exports a layer, such as Worker.layer(…) with its handlers provided. Where the URL of a database is known, "
        + "the layer may ask for the queue and its SQL client, which are then those of that database; else it brings its own. "
        + "The default export is taken, or the one that --export names.",
      "SIGTERM or SIGINT stops it as closing the layer does: no more claims, handlers get their grace, and the exit code is 0. "
        + "A second signal ends the process at once; its jobs are taken over when their leases end.",
      "A module in TypeScript needs a loader: NODE_OPTIONS='--import tsx' leasehold work worker.ts"
    ],
    examples: [
      "leasehold work ./dist/worker.js",
      "leasehold work ./dist/worker.js --export MailWorker",
      "NODE_OPTIONS='--import tsx' leasehold work worker.ts"
    ]
  },
  {
    module: Args.text({ name: "module" }).pipe(Args.withDescription("The file of the module")),
    url: Connection.url,
    prefix: Connection.prefix,
    export: Options.text("export").pipe(
      Options.withPseudoName("name"),
      Options.withDescription("The export that is the layer. Default: default"),
      Options.withDefault("default")
    ),
    migrate: Options.choice("migrate", ["verify", "auto", "off"] as const).pipe(
      Options.withDescription("What to do about the tables first: verify (the default), auto, off"),
      Options.withDefault("verify" as const)
    )
  },
  (given) =>
    Effect.gen(function* () {
      const layer = yield* load(given.module, given.export)
      const place = yield* Connection.find(given.url)
      // A refusal is told better by the first look than by the layers of the queue.
      if (Option.isSome(place)) yield* Effect.scoped(Connection.connect({ ...given, timeout: "5 seconds" }))
      const complete = Option.isSome(place)
        ? provide(layer, place.value, given)
        : (layer as Layer.Layer<unknown, unknown>)
      const working = Output.progress(`leasehold: ${given.module} works; SIGTERM or SIGINT stops it.`)
      const ended = yield* Effect.exit(
        Effect.raceFirst(
          Effect.scoped(Layer.build(complete).pipe(Effect.zipRight(working), Effect.zipRight(Effect.never))),
          Effect.tap(StopRequest.requested, () =>
            Output.progress("leasehold: stopping; a second signal does not wait.")
          )
        )
      )
      if (Exit.isFailure(ended)) return yield* failureOf(ended.cause, given.module, Option.isSome(place))
      yield* Output.progress("leasehold: stopped.")
    }),
  { stopsByItself: true }
)

/** A module can export a layer of any type: what it asks for beyond what is provided is found when it is built. */
const provide = (
  layer: Layer.Layer<unknown, unknown, Provided>,
  place: Connection.Place,
  given: { readonly prefix: string; readonly migrate: "verify" | "auto" | "off" }
): Layer.Layer<unknown, unknown> =>
  layer.pipe(
    Layer.provide(MysqlQueue.layer({ migrate: given.migrate, tablePrefix: given.prefix })),
    Layer.provide(Connection.client(place))
  )

const load = (module: string, name: string) =>
  Effect.gen(function* () {
    const path = yield* Path.Path
    const files = yield* FileSystem.FileSystem
    const file = path.resolve(module)
    const isThere = yield* files.exists(file).pipe(Effect.orElseSucceed(() => false))
    if (!isThere) return yield* usage(`There is no file ${JSON.stringify(module)}.`)
    const exports = yield* Effect.tryPromise({
      try: (): Promise<Record<string, unknown>> => import(pathToFileURL(file).href),
      catch: (error) => notLoaded(module, error)
    })
    const layer = exports[name]
    if (Layer.isLayer(layer)) return layer as Layer.Layer<unknown, unknown, Provided>
    const layers = Object.keys(exports)
      .filter((key) => Layer.isLayer(exports[key]))
      .sort()
    return yield* usage(
      `${module} has no layer as its export ${JSON.stringify(name)}; `
        + (layers.length === 0 ? "it exports none." : `it exports these: ${layers.join(", ")}. Use --export.`)
    )
  })

const notLoaded = (module: string, error: unknown) =>
  codeOf(error) === "ERR_UNKNOWN_FILE_EXTENSION"
    ? usage(`Node can not load ${module} by itself: NODE_OPTIONS='--import tsx' leasehold work ${module}`)
    : usage(`${module} can not be loaded: ${messageOf(error)}`)

const codeOf = (error: unknown) =>
  typeof error === "object" && error !== null && "code" in error ? error.code : undefined

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** Why the layer could not be built, or fell. */
const failureOf = (cause: Cause.Cause<unknown>, module: string, connected: boolean): CommandFailed => {
  const error = Cause.squash(cause)
  if (isLibraryError(error)) return new CommandFailed(explain(error))
  const message = messageOf(error)
  const lacks = /^Service not found: (\S+)/.exec(message)?.[1]
  if (lacks !== undefined) {
    return usage(
      `The layer of ${module} asks for ${lacks}, which nothing provides`
        + (connected ? "." : `: give the database by --url or ${Connection.urlVariable}, or provide it in the module.`)
    )
  }
  return new CommandFailed({ code: ExitCode.unexpected, message: `The layer of ${module} failed: ${message}` })
}
