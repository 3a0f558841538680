/**
 * The options that choose jobs.
 */
import * as Options from "@effect/cli/Options"
import { Effect, Option } from "effect"
import { JobState } from "../JobRecord.js"
import type { JobFilter } from "../JobStore.js"
import type { InvalidName } from "../QueueError.js"
import * as Setting from "../Setting.js"
import { type CommandFailed, usage } from "./Failure.js"

export const queue = Options.text("queue").pipe(
  Options.withPseudoName("name"),
  Options.withDescription("Only jobs of this queue"),
  Options.optional
)

export const type = Options.text("type").pipe(
  Options.withPseudoName("name"),
  Options.withDescription("Only jobs of this type"),
  Options.optional
)

export const state = Options.choice("state", JobState.literals).pipe(
  Options.withDescription(`Only jobs in this state: ${JobState.literals.join(", ")}`),
  Options.optional
)

export const options = { queue, type, state }

export interface Given {
  readonly queue: Option.Option<string>
  readonly type: Option.Option<string>
  readonly state: Option.Option<JobState>
}

/** Names are checked here, since one that no job can have would only match nothing. */
export const read = (given: Given): Effect.Effect<JobFilter, InvalidName> =>
  Effect.gen(function* () {
    const named = (kind: "queue" | "job type", name: Option.Option<string>) =>
      Option.isNone(name) ? Effect.succeedNone : Effect.asSome(Setting.name(kind, name.value))
    const queueName = yield* named("queue", given.queue)
    const typeName = yield* named("job type", given.type)
    return {
      ...Option.match(queueName, { onNone: () => ({}), onSome: (name) => ({ queue: name }) }),
      ...Option.match(typeName, { onNone: () => ({}), onSome: (name) => ({ type: name }) }),
      ...Option.match(given.state, { onNone: () => ({}), onSome: (one) => ({ state: one }) })
    }
  })

/** A cursor is an id, or nothing for the start. */
export const cursor = (text: string): Effect.Effect<string, CommandFailed> =>
  /^[0-9]{0,20}$/.test(text)
    ? Effect.succeed(text)
    : Effect.fail(usage("Option --after is no cursor; accepted: the id of a job, as the page before shows it."))
