/**
 * The program: all commands, and one run of it, from its arguments to its exit code.
 */
import { readFileSync } from "node:fs"
import * as CliConfig from "@effect/cli/CliConfig"
import * as Command from "@effect/cli/Command"
import * as HelpDoc from "@effect/cli/HelpDoc"
import * as ValidationError from "@effect/cli/ValidationError"
import { Cause, Console, Effect, Option, Schema } from "effect"
import { redactSecrets } from "../Attempt.js"
import * as Arguments from "./Arguments.js"
import { bench } from "./commands/Bench.js"
import { doctor } from "./commands/Doctor.js"
import { enqueue } from "./commands/Enqueue.js"
import { migrate } from "./commands/Migrate.js"
import { cancel, pause, resume, retry } from "./commands/Operate.js"
import { counts, list, show, why } from "./commands/Read.js"
import { work } from "./commands/Work.js"
import { ExitCode } from "./ExitCode.js"
import { explain, type Failure, usage } from "./Failure.js"
import * as Help from "./Help.js"
import * as Output from "./Output.js"
import * as Verb from "./Verb.js"

const verbs = [migrate, doctor, counts, list, show, why, retry, cancel, pause, resume, enqueue, bench, work] as const

const topics: ReadonlyArray<Help.Topic> = verbs

const root = Command.make("leasehold").pipe(
  Command.withSubcommands([
    migrate.command,
    doctor.command,
    counts.command,
    list.command,
    show.command,
    why.command,
    retry.command,
    cancel.command,
    pause.command,
    resume.command,
    enqueue.command,
    bench.command,
    work.command
  ])
)

const version: Effect.Effect<string> = Effect.sync(() => {
  const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8")
  return Schema.decodeUnknownSync(Schema.parseJson(Schema.Struct({ version: Schema.String })))(text).version
})

/** Runs the command with the arguments that follow its name; answers its exit code. Prints; never fails. */
export const run = (args: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const wanted = helpWanted(args)
    if (wanted !== undefined) {
      const topic = topics.find(({ name }) => name === wanted)
      yield* Output.lines(topic === undefined ? Help.overview(yield* version, topics) : Help.pageOf(topic))
      return ExitCode.done
    }
    const mistake = Arguments.mistake(args, topics)
    if (Option.isSome(mistake)) return yield* usage(mistake.value)
    yield* parseAndRun(args)
    return ExitCode.done
  }).pipe(Effect.catchAllCause(report))

/** The command whose page is asked for; the empty text for the overview; undefined where no help is asked for. */
const helpWanted = (args: ReadonlyArray<string>): string | undefined => {
  const own = args.includes("--") ? args.slice(0, args.indexOf("--")) : args
  if (args[0] === undefined || args[0] === "help") return args[1] ?? ""
  return own.includes("--help") || own.includes("-h") ? args[0] : undefined
}

/** The parser would print its own errors; here they are one line like all others, so its voice is taken away. */
const parseAndRun = (args: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const console = yield* Effect.console
    const cli = Command.run(root, { name: "leasehold", version: yield* version })
    yield* cli(["node", "leasehold", ...args]).pipe(
      Effect.provide(CliConfig.layer({ isCaseSensitive: true, showBuiltIns: false })),
      Console.withConsole({ ...console, log: (text) => console.log(withChoices(text)), error: () => Effect.void }),
      Effect.provideService(Verb.Voice, Option.some(console)),
      Effect.mapError((error) =>
        ValidationError.isValidationError(error)
          ? usage(`${textOf(error.error)} See leasehold ${args[0] ?? ""} --help.`)
          : error
      )
    )
  })

/** The parser's completions for bash offer the words of a choice as one word, with commas. */
const withChoices = (text: unknown): unknown =>
  typeof text === "string"
    ? text.replace(/compgen -W "([a-z,]+)"/g, (_, words: string) => `compgen -W "${words.replaceAll(",", " ")}"`)
    : text

// What was typed in the wrong place may be the URL with its password, and the parser quotes it.
const textOf = (doc: HelpDoc.HelpDoc): string => {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences of colours
  const plain = HelpDoc.toAnsiText(doc).replace(/\u001b\[[0-9;]*m/g, "")
  const sentence = redactSecrets(plain).replace(/\s+/g, " ").trim()
  return /[.!?]$/.test(sentence) ? sentence : `${sentence}.`
}

const report = (cause: Cause.Cause<Failure>) =>
  Effect.gen(function* () {
    if (Cause.isInterruptedOnly(cause)) return yield* Effect.failCause(cause as Cause.Cause<never>)
    const failure = Cause.failureOption(cause)
    if (Option.isNone(failure)) {
      yield* Output.progress(
        `leasehold: something unexpected happened, please report it.\n${redactSecrets(Cause.pretty(cause))}`
      )
      return ExitCode.unexpected
    }
    const { code, message } = explain(failure.value)
    if (message !== "") yield* Output.progress(`leasehold: ${Output.printable(message)}`)
    return code
  })
