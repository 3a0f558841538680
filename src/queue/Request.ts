/**
 * From a job, its payload and the options of an enqueue to what the store writes; everything is checked before any SQL.
 */
import { Array as Arrays, Clock, DateTime, Duration, Effect, Either, Option } from "effect"
import { invalidPriority, isPriority } from "../Definition.js"
import type * as Job from "../Job.js"
import type { NewJob } from "../JobStore.js"
import * as Payload from "../Payload.js"
import {
  type InvalidName,
  InvalidOption,
  KeyInvalid,
  type PayloadInvalid,
  type PayloadTooLarge,
  TimeInvalid
} from "../QueueError.js"
import * as TraceContext from "../TraceContext.js"

/**
 * When a job is to run: after a delay, or at a time, but not both. Left out: now. A time in the past is now.
 *
 * Both are kept to the microsecond, which is what the database's clock counts. A `DateTime` that was made of a number or a
 * text has whole milliseconds; `DateTime.addDuration(date, "123 micros")` has more, and so has every time of a `JobRecord`.
 */
export type When =
  | { readonly delay?: Duration.DurationInput; readonly runAt?: never }
  | { readonly runAt?: DateTime.DateTime; readonly delay?: never }

/** What concerns every job of an enqueue. */
export type CommonOptions = When & {
  /** Fails with `NotInTransaction` where none of the queue's SQL client is open. */
  readonly requireTransaction?: boolean
  /** 0 (first) to 9; default the job's. */
  readonly priority?: number
}

/** What concerns one enqueue. */
export type EnqueueOptions = CommonOptions & {
  /**
   * Makes the enqueue a replay of an earlier one with the same scope and key. Wins over the job's `idempotencyKey`. `key` has
   * 1 to 255 bytes of UTF-8, `scope` up to 255, default none.
   */
  readonly idempotency?: { readonly scope?: string; readonly key: string }
}

/** What is refused before anything is sent. */
export type RequestError = InvalidName | InvalidOption | PayloadInvalid | PayloadTooLarge | KeyInvalid | TimeInvalid

/** One job to enqueue: the encoded form of a payload, with all options decided. */
export const make = <Type extends string, P, S, E>(
  job: Job.Job<Type, P, S, E>,
  payload: P,
  options: EnqueueOptions = {}
): Effect.Effect<NewJob, RequestError> =>
  Effect.flatMap(surroundings(options), (around) => encode(job, payload, options, around))

/** Jobs of one type, each as {@link make} would make it. */
export const makeAll = <Type extends string, P, S, E>(
  job: Job.Job<Type, P, S, E>,
  payloads: ReadonlyArray<P>,
  options: CommonOptions = {}
): Effect.Effect<ReadonlyArray<NewJob>, RequestError> =>
  Effect.flatMap(surroundings(options), (around) =>
    inStretches(payloads, (some) => Either.all(some.map((payload) => encode(job, payload, options, around))))
  )

/** Jobs that are encoded at a stretch, some 5 ms: whatever else the process does waits meanwhile, its renewals too. */
const stretch = 2_000

/** Does something for many, with a turn of the event loop between, which lets timers and answers of the database have theirs. */
export const inStretches = <A, B, E, R>(
  all: ReadonlyArray<A>,
  act: (some: ReadonlyArray<A>) => Effect.Effect<ReadonlyArray<B>, E, R>
): Effect.Effect<ReadonlyArray<B>, E, R> =>
  all.length <= stretch
    ? Effect.suspend(() => act(all))
    : Effect.map(
        Effect.forEach(Arrays.chunksOf(all, stretch), (some) => Effect.zipLeft(act(some), nextTurn)),
        Arrays.flatten
      )

// A yield of the fiber would let other fibers go on, but no timer and no answer.
const nextTurn = Effect.async<void>((resume) => {
  const immediate = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(immediate))
})

type Surroundings = Pick<NewJob, "due" | "traceContext"> & { readonly limit: number }

const surroundings = (options: CommonOptions): Effect.Effect<Surroundings, RequestError> =>
  Effect.zipWith(
    Effect.zip(Payload.Limit, TraceContext.current),
    dueOf(options),
    ([limit, traceContext], due): Surroundings => ({ limit, traceContext, due })
  )

// Plain steps, neither effects nor a generator: a bulk makes tens of thousands of these.
const encode = <Type extends string, P, S, E>(
  job: Job.Job<Type, P, S, E>,
  payload: P,
  options: EnqueueOptions,
  { due, limit, traceContext }: Surroundings
): Either.Either<NewJob, RequestError> => {
  if (Option.isSome(job.invalid)) return Either.left(job.invalid.value)
  const priority = options.priority ?? job.priority
  if (!isPriority(priority)) return Either.left(invalidPriority(priority))
  const encoded = job.payload.encode(payload)
  if (Either.isLeft(encoded)) return Either.left(encoded.left)
  const text = Payload.checkSize(encoded.right, job.type, "payload", limit)
  if (Either.isLeft(text)) return Either.left(text.left)
  const keyOfJob = Option.map(job.idempotencyKey, (keyOf) => keyOf(payload))
  const identity = checkIdentity(options.idempotency, keyOfJob)
  if (Either.isLeft(identity)) return Either.left(identity.left)
  const { maxAttempts } = job.retry
  return Either.right({
    queue: job.queue,
    type: job.type,
    priority,
    payload: text.right,
    payloadVersion: job.version,
    maxAttempts: maxAttempts === "unlimited" ? Option.none() : Option.some(maxAttempts),
    due,
    idempotency: Option.map(identity.right, ({ key, scope }) => ({
      scope,
      key,
      fingerprint: Payload.fingerprint(job.type, job.queue, text.right)
    })),
    traceContext
  })
}

const longestText = 255
const loneSurrogate = /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/

/** The scope and key of `idempotency`, or none where neither the enqueue nor the job names a key. */
export const checkIdentity = (
  given: EnqueueOptions["idempotency"],
  keyOfJob: Option.Option<string> = Option.none()
): Either.Either<Option.Option<{ readonly scope: string; readonly key: string }>, KeyInvalid> => {
  const scope = given?.scope ?? ""
  // A job whose function answers no text has no valid key, and must not be added without one.
  if (given === undefined && Option.isNone(keyOfJob)) return Either.right(Option.none())
  const key: unknown = given === undefined ? Option.getOrUndefined(keyOfJob) : given.key
  if (!fits(scope, 0)) return Either.left(new KeyInvalid({ part: "scope", size: sizeOf(scope) }))
  if (!fits(key, 1)) return Either.left(new KeyInvalid({ part: "key", size: sizeOf(key) }))
  return Either.right(Option.some({ scope, key }))
}

const sizeOf = (text: unknown): number => (typeof text === "string" ? Buffer.byteLength(text) : 0)

const fits = (text: unknown, least: number): text is string =>
  typeof text === "string" && sizeOf(text) >= least && sizeOf(text) <= longestText && !loneSurrogate.test(text)

/** 9999-12-31T23:59:59Z, the last second that a column can hold. */
const lastTime = 253_402_300_799_000

const dueOf = ({
  delay,
  runAt
}: {
  readonly delay?: unknown
  readonly runAt?: unknown
}): Effect.Effect<NewJob["due"], TimeInvalid | InvalidOption> => {
  if (delay !== undefined && runAt !== undefined) {
    return Effect.fail(new InvalidOption({ option: "runAt", value: "beside delay", accepted: "either delay or runAt" }))
  }
  if (delay !== undefined) return dueAfter(delay)
  if (runAt === undefined) return Effect.succeedNone
  if (!DateTime.isDateTime(runAt) || !(runAt.epochMillis <= lastTime)) {
    return Effect.fail(new TimeInvalid({ option: "runAt" }))
  }
  return Effect.succeed(runAt.epochMillis <= 0 ? Option.none() : Option.some({ at: DateTime.toUtc(runAt) }))
}

const dueAfter = (delay: unknown): Effect.Effect<NewJob["due"], TimeInvalid> =>
  Effect.flatMap(Clock.currentTimeMillis, (now) => {
    const invalid = Effect.fail(new TimeInvalid({ option: "delay" }))
    // `Duration.decode` makes zero of negative numbers and NaN, which would run at once what was meant to wait.
    if ((typeof delay === "number" || typeof delay === "bigint") && !(delay >= 0)) return invalid
    if (typeof delay === "string" && delay.trim().startsWith("-")) return invalid
    if (Array.isArray(delay) && delay.some((part) => !(part >= 0))) return invalid
    return Option.match(Duration.decodeUnknown(delay), {
      onNone: () => invalid,
      onSome: (after) => {
        // The delay counts from the database's clock, which may be a day ahead of this one at most.
        const fits = Duration.isFinite(after) && now + Duration.toMillis(after) <= lastTime - 86_400_000
        if (!fits) return invalid
        return Effect.succeed(Duration.toMillis(after) === 0 ? Option.none() : Option.some({ after }))
      }
    })
  })
