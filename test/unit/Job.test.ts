import { describe, expect, it } from "@effect/vitest"
import { Context, Data, Duration, Effect, Layer, Option, Ref, Schema } from "effect"
import * as Job from "../../src/Job.js"
import { Retryable } from "../../src/JobFailure.js"
import { JobId } from "../../src/JobRecord.js"
import type { Outcome } from "../../src/Outcome.js"
import * as Payload from "../../src/Payload.js"
import * as RetryPolicy from "../../src/RetryPolicy.js"

class Missing extends Data.TaggedError("Missing")<{ readonly id: number }> {}

const Count = Job.make("count", {
  payload: { n: Schema.NumberFromString },
  success: Schema.Struct({ doubled: Schema.NumberFromString }),
  error: Schema.declare((error: unknown): error is Missing => error instanceof Missing),
  failures: { Missing: "permanent" }
})

const lease: Job.AttemptLease = {
  jobId: JobId.make("7"),
  token: 3,
  attempt: 2,
  worker: "w",
  jobType: "count",
  queue: "default",
  attemptsLeft: Option.some(1),
  lost: Effect.never,
  renew: Effect.void,
  completeEncoded: (effect) => Effect.map(effect, ([, value]) => value)
}

type Stored = Parameters<Job.Runnable["perform"]>[0]

/** One attempt, from the stored payload to its outcome. */
const perform = (runnable: Job.Runnable, stored: Stored): Effect.Effect<Option.Option<Outcome>> =>
  runnable
    .perform(stored, lease, (handler, judge) =>
      Effect.zipWith(Effect.exit(Effect.scoped(handler)), Payload.Limit, (exit, limit) =>
        judge(exit, Option.none(), limit)
      )
    )
    .pipe(Effect.provide(runnable.context))

/** One attempt of a job under a handler. */
const attempt = <Type extends string, P, S, E, EX, RX>(
  job: Job.Job<Type, P, S, E>,
  handlers: Layer.Layer<Job.JobHandler<Type>, EX, RX>,
  payload: string | null,
  payloadVersion = 1
): Effect.Effect<Option.Option<Outcome>, EX, RX> =>
  Effect.flatMap(Job.handlerTag(job.type), (runnable) => perform(runnable, { payload, payloadVersion })).pipe(
    Effect.provide(handlers)
  )

const outcomeOf = <A extends Option.Option<Outcome>, E, R>(attempt: Effect.Effect<A, E, R>) =>
  Effect.map(attempt, Option.getOrNull)

describe("the definition of a job", () => {
  it("has defaults for all that is left out", () => {
    const job = Job.make("a.b:c/d-e_f", { payload: {} })
    expect(job).toMatchObject({
      type: "a.b:c/d-e_f",
      queue: "default",
      priority: 5,
      timeout: Option.none(),
      version: 1,
      retry: RetryPolicy.standard,
      invalid: Option.none(),
      idempotencyKey: Option.none()
    })
  })

  it("keeps what is given", () => {
    const retry = RetryPolicy.fixed({ delay: "1 second", maxAttempts: "unlimited" })
    const job = Job.make("x", {
      payload: { id: Schema.Number },
      queue: "q".repeat(64),
      priority: 0,
      timeout: "1 millis",
      retry,
      version: 65_535,
      idempotencyKey: ({ id }) => `key:${id}`
    })
    expect(job).toMatchObject({ queue: "q".repeat(64), priority: 0, retry, version: 65_535, invalid: Option.none() })
    expect(job.timeout).toEqual(Option.some(Duration.millis(1)))
    expect(Option.map(job.idempotencyKey, (key) => key({ id: 4 }))).toEqual(Option.some("key:4"))
  })

  const names = [
    "",
    " ",
    "a b",
    "a\n",
    "a\u0000",
    "ä",
    "\u{1F600}",
    "a'b",
    "a`b",
    "a;b",
    "a%",
    "*",
    "a\\b",
    "x".repeat(65)
  ]

  it.each(names)("with the type or queue %j is invalid, and says which", (name) => {
    expect(Job.make(name, { payload: {} }).invalid).toMatchObject(
      Option.some({ _tag: "InvalidName", kind: "job type", name })
    )
    expect(Job.make("x", { payload: {}, queue: name }).invalid).toMatchObject(
      Option.some({ _tag: "InvalidName", kind: "queue", name })
    )
  })

  it("can be checked for its names and its priority before there is one", () => {
    expect(names.filter(Job.isValidName)).toEqual([])
    expect([undefined, 7, "a.b:c/d-e_f"].filter(Job.isValidName)).toEqual(["a.b:c/d-e_f"])
    expect([-1, 0, 1.5, 9, 10, NaN, "5", undefined].filter(Job.isPriority)).toEqual([0, 9])
  })

  it.each<readonly [string, Partial<Parameters<typeof Job.make>[1]>]>([
    ["priority", { priority: -1 }],
    ["priority", { priority: 10 }],
    ["priority", { priority: 1.5 }],
    ["priority", { priority: NaN }],
    ["priority", { priority: "5" as never }],
    ["version", { version: 0 }],
    ["version", { version: 65_536 }],
    ["version", { version: 1.5 }],
    ["version", { version: NaN }],
    ["timeout", { timeout: 0 }],
    ["timeout", { timeout: -1 }],
    ["timeout", { timeout: NaN }],
    ["timeout", { timeout: Infinity }],
    ["timeout", { timeout: "soon" as never }],
    ["timeout", { timeout: "366 days" }],
    ["retry.maxAttempts", { retry: RetryPolicy.exponential({ maxAttempts: 0 }) }],
    ["retry.jitter", { retry: RetryPolicy.exponential({ jitter: 2 }) }]
  ])("with its %s out of range is invalid: %j", (option, options) => {
    const job = Job.make("x", { payload: {}, ...options } as { readonly payload: {} })
    expect(Option.map(job.invalid, ({ _tag }) => _tag)).toEqual(Option.some("InvalidOption"))
    expect(job.invalid).toMatchObject(Option.some({ option }))
    expect(Option.getOrThrow(job.invalid).message).toContain(option)
  })
})

describe("one attempt", () => {
  const doubling = Count.toLayer(({ n }) => Effect.succeed({ doubled: n * 2 }))

  it.effect("runs the handler on the decoded payload and encodes its success", () =>
    Effect.gen(function* () {
      const outcome = yield* outcomeOf(attempt(Count, doubling, '{"n":"21"}'))
      expect(outcome).toEqual({ _tag: "Completed", output: '{"doubled":"42"}' })
    })
  )

  it.effect("gives the handler its lease", () =>
    Effect.gen(function* () {
      const seen = yield* Ref.make<ReadonlyArray<unknown>>([])
      const handlers = Count.toLayer((_, { attempt, jobId, token, worker }) =>
        Effect.as(Ref.set(seen, [jobId, token, attempt, worker]), { doubled: 0 })
      )
      yield* attempt(Count, handlers, '{"n":"1"}')
      expect(yield* Ref.get(seen)).toEqual(["7", 3, 2, "w"])
    })
  )

  it.effect("gives the handler a lease that can be copied by spreading, and holds nothing else", () =>
    Effect.gen(function* () {
      const seen = yield* Ref.make<object>({})
      const handlers = Count.toLayer((_, held) => Effect.as(Ref.set(seen, { ...held }), { doubled: 0 }))
      yield* attempt(Count, handlers, '{"n":"1"}')
      const { completeEncoded: _, ...shared } = lease
      expect(yield* Ref.get(seen)).toEqual({ ...shared, completeWith: expect.any(Function) })
    })
  )

  it.effect("of a payload that can not be decoded is dead without running, and quotes nothing of it", () =>
    Effect.gen(function* () {
      const handlers = Count.toLayer(() => Effect.die("the handler ran"))
      for (const text of ['{"n":5}', "{", "", null, '"hunter2"', '{"n":"hunter2"}']) {
        const outcome = yield* outcomeOf(attempt(Count, handlers, text))
        expect(outcome).toMatchObject({ _tag: "Dead", code: "payload_invalid" })
        expect(JSON.stringify(outcome)).not.toContain("hunter2")
      }
    })
  )

  it.effect("whose output can not be stored is dead, since the work is done", () =>
    Effect.gen(function* () {
      const Output = Job.make("output", { payload: {}, success: Schema.Unknown })
      for (const output of [NaN, () => 1, new Date(), "x".repeat(2_000_000)]) {
        const outcome = yield* outcomeOf(
          attempt(
            Output,
            Output.toLayer(() => Effect.succeed(output)),
            "{}"
          )
        )
        expect(outcome).toMatchObject({ _tag: "Dead", code: "output_invalid" })
      }
      const small = attempt(
        Output,
        Output.toLayer(() => Effect.succeed("four")),
        "{}"
      )
      expect(yield* outcomeOf(Effect.provideService(small, Payload.Limit, 5))).toMatchObject({ code: "output_invalid" })
      expect(yield* outcomeOf(Effect.provideService(small, Payload.Limit, 6))).toMatchObject({ _tag: "Completed" })
    })
  )

  it.effect("of a job without a success stores no output", () =>
    Effect.gen(function* () {
      const Plain = Job.make("plain", { payload: Schema.Void })
      const outcome = yield* outcomeOf(
        attempt(
          Plain,
          Plain.toLayer(() => Effect.void),
          null
        )
      )
      expect(outcome).toEqual({ _tag: "Completed", output: null })
    })
  )

  it.effect("is judged by the job's failures table, by the library's failures, or as a defect", () =>
    Effect.gen(function* () {
      const ended = (handler: Effect.Effect<{ readonly doubled: number }, Missing | Retryable>) =>
        outcomeOf(
          attempt(
            Count,
            Count.toLayer(() => handler),
            '{"n":"1"}'
          )
        )
      expect(yield* ended(Effect.fail(new Missing({ id: 1 })))).toMatchObject({ _tag: "Dead", code: "Missing" })
      expect(yield* ended(Effect.fail(new Retryable({ code: "c", message: "m" })))).toMatchObject({ code: "c" })
      expect(yield* ended(Effect.die("x"))).toMatchObject({ _tag: "Retry", code: "defect" })
      const throwing = Count.toLayer((): Effect.Effect<{ readonly doubled: number }> => {
        throw new Error("before any effect")
      })
      const outcome = yield* outcomeOf(attempt(Count, throwing, '{"n":"1"}'))
      expect(outcome).toMatchObject({ _tag: "Retry", code: "defect" })
    })
  )

  it.effect("closes the handler's scope when it ends, each time", () =>
    Effect.gen(function* () {
      const events = yield* Ref.make<ReadonlyArray<string>>([])
      const note = (event: string) => Ref.update(events, (all) => [...all, event])
      const handlers = Count.toLayer(() =>
        Effect.acquireRelease(note("opened"), () => note("closed")).pipe(
          Effect.zipRight(note("worked")),
          Effect.zipRight(Effect.fail(new Missing({ id: 1 })))
        )
      )
      yield* attempt(Count, handlers, '{"n":"1"}')
      expect(yield* Ref.get(events)).toEqual(["opened", "worked", "closed"])
    })
  )

  it.effect("has the services that were there when its layer was built", () =>
    Effect.gen(function* () {
      class Factor extends Context.Tag("test/Factor")<Factor, number>() {}
      const built = yield* Ref.make(0)
      const handlers = Count.toLayer(
        Effect.gen(function* () {
          yield* Ref.update(built, (times) => times + 1)
          const outer = yield* Factor
          return ({ n }: { readonly n: number }) => Effect.map(Factor, (inner) => ({ doubled: n * outer * inner }))
        })
      ).pipe(Layer.provide(Layer.succeed(Factor, 3)))
      const runnable = yield* Effect.provide(Job.handlerTag("count"), handlers)
      const stored = { payload: '{"n":"2"}', payloadVersion: 1 }
      for (let turn = 0; turn < 3; turn++) {
        const outcome = yield* outcomeOf(perform(runnable, stored))
        expect(outcome).toMatchObject({ output: '{"doubled":"18"}' })
      }
      expect(yield* Ref.get(built)).toBe(1)
    })
  )
})

describe("a payload of another version", () => {
  const versioned = (migratePayload?: { readonly [from: number]: (encoded: unknown) => unknown }) =>
    Job.make("versioned", {
      payload: { full: Schema.String },
      version: 3,
      ...(migratePayload === undefined ? {} : { migratePayload })
    })
  const steps = {
    1: (encoded: unknown) => ({ name: String(Object(encoded).first) }),
    2: (encoded: unknown) => ({ full: `${Object(encoded).name}!` })
  }
  const reason = (job: ReturnType<typeof versioned>, text: string, version: number) =>
    Effect.map(Effect.flip(job.payload.decodeVersion(text, version)), (error) => `${error._tag} ${error.reason}`)

  it.effect("goes through each step up to the job's own", () =>
    Effect.gen(function* () {
      const job = versioned(steps)
      expect(yield* job.payload.decodeVersion('{"first":"a"}', 1)).toEqual({ full: "a!" })
      expect(yield* job.payload.decodeVersion('{"name":"b"}', 2)).toEqual({ full: "b!" })
      expect(yield* job.payload.decodeVersion('{"full":"c"}', 3)).toEqual({ full: "c" })
    })
  )

  it.effect("is refused where a step is missing, throws, or answers what the schema does not take", () =>
    Effect.gen(function* () {
      expect(yield* reason(versioned(), "{}", 1)).toMatch(/^PayloadInvalid .*version 1/)
      expect(yield* reason(versioned({ 1: steps[1] }), "{}", 1)).toMatch(/^PayloadInvalid .*version 2/)
      const throwing = versioned({
        ...steps,
        2: () => {
          throw new Error("hunter2")
        }
      })
      expect(yield* reason(throwing, "{}", 1)).toMatch(/^PayloadInvalid/)
      expect(yield* reason(throwing, "{}", 1)).not.toContain("hunter2")
      expect(yield* reason(versioned({ ...steps, 2: () => 5 }), "{}", 1)).toMatch(/^PayloadInvalid/)
      expect(yield* reason(versioned(steps), "{", 1)).toMatch(/^PayloadInvalid/)
    })
  )

  it.effect("that is newer than the job is refused, not guessed at", () =>
    Effect.gen(function* () {
      expect(yield* reason(versioned(steps), '{"full":"x"}', 4)).toMatch(/^PayloadInvalid/)
    })
  )
})
