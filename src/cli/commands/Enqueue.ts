/**
 * Enqueue by hand: the rules and the statement of the library, but no schema, so the payload is taken as JSON that the caller
 * vouches for.
 */
import * as Args from "@effect/cli/Args"
import * as Options from "@effect/cli/Options"
import * as FileSystem from "@effect/platform/FileSystem"
import { DateTime, type Duration, Effect, Option, Schema } from "effect"
import * as Job from "../../Job.js"
import * as Queue from "../../Queue.js"
import * as RetryPolicy from "../../RetryPolicy.js"
import * as Connection from "../Connection.js"
import * as ExactJson from "../ExactJson.js"
import { type CommandFailed, usage } from "../Failure.js"
import * as Output from "../Output.js"
import * as Stdin from "../Stdin.js"
import * as Values from "../Values.js"
import * as Verb from "../Verb.js"
import { json } from "./Read.js"

export const enqueue = Verb.make(
  "enqueue",
  {
    summary: "Adds one job",
    about: [
      "The command does not know the schema of the job: the payload must be the encoded form that its handler expects, and "
        + "queue, version and budget are those given here, not those of the job's definition. A payload that does not fit "
        + "makes a dead job. Without a payload the job has none, as that of Schema.Void."
    ],
    examples: [
      "leasehold enqueue order.export '{\"orderId\":42}' --queue orders",
      "leasehold enqueue order.export '{\"orderId\":42}' --queue orders --key export:42 --scope tenant-7",
      "leasehold enqueue report.build --file payload.json --delay '10 minutes'",
      "jq -n '{orderId: 42}' | leasehold enqueue order.export - --queue orders"
    ]
  },
  {
    ...Connection.options,
    type: Args.text({ name: "type" }).pipe(Args.withDescription("The type of the job")),
    payload: Args.text({ name: "payload" }).pipe(
      Args.withDescription("Its payload as JSON; - reads it from stdin"),
      Args.optional
    ),
    file: Options.text("file").pipe(
      Options.withPseudoName("path"),
      Options.withDescription("Read the payload from this file"),
      Options.optional
    ),
    queue: Options.text("queue").pipe(
      Options.withPseudoName("name"),
      Options.withDescription("The queue. Default: default"),
      Options.withDefault("default")
    ),
    priority: Values.wholeNumber("priority", 0, 9).pipe(
      Options.withDescription("0 (first) to 9. Default: 5"),
      Options.withDefault(5)
    ),
    delay: Options.text("delay").pipe(
      Options.withPseudoName("duration"),
      Options.withDescription('Run it after this time, such as "10 minutes"'),
      Options.optional
    ),
    runAt: Options.text("run-at").pipe(
      Options.withPseudoName("time"),
      Options.withDescription("Run it at this time: 2026-12-24T18:00:00Z, with a zone"),
      Options.optional
    ),
    key: Options.text("key").pipe(
      Options.withDescription("Idempotency key: a replay answers the first job's id"),
      Options.optional
    ),
    scope: Options.text("scope").pipe(Options.withDescription("Scope of the key. Default: none"), Options.optional),
    maxAttempts: Options.text("max-attempts").pipe(
      Options.withPseudoName("number"),
      Options.withDescription("1 to 65535, or unlimited. Default: 10"),
      Options.withDefault("10")
    ),
    version: Values.wholeNumber("payload-version", 1, 65_535).pipe(
      Options.withDescription("Version of the payload's encoded form. Default: 1"),
      Options.withDefault(1)
    ),
    json
  },
  (given) =>
    Effect.gen(function* () {
      const payload = yield* payloadOf(given)
      const when = yield* whenOf(given)
      const maxAttempts = given.maxAttempts === "unlimited" ? given.maxAttempts : wholeNumberOf(given.maxAttempts)
      if (Option.isSome(given.scope) && Option.isNone(given.key)) return yield* usage("Option --scope needs --key.")
      const job = Job.make(given.type, {
        payload: Schema.Unknown,
        queue: given.queue,
        version: given.version,
        retry: RetryPolicy.exponential({ maxAttempts })
      })
      const idempotency = Option.match(given.key, {
        onNone: () => ({}),
        onSome: (key) => ({
          idempotency: { key, ...Option.match(given.scope, { onNone: () => ({}), onSome: (scope) => ({ scope }) }) }
        })
      })
      const { created, id } = yield* Queue.enqueue(job, payload, {
        priority: given.priority,
        ...when,
        ...idempotency
      }).pipe(Effect.provide(Connection.queue(given)))
      yield* Output.either(
        given.json,
        () => ({ id, created }),
        () => [created ? `Job ${id} is enqueued.` : `Job ${id} has this key already: nothing was added.`]
      )
    })
)

/** NaN, which the library refuses with what it accepts, for all that is no number. */
const wholeNumberOf = (text: string): number => (/^[0-9]{1,9}$/.test(text) ? Number(text) : Number.NaN)

/** The payload from where it was given, checked to be JSON that survives; undefined where there is none. */
const payloadOf = (given: {
  readonly payload: Option.Option<string>
  readonly file: Option.Option<string>
}): Effect.Effect<unknown, CommandFailed, FileSystem.FileSystem> =>
  Effect.gen(function* () {
    if (Option.isSome(given.file)) {
      if (Option.isSome(given.payload))
        return yield* usage("Give the payload as an argument, or by --file, but not both.")
      const files = yield* FileSystem.FileSystem
      const text = yield* files
        .readFileString(given.file.value)
        .pipe(
          Effect.mapError(() =>
            usage(`The file ${JSON.stringify(given.file.pipe(Option.getOrThrow))} can not be read.`)
          )
        )
      return yield* ExactJson.parse(text)
    }
    if (Option.isNone(given.payload)) return undefined
    return yield* ExactJson.parse(given.payload.value === "-" ? yield* Stdin.read : given.payload.value)
  })

const whenOf = (given: { readonly delay: Option.Option<string>; readonly runAt: Option.Option<string> }) =>
  Effect.gen(function* () {
    if (Option.isSome(given.delay) && Option.isSome(given.runAt)) {
      return yield* usage("Give --delay or --run-at, but not both.")
    }
    // Checked by the library, which refuses what is no duration.
    if (Option.isSome(given.delay)) return { delay: given.delay.value as Duration.DurationInput }
    if (Option.isNone(given.runAt)) return {}
    const text = given.runAt.value
    const time = /^\d{4,6}-\d{2}-\d{2}T.*(Z|[+-]\d{2}:?\d{2})$/.test(text) ? DateTime.make(text) : Option.none()
    if (Option.isNone(time)) {
      return yield* usage(
        `Option --run-at is ${JSON.stringify(text.slice(0, 80))}; accepted: a time with its zone, such as 2026-12-24T18:00:00Z.`
      )
    }
    return { runAt: time.value }
  })
