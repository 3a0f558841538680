/**
 * A job: a value with its name, the schemas of its payload, result and failures, and how it is to be run.
 *
 * @module
 */
import { Context, type Duration, Effect, Either, type Exit, Layer, Option, Schema, type Scope } from "effect"
import { type Definition, findInvalid } from "./Definition.js"
import { type JobFailure, toOutcome, type Verdict } from "./JobFailure.js"
import type { JobId } from "./JobRecord.js"
import type { HandlerLease, SettleError } from "./Lease.js"
import { Completed, Dead, fromExit, type Interpreter, type Interruption, type Outcome } from "./Outcome.js"
import * as Payload from "./Payload.js"
import { PayloadInvalid } from "./QueueError.js"
import * as RetryPolicy from "./RetryPolicy.js"

export { type Definition, isPriority, isValidName } from "./Definition.js"

export interface Job<in out Type extends string, in out Payload, in out Success, in out Error> extends Definition {
  readonly type: Type
  readonly payload: Payload.Codec<Payload> & {
    /** Decodes a payload that was stored under `version`, by way of the job's migration steps. */
    readonly decodeVersion: (text: string | null, version: number) => Effect.Effect<Payload, PayloadInvalid>
  }
  readonly success: Payload.Codec<Success>
  readonly failures: { readonly [tag: string]: Verdict<never> | undefined }
  /** The key of an enqueue that names none. */
  readonly idempotencyKey: Option.Option<(payload: Payload) => string>
  /**
   * The layer that handles this job. `build` is the handler, or an effect that makes it: services that it takes from the
   * context are taken once, when the layer is built.
   */
  readonly toLayer: <H extends Handler<Payload, Success, Error>, EX = never, RX = never>(
    build: H | Effect.Effect<H, EX, RX>
  ) => Layer.Layer<JobHandler<Type>, EX, Exclude<RX, Scope.Scope> | Exclude<Requirements<H>, Scope.Scope>>
}

/** Any job, for lists of them. */
export type Any = Definition & { readonly type: string }

/** What a handler is: a function of the payload and the lease. `R` may hold a `Scope`, which ends with the attempt. */
export type Handler<Payload, Success, Error, R = unknown> = (
  payload: Payload,
  lease: HandlerLease<Success>
) => Effect.Effect<Success, Error | JobFailure, R>

/** The services that a handler needs. */
export type Requirements<H> = H extends (...args: never) => Effect.Effect<infer _A, infer _E, infer R> ? R : never

/** The service that stands for the handler of the job with this type. It is provided by `job.toLayer`. */
export interface JobHandler<in out Type extends string> {
  /**
   * Keeps this service apart from all others; there is no value of it.
   *
   * @internal
   */
  readonly _: unique symbol
  readonly type: Type
}

/** The handlers that a list of jobs needs. */
export type HandlersOf<J> = J extends { readonly type: infer Type extends string } ? JobHandler<Type> : never

/** What a worker gives to an attempt beside the lease's own data. */
export interface AttemptLease extends Omit<HandlerLease<never>, "completeWith"> {
  /** As `HandlerLease.completeWith`, on an effect whose success is already encoded beside its value. */
  readonly completeEncoded: <A, E, R>(
    effect: Effect.Effect<readonly [output: string | null, value: A], E, R>
  ) => Effect.Effect<A, E | SettleError, R>
}

/**
 * What an attempt came to, by how its handler ended and why it was interrupted if it was; none when the lease was lost.
 * An output of more bytes than `outputLimit` is an outcome, too.
 */
export type Judge<A, E> = (
  exit: Exit.Exit<A, E>,
  interruption: Option.Option<Interruption>,
  outputLimit: number
) => Option.Option<Outcome>

/** A job with its handler, its types closed over. */
export interface Runnable {
  readonly job: Definition
  /** What the layer of the handler captured: `perform` is to run in it. */
  readonly context: Context.Context<never>
  /** One attempt: gives `run` the handler on the stored payload, and the judge of its end. Its scope is the attempt's. */
  readonly perform: <Z>(
    stored: { readonly payload: string | null; readonly payloadVersion: number },
    lease: AttemptLease,
    run: <A, E>(handler: Effect.Effect<A, E, Scope.Scope>, judge: Judge<A, E>) => Z
  ) => Z
}

/** The tag under which the handler of a job type is found. */
export const handlerTag = <Type extends string>(type: Type): Context.Tag<JobHandler<Type>, Runnable> =>
  Context.GenericTag<JobHandler<Type>, Runnable>(`leasehold/JobHandler/${type}`)

/** What the `payload` option takes: struct fields, or any schema whose encoded form is JSON. */
export type PayloadOption = Schema.Struct.Fields | Schema.Schema.AnyNoContext

/** The decoded payload of the `payload` option. */
export type PayloadOf<P extends PayloadOption> = P extends Schema.Schema.AnyNoContext
  ? Schema.Schema.Type<P>
  : P extends Schema.Struct.Fields
    ? Schema.Simplify<Schema.Struct.Type<P>>
    : never

/** Refuses, at compile time, an `error` that has a member without a `_tag`. */
export type TaggedOnly<E> = [E] extends [{ readonly _tag: string }]
  ? {}
  : { readonly error: "every member of `error` must have a `_tag`" }

/** The `failures` option: required, and exhaustive, where the job has errors of its own. */
export type FailuresOption<E> = [E] extends [never]
  ? { readonly failures?: never }
  : [E] extends [{ readonly _tag: string }]
    ? {
        /** For each tag of `error`: `"retry"`, `"permanent"`, or a function that answers which. Exhaustive. */
        readonly failures: { readonly [Tag in E["_tag"]]: Verdict<Extract<E, { readonly _tag: Tag }>> }
      }
    : {}

/** A step for each version: it gets the encoded form of that version and answers that of the next. One that throws makes the job dead. */
export type MigrationSteps = Readonly<Record<number, (encoded: unknown) => unknown>>

/** What {@link make} takes. */
export interface Options<P extends PayloadOption, S extends Schema.Schema.AnyNoContext, E extends Schema.Schema.All> {
  /** Struct fields, or any schema whose encoded form is JSON. */
  readonly payload: P
  /** Default `Schema.Void`. Stored as the job's output. */
  readonly success?: S
  /** Default `Schema.Never`. The handler's own failures; each must have a `_tag`. */
  readonly error?: E
  readonly queue?: string
  readonly priority?: number
  readonly timeout?: Duration.DurationInput
  readonly retry?: RetryPolicy.RetryPolicy
  /** The key of an enqueue that names none: two enqueues with the same key are one job. */
  readonly idempotencyKey?: (payload: PayloadOf<P>) => string
  readonly version?: number
  /** For each version below `version`: from the encoded form of that version to that of the next. */
  readonly migratePayload?: MigrationSteps
}

/**
 * Defines a job. `type` and `queue` match `[A-Za-z0-9_.:/-]{1,64}`; the type is what rows carry, so renaming it strands the
 * rows that were enqueued under the old one.
 *
 * A definition with an option out of range is reported as `InvalidOption` or `InvalidName` by the first enqueue, claim or
 * worker that uses it.
 */
export const make = <
  const Type extends string,
  P extends PayloadOption,
  S extends Schema.Schema.AnyNoContext = typeof Schema.Void,
  E extends Schema.Schema.All = typeof Schema.Never
>(
  type: Type,
  options: Options<P, S, E> & TaggedOnly<Schema.Schema.Type<E>> & FailuresOption<Schema.Schema.Type<E>>
): Job<Type, PayloadOf<P>, Schema.Schema.Type<S>, Schema.Schema.Type<E>> => {
  const payloadSchema: Schema.Schema<PayloadOf<P>, unknown> = Schema.isSchema(options.payload)
    ? options.payload
    : (Schema.Struct(options.payload as Schema.Struct.Fields) as never)
  const version = options.version ?? 1
  const payload = Payload.codec(payloadSchema, type, "payload")
  // Where the option is left out, S is its default, `typeof Schema.Void`: the two sides of `??` have the same type.
  const successSchema = (options.success ?? Schema.Void) as Schema.Schema<Schema.Schema.Type<S>, unknown>
  const success = Payload.codec(successSchema, type, "output")
  const failures = (options as { readonly failures?: Job<Type, unknown, unknown, unknown>["failures"] }).failures ?? {}
  const timeout = options.timeout === undefined ? Option.none() : RetryPolicy.finite(options.timeout)
  const definition: Definition = {
    type,
    queue: options.queue ?? "default",
    priority: options.priority ?? 5,
    timeout,
    retry: options.retry ?? RetryPolicy.standard,
    version,
    invalid: findInvalid(type, { ...options, version })
  }
  const job: Job<Type, PayloadOf<P>, Schema.Schema.Type<S>, Schema.Schema.Type<E>> = {
    ...definition,
    type,
    payload: {
      encode: payload.encode,
      decode: payload.decode,
      decodeVersion: (text, stored) =>
        stored === version
          ? payload.decode(text)
          : Effect.flatMap(upgrade(type, text, stored, version, options.migratePayload ?? {}), payload.decodeJson)
    },
    success,
    failures,
    idempotencyKey: Option.fromNullable(options.idempotencyKey),
    toLayer: (build) => layer(job, build)
  }
  return job
}

const layer = <Type extends string, P, S, E, H extends Handler<P, S, E>, EX, RX>(
  job: Job<Type, P, S, E>,
  build: H | Effect.Effect<H, EX, RX>
): Layer.Layer<JobHandler<Type>, EX, Exclude<RX, Scope.Scope> | Exclude<Requirements<H>, Scope.Scope>> =>
  Layer.scoped(
    handlerTag(job.type),
    Effect.gen(function* () {
      const handler = Effect.isEffect(build) ? yield* build : build
      const context = yield* Effect.context<Exclude<Requirements<H>, Scope.Scope>>()
      // The worker provides `context`, which holds all that the handler needs but the scope of the attempt, and that scope.
      const handle = handler as Handler<P, S, E, Scope.Scope>
      return { job, context: context as Context.Context<never>, perform: performWith(job, handle) }
    })
  )

const performWith =
  <Type extends string, P, S, E>(job: Job<Type, P, S, E>, handle: Handler<P, S, E, Scope.Scope>): Runnable["perform"] =>
  (stored, lease, run) =>
    run(
      handled(job.payload.decodeVersion(stored.payload, stored.payloadVersion), (payload) =>
        handle(payload, new TypedLease(job, lease))
      ),
      (exit: Exit.Exit<Either.Either<S, Outcome>, E | JobFailure>, interruption, outputLimit) =>
        fromExit(exit, interruption, new Interpretation(job, outputLimit))
    )

/** Left: what the attempt came to before its handler was asked. */
const handled = <P, S, E, R>(
  decoded: Effect.Effect<P, PayloadInvalid>,
  handle: (payload: P) => Effect.Effect<S, E, R>
): Effect.Effect<Either.Either<S, Outcome>, E, R> => {
  const answered = (payload: P) => Effect.map(handle(payload), asRight)
  // Nearly every payload is decoded at once.
  if (!Payload.isImmediate(decoded)) return Effect.matchEffect(decoded, { onFailure: undecoded, onSuccess: answered })
  return Either.isRight(decoded) ? Effect.suspend(() => answered(decoded.right)) : undecoded(decoded.left)
}

const asRight = <S>(value: S): Either.Either<S, Outcome> => Either.right(value)

const undecoded = (error: PayloadInvalid): Effect.Effect<Either.Either<never, Outcome>> =>
  Effect.succeed(Either.left(Dead({ code: "payload_invalid", message: error.message })))

class Interpretation<Type extends string, P, S, E> implements Interpreter<Either.Either<S, Outcome>, E | JobFailure> {
  constructor(
    private readonly job: Job<Type, P, S, E>,
    private readonly outputLimit: number
  ) {}

  success(value: Either.Either<S, Outcome>): Outcome {
    return Either.isRight(value) ? encodeOutput(this.job, value.right, this.outputLimit) : value.left
  }

  failure(error: E | JobFailure): Option.Option<Outcome> {
    return toOutcome(error as { readonly _tag: string }, this.job.failures)
  }
}

/** The work is done and would be done again by a retry, with the same output: so the job ends, and says why it has none. */
const encodeOutput = <Type extends string, P, S, E>(job: Job<Type, P, S, E>, value: S, limit: number): Outcome => {
  const encoded = Either.flatMap(job.success.encode(value), (text) =>
    Payload.checkSize(text, job.type, "output", limit)
  )
  return Either.isRight(encoded)
    ? Completed({ output: encoded.right })
    : Dead({ code: "output_invalid", message: encoded.left.message })
}

/**
 * As the handler sees its lease: with `completeWith` on results that are not encoded yet. All members are its own, so that a copy by
 * spreading has them; and nothing else is, since a program that logs its lease must not log a payload (law 8).
 */
class TypedLease<Type extends string, P, S, E> implements HandlerLease<S> {
  readonly jobId: JobId
  readonly token: number
  readonly attempt: number
  readonly worker: string
  readonly jobType: string
  readonly queue: string
  readonly attemptsLeft: Option.Option<number>
  readonly lost: HandlerLease<S>["lost"]
  readonly renew: HandlerLease<S>["renew"]
  readonly completeWith: HandlerLease<S>["completeWith"]

  constructor(job: Job<Type, P, S, E>, lease: AttemptLease) {
    this.jobId = lease.jobId
    this.token = lease.token
    this.attempt = lease.attempt
    this.worker = lease.worker
    this.jobType = lease.jobType
    this.queue = lease.queue
    this.attemptsLeft = lease.attemptsLeft
    this.lost = lease.lost
    this.renew = lease.renew
    this.completeWith = (effect) =>
      lease.completeEncoded(
        Effect.flatMap(effect, (value) => Effect.map(outputText(job, value), (output) => [output, value] as const))
      )
  }
}

/** An output as text, for a settlement by hand: what is over the limit is `PayloadInvalid`, too. */
export const outputText = <Type extends string, P, S, E>(
  job: Job<Type, P, S, E>,
  value: S
): Effect.Effect<string | null, PayloadInvalid> =>
  Effect.gen(function* () {
    const text = yield* job.success.encode(value)
    return yield* Payload.checkSize(text, job.type, "output", yield* Payload.Limit)
  }).pipe(
    Effect.catchTag("PayloadTooLarge", ({ limit, size }) =>
      Effect.fail(
        new PayloadInvalid({ jobType: job.type, part: "output", reason: `it has ${size} bytes; the limit is ${limit}` })
      )
    )
  )

const upgrade = (
  type: string,
  text: string | null,
  stored: number,
  version: number,
  steps: MigrationSteps
): Effect.Effect<unknown, PayloadInvalid> =>
  Effect.suspend(() => {
    try {
      let encoded: unknown = text === null ? undefined : JSON.parse(text)
      for (let from = stored; from < version; from++) {
        const step = steps[from]
        if (step === undefined) return Effect.fail(noStep(type, from))
        encoded = step(encoded)
      }
      return stored > version ? Effect.fail(noStep(type, stored)) : Effect.succeed(encoded)
    } catch {
      return Effect.fail(new PayloadInvalid({ jobType: type, part: "payload", reason: "migratePayload threw" }))
    }
  })

const noStep = (jobType: string, from: number) =>
  new PayloadInvalid({ jobType, part: "payload", reason: `migratePayload has no step from version ${from}` })
