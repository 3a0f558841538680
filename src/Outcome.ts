/**
 * How one attempt ended, and the one pure mapping from a handler's `Exit` to it.
 *
 * @module
 */
import { Cause, Data, type Duration, Exit, Option } from "effect"

/**
 * What is written for an attempt:
 *
 * - `Completed`: the job succeeded; `output` is its encoded result, or null.
 * - `Retry`: it failed and runs again by its retry policy, no sooner than `retryAfter`; without budget it is dead.
 * - `Dead`: it failed for good.
 * - `Snooze`: it asked to run later; the attempt is given back.
 * - `Canceled`: somebody canceled it while it ran.
 * - `Released`: it was given back untouched, as at shutdown; the attempt is given back and the job is due at once.
 */
export type Outcome = Data.TaggedEnum<{
  Completed: { readonly output: string | null }
  Retry: { readonly code: string; readonly message: string; readonly retryAfter: Option.Option<Duration.DurationInput> }
  Dead: { readonly code: string; readonly message: string }
  Snooze: { readonly delay: Duration.DurationInput }
  Canceled: {}
  Released: {}
}>

/** Makes outcomes, and tells them apart. */
export const Outcome = Data.taggedEnum<Outcome>()

/** The job succeeded. */
export const Completed = Outcome.Completed
/** The attempt failed, and another one may follow. */
export const Retry = Outcome.Retry
/** The job failed for good. */
export const Dead = Outcome.Dead
/** The job runs later, at no cost. */
export const Snooze = Outcome.Snooze
/** The job was canceled while it ran. */
export const Canceled = Outcome.Canceled
/** The job is given back untouched. */
export const Released = Outcome.Released

/** Why the library interrupted a handler. */
export type Interruption = "timeout" | "canceled" | "lost" | "shutdown"

/** What the job definition knows about its own successes and failures. */
export interface Interpreter<A, E> {
  /** What a success is written as. */
  readonly success: (value: A) => Outcome
  /** None: ownership is lost, so nothing may be written. */
  readonly failure: (error: E) => Option.Option<Outcome>
}

/**
 * The outcome of a handler that ended with `exit`; none when the lease was lost, since then nothing may be written.
 *
 * The first line that fits decides:
 *
 * | the handler | outcome |
 * |---|---|
 * | was interrupted because the lease was lost, or failed with `LeaseLost` | none |
 * | was interrupted by a cancel, whatever it then answered | Canceled |
 * | ran into its timeout, whatever it then answered | Retry, code `timeout` |
 * | succeeded | Completed |
 * | failed with a permanent failure, also as one of several parallel failures | Dead |
 * | failed otherwise with a declared error or `Retryable` | Retry |
 * | died of a defect | Retry, code `defect` |
 * | asked to snooze | Snooze |
 * | was interrupted by the worker's shutdown | Released |
 * | interrupted itself | Retry, code `interrupted` |
 */
export const fromExit = <A, E>(
  exit: Exit.Exit<A, E>,
  interruption: Option.Option<Interruption>,
  interpret: Interpreter<A, E>
): Option.Option<Outcome> => {
  if (Option.contains(interruption, "lost")) return Option.none()
  const failures = Exit.isFailure(exit)
    ? Array.from(Cause.failures(exit.cause), (error) => interpret.failure(error))
    : []
  if (failures.some(Option.isNone)) return Option.none()
  if (Option.contains(interruption, "canceled")) return Option.some(Canceled())
  if (Option.contains(interruption, "timeout")) return Option.some(timedOut)
  if (Exit.isSuccess(exit)) return Option.some(interpret.success(exit.value))
  const outcomes = failures.flatMap((failure) => Option.toArray(failure))
  const first = (tag: Outcome["_tag"]) => Option.fromNullable(outcomes.find((outcome) => outcome._tag === tag))
  return first("Dead").pipe(
    Option.orElse(() => first("Retry")),
    Option.orElse(() =>
      Option.map(Option.fromIterable(Cause.defects(exit.cause)), (defect) =>
        Retry({ code: "defect", message: describe(defect), retryAfter: Option.none() })
      )
    ),
    Option.orElse(() => Option.fromNullable(outcomes[0])),
    Option.orElse(() =>
      Option.some(
        Option.contains(interruption, "shutdown")
          ? Released()
          : Retry({ code: "interrupted", message: "The handler interrupted itself", retryAfter: Option.none() })
      )
    )
  )
}

const timedOut = Retry({
  code: "timeout",
  message: "The handler ran longer than the job's timeout",
  retryAfter: Option.none()
})

/**
 * One line about a value that was thrown. Anything can be thrown: objects whose `message` or `toString` throws, proxies,
 * circular structures. This never throws, and cuts what it finds at 10,000 characters.
 */
export const describe = (thrown: unknown): string => {
  try {
    const text =
      thrown instanceof Error
        ? `${thrown.name}: ${thrown.message}`
        : typeof thrown === "object" && thrown !== null
          ? `${Object.prototype.toString.call(thrown)}${"message" in thrown ? ` ${String(thrown.message)}` : ""}`
          : String(thrown)
    return text.slice(0, 10_000)
  } catch {
    return "A value was thrown that cannot be shown"
  }
}
