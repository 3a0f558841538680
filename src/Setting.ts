/**
 * Options of the services, checked before anything starts.
 */
import { Duration, Effect, Option } from "effect"
import { isValidName } from "./Definition.js"
import { InvalidName, InvalidOption } from "./QueueError.js"
import { finite } from "./RetryPolicy.js"

/** A duration within a range; `fallback` where the option is left out. Neither `NaN`, nor infinite, nor negative. */
export const duration = (
  option: string,
  value: Duration.DurationInput | undefined,
  fallback: Duration.DurationInput,
  least: Duration.DurationInput,
  most: Duration.DurationInput
): Effect.Effect<Duration.Duration, InvalidOption> => {
  const wanted = value ?? fallback
  // `finite` cuts what is longer than 365 days, which no range here exceeds: what was cut is out of range.
  const given = Option.filter(
    finite(wanted),
    (time) =>
      Duration.between(time, { minimum: least, maximum: most }) && Duration.equals(time, Duration.decode(wanted))
  )
  return Option.match(given, {
    onNone: () => Effect.fail(new InvalidOption({ option, value, accepted: `${show(least)} to ${show(most)}` })),
    onSome: Effect.succeed
  })
}

const show = (input: Duration.DurationInput) =>
  typeof input === "string" ? input : Duration.format(Duration.decode(input))

/** A whole number within a range; `fallback` where the option is left out. */
export const wholeNumber = (
  option: string,
  value: number | undefined,
  fallback: number,
  least: number,
  most: number
): Effect.Effect<number, InvalidOption> => {
  const wanted = value ?? fallback
  return Number.isInteger(wanted) && wanted >= least && wanted <= most
    ? Effect.succeed(wanted)
    : Effect.fail(new InvalidOption({ option, value, accepted: `a whole number from ${least} to ${most}` }))
}

/** One of a few words; the first where the option is left out. */
export const word = <Word extends string>(
  option: string,
  value: Word | undefined,
  words: readonly [Word, ...ReadonlyArray<Word>]
): Effect.Effect<Word, InvalidOption> => {
  const wanted = value ?? words[0]
  return words.includes(wanted)
    ? Effect.succeed(wanted)
    : Effect.fail(new InvalidOption({ option, value, accepted: words.map((each) => `"${each}"`).join(" or ") }))
}

/** A name that may stand in a row. */
export const name = (kind: InvalidName["kind"], value: unknown): Effect.Effect<string, InvalidName> =>
  isValidName(value) ? Effect.succeed(value) : Effect.fail(new InvalidName({ kind, name: String(value) }))
