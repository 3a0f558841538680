/**
 * Commands that change the fate of jobs: retry, cancel, pause, resume.
 */
import * as Args from "@effect/cli/Args"
import * as Options from "@effect/cli/Options"
import { Effect, Option } from "effect"
import { type JobFilter, JobStore } from "../../JobStore.js"
import * as Queue from "../../Queue.js"
import type { StoreError } from "../../QueueError.js"
import * as Connection from "../Connection.js"
import { ExitCode } from "../ExitCode.js"
import { CommandFailed, explain, type Failure, usage } from "../Failure.js"
import * as Filter from "../Filter.js"
import * as Output from "../Output.js"
import * as Verb from "../Verb.js"
import { json } from "./Read.js"

const ids = Args.text({ name: "id" }).pipe(Args.withDescription("Ids of jobs"), Args.repeated)

/** Jobs that one batch of a retry by filter looks at. */
const batchSize = 500

export const retry = Verb.make(
  "retry",
  {
    summary: "Brings dead or canceled jobs back: pending, due now, with a fresh budget",
    about: [
      "By ids, or all that match a filter, of which at least one part must be given. A filter means dead jobs, unless "
        + "--state canceled says otherwise: those were canceled on purpose. It works in batches, each durable by itself."
    ],
    examples: [
      "leasehold retry 1042 1043",
      "leasehold retry --queue orders --type order.export",
      "leasehold retry --state dead"
    ]
  },
  {
    ...Connection.options,
    ids,
    queue: Filter.queue,
    type: Filter.type,
    state: Options.choice("state", ["dead", "canceled"] as const).pipe(
      Options.withDescription("Jobs in this state: dead (the default of a filter) or canceled"),
      Options.optional
    ),
    json
  },
  (given) =>
    Effect.gen(function* () {
      const named = [given.queue, given.type, given.state].some(Option.isSome)
      if (named === given.ids.length > 0) {
        return yield* usage(
          "retry needs ids, or else a filter: --queue, --type, --state. All dead jobs: leasehold retry --state dead."
        )
      }
      const filter = yield* Filter.read({ ...given, state: Option.orElseSome(given.state, () => "dead" as const) })
      const work: Effect.Effect<void, Failure, Queue.Queue | JobStore> = named
        ? Effect.flatMap(retryMatching(filter), (retried) =>
            Output.either(
              given.json,
              () => ({ retried }),
              () => [`${retried} jobs are pending again.`]
            )
          )
        : each(given.ids, given.json, (id) => Effect.as(Queue.retry(id), "pending"))
      yield* Effect.provide(work, Connection.queue(given))
    })
)

const retryMatching = (filter: JobFilter): Effect.Effect<number, StoreError, JobStore> =>
  Effect.gen(function* () {
    const store = yield* JobStore
    let after = Option.some("")
    let retried = 0
    for (let batches = 1; Option.isSome(after); batches++) {
      const batch = yield* store.retryAll(filter, after.value, batchSize)
      retried += batch.retried
      after = batch.next
      if (batches % 20 === 0 && Option.isSome(after)) {
        yield* Output.progress(`${retried} jobs brought back so far, up to job ${after.value}`)
      }
    }
    return retried
  })

export const cancel = Verb.make(
  "cancel",
  {
    summary: "Cancels jobs: pending ones at once, running ones through their holder",
    about: [
      "canceled: it was pending and never runs. requested: its handler is interrupted within a third of its lease, and the "
        + "job ends canceled. Jobs that have ended are refused."
    ],
    examples: ["leasehold cancel 1042", "leasehold cancel 1042 1043 --json"]
  },
  {
    ...Connection.options,
    ids: Args.text({ name: "id" }).pipe(Args.withDescription("Ids of jobs"), Args.atLeast(1)),
    json
  },
  (given) =>
    each(given.ids, given.json, (id) =>
      Effect.flatMap(Queue.cancel(id), (answer) =>
        answer._tag === "ended"
          ? Effect.fail(new CommandFailed({ code: ExitCode.refused, message: `Job ${id} is ${answer.state} already.` }))
          : Effect.succeed(answer._tag)
      )
    ).pipe(Effect.provide(Connection.queue(given)))
)

/**
 * Does something to each job in turn. One that is refused does not hinder the others; a database that fails does. The code
 * is that of the last refusal.
 */
const each = <R>(ids: ReadonlyArray<string>, asJson: boolean, act: (id: string) => Effect.Effect<string, Failure, R>) =>
  Effect.gen(function* () {
    const answers: Array<{ readonly id: string; readonly did: string | null; readonly error: string | null }> = []
    for (const id of ids) {
      const answer = yield* Effect.either(act(id))
      if (answer._tag === "Right") {
        answers.push({ id, did: answer.right, error: null })
        if (!asJson) yield* Output.lines([`${id}  ${answer.right}`])
        continue
      }
      const { code, message } = explain(answer.left)
      if (code !== ExitCode.refused || ids.length === 1) return yield* answer.left
      answers.push({ id, did: null, error: message })
      yield* Output.progress(`leasehold: ${Output.printable(message)}`)
    }
    if (asJson) yield* Output.json(answers)
    const refused = answers.filter(({ error }) => error !== null).length
    if (refused > 0) {
      return yield* new CommandFailed({
        code: ExitCode.refused,
        message: `${refused} of ${ids.length} jobs were refused.`
      })
    }
  })

const queueName = Args.text({ name: "queue" }).pipe(Args.withDescription("The name of a queue"))

export const pause = Verb.make(
  "pause",
  {
    summary: "Stops the claims of a queue, everywhere, within one poll",
    about: ["Jobs under way go on, and jobs can be enqueued. counts shows what is paused."],
    examples: ["leasehold pause orders"]
  },
  { ...Connection.options, queue: queueName, json },
  (given) =>
    Queue.pause(given.queue).pipe(
      Effect.zipRight(
        Output.either(
          given.json,
          () => ({ queue: given.queue, paused: true }),
          () => [`Queue ${given.queue} is paused.`]
        )
      ),
      Effect.provide(Connection.queue(given))
    )
)

export const resume = Verb.make(
  "resume",
  { summary: "Ends the pause of a queue", examples: ["leasehold resume orders"] },
  { ...Connection.options, queue: queueName, json },
  (given) =>
    Queue.resume(given.queue).pipe(
      Effect.zipRight(
        Output.either(
          given.json,
          () => ({ queue: given.queue, paused: false }),
          () => [`Queue ${given.queue} is open.`]
        )
      ),
      Effect.provide(Connection.queue(given))
    )
)
