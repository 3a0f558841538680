/**
 * One command of the program: how it is parsed, what it does, and its page of help.
 */
import * as CliConfig from "@effect/cli/CliConfig"
import * as Command from "@effect/cli/Command"
import { Console, Context, Effect, Logger, LogLevel, Option, type Types } from "effect"
import { CommandFailed, type Failure } from "./Failure.js"
import * as StopRequest from "./StopRequest.js"

export interface Page {
  /** One line, for the list of commands. */
  readonly summary: string
  /** Paragraphs of the command's own page. */
  readonly about?: ReadonlyArray<string>
  readonly examples: ReadonlyArray<string>
}

/**
 * A command whose work is interrupted by SIGINT and SIGTERM, so that what it has open is closed. `stopsByItself`: it listens
 * to them on its own.
 */
export const make = <const Name extends string, const Config extends Command.Command.Config, E extends Failure, R>(
  name: Name,
  page: Page,
  config: Config,
  handler: (given: Types.Simplify<Command.Command.ParseConfig<Config>>) => Effect.Effect<void, E, R>,
  { stopsByItself = false }: { readonly stopsByItself?: boolean } = {}
) => {
  const command = Command.make(name, config, (given) =>
    spoken(stopsByItself ? handler(given) : apart(Effect.raceFirst(handler(given), stopped)))
  ).pipe(Command.withDescription(page.summary))
  return { name, page, command, usage: Command.getUsage(command), doc: Command.getHelp(command, helpConfig) }
}

const helpConfig = CliConfig.make({ showBuiltIns: false })

/** What the library logs goes to stderr, from warnings on, so that stdout holds the result alone. */
const apart = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  effect.pipe(
    Logger.withMinimumLogLevel(LogLevel.Warning),
    Effect.provide(Logger.replace(Logger.defaultLogger, Logger.withConsoleError(Logger.stringLogger)))
  )

const stopped = Effect.flatMap(StopRequest.requested, (code) =>
  Effect.fail(new CommandFailed({ code, message: "Stopped by a signal before it was done." }))
)

/** The console as it was before the parser's own was taken away. */
export class Voice extends Context.Reference<Voice>()("leasehold/cli/Voice", {
  defaultValue: (): Option.Option<Console.Console> => Option.none()
}) {}

const spoken = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.flatMap(
    Voice,
    Option.match({ onNone: () => effect, onSome: (console) => Console.withConsole(effect, console) })
  )
