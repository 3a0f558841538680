import { SqlClient } from "@effect/sql"
import { MysqlClient } from "@effect/sql-mysql2"
import { expect, layer } from "@effect/vitest"
import { Effect, Fiber, Layer, Option, Redacted, Ref, Schema } from "effect"
import { Job, MysqlQueue, Payload, Queue, Worker } from "../../src/index.js"
import { Database, database, emptyDatabase } from "../support/Mysql.js"
import { queue } from "../support/QueueOnMysql.js"

/** A job that answers what it is given. */
const echoOn = (queueName: string) =>
  Job.make("echo", { payload: Schema.Unknown, success: Schema.Unknown, queue: queueName })

const workOn = <T extends string, P, S, E>(job: Job.Job<T, P, S, E>) =>
  ({ jobs: [job], queues: { [job.queue]: { concurrency: 4 } }, poll: "50 millis" }) as const

/** Values through the whole life: enqueued alone and in a transaction, handled, answered, and read back. */
const roundTrip = (queueName: string, values: ReadonlyArray<unknown>) =>
  Effect.gen(function* () {
    const job = echoOn(queueName)
    const sql = yield* SqlClient.SqlClient
    const seen = yield* Ref.make<ReadonlyArray<unknown>>([])
    const handler = job.toLayer((value) =>
      Effect.as(
        Ref.update(seen, (before) => [...before, value]),
        value
      )
    )
    const ids = [
      ...(yield* Effect.forEach(values, (value) => Queue.enqueue(job, value))),
      ...(yield* sql.withTransaction(Queue.enqueueAll(job, values)))
    ]
    const worker = yield* Effect.fork(Effect.provide(Worker.run(workOn(job)), handler))
    const results = yield* Effect.forEach(ids, ({ id }) => Queue.result(job, id))
    yield* Fiber.interrupt(worker)
    expect(results).toEqual([...values, ...values])
    expect(yield* Ref.get(seen)).toHaveLength(values.length * 2)
    return yield* Effect.forEach(ids, ({ id }) => Queue.get(id))
  })

const nested = (levels: number): unknown => {
  let value: unknown = "end"
  for (let level = 0; level < levels; level++) value = { deeper: [value] }
  return value
}

const texts = [
  "\u{1F600} \u{1F468}\u200D\u{1F469}\u200D\u{1F467} \uFFFF \u202E אבג \u0000 start",
  "\u0000",
  "middle \u0000 of it",
  "'; DROP TABLE leasehold_jobs; -- \\ \" ` % _ ? :a\n\r\t\u2028",
  "\ud83d\ude00".slice(0, 1)
]

layer(queue(), { excludeTestServices: true, timeout: "2 minutes" })("a payload", (it) => {
  it.effect("comes to the handler, and a result to the caller, as JSON says it", () =>
    Effect.gen(function* () {
      const values = [
        "text",
        "{}",
        '{"a":1}',
        "null",
        "",
        0,
        -1.5,
        0.1 + 0.2,
        Number.MAX_SAFE_INTEGER,
        Number.MIN_VALUE,
        1e300,
        null,
        true,
        [],
        [[], {}, [null]],
        { bbb: 1, a: 2 },
        { "": "empty", constructor: "c", toString: "t" },
        JSON.parse('{"__proto__":{"polluted":true}}'),
        Object.fromEntries(Array.from({ length: 5_000 }, (_, n) => [`key ${n}`, n])),
        nested(100),
        nested(200)
      ]
      const records = yield* roundTrip("json", values)
      expect(records.map(({ payload }) => payload)).toEqual(
        [...values, ...values].map((value) => JSON.stringify(value))
      )
      expect(records.map(({ output }) => output)).toEqual(
        [...values, ...values].map((value) => Option.some(JSON.stringify(value)))
      )
      expect(Object.prototype).not.toHaveProperty("polluted")
    })
  )

  it.effect(
    "keeps whole numbers above 2^53 exact where its schema makes text of them, and is refused where it does not",
    () =>
      Effect.gen(function* () {
        const big = Job.make("big", { payload: Schema.BigInt, success: Schema.BigInt, queue: "big" })
        const raw = echoOn("big-raw")
        const numbers = [9007199254740993n, 7088992364139642880n, -(2n ** 200n)]
        const handler = big.toLayer((n) => Effect.succeed(n + 1n))
        const ids = yield* Queue.enqueueAll(big, numbers)
        const worker = yield* Effect.fork(Effect.provide(Worker.run(workOn(big)), handler))
        const results = yield* Effect.forEach(ids, ({ id }) => Queue.result(big, id))
        yield* Fiber.interrupt(worker)
        expect(results).toEqual(numbers.map((n) => n + 1n))
        for (const value of [1n, { a: 1n }, Number.POSITIVE_INFINITY, Number.NaN, -0, undefined]) {
          const outcome = yield* Effect.either(Queue.enqueue(raw, value))
          if (outcome._tag === "Left") expect(outcome.left._tag).toBe("PayloadInvalid")
          // What JSON makes of minus zero, and undefined by a text of its own.
          else expect([-0, undefined].some((accepted) => Object.is(accepted, value))).toBe(true)
        }
      })
  )

  it.effect("that is no JSON is refused by a typed error, and never by an exception", () =>
    Effect.gen(function* () {
      const job = echoOn("odd")
      const circular: Record<string, unknown> = {}
      circular["self"] = circular
      const odd: ReadonlyArray<unknown> = [
        () => 1,
        Symbol("s"),
        new Date(0),
        new Map([[1, 2]]),
        new Set([1]),
        new Uint8Array(2),
        circular,
        {
          get a() {
            throw new Error("secret 4242")
          }
        },
        {
          toJSON() {
            throw new Error("secret 4242")
          }
        },
        { toJSON: () => undefined },
        { a: undefined, b: () => 1 },
        [undefined],
        new Proxy(
          {},
          {
            ownKeys: () => {
              throw new Error("secret 4242")
            }
          }
        ),
        new (class Point {
          x = 1
        })(),
        nested(10_000)
      ]
      const outcomes = yield* Effect.forEach(odd, (value) => Effect.either(Queue.enqueue(job, value)))
      const accepted = outcomes.flatMap((outcome, index) => (outcome._tag === "Right" ? [index] : []))
      for (const outcome of outcomes) {
        if (outcome._tag === "Right") continue
        expect(outcome.left._tag).toBe("PayloadInvalid")
        expect(outcome.left.message).not.toContain("4242")
      }
      expect(accepted.map((index) => odd[index])).toEqual([])
    })
  )

  it.effect("may be answered by a result that is no JSON: its job ends all the same, and says why", () =>
    Effect.gen(function* () {
      const job = echoOn("odd-results")
      const odd: ReadonlyArray<() => unknown> = [
        () => 1n,
        () => Number.NaN,
        () => new Date(0),
        () => nested(10_000),
        () => ({
          toJSON() {
            throw new Error("secret 4242")
          }
        }),
        () => "x".repeat(1024 * 1024)
      ]
      const handler = job.toLayer((index) => Effect.sync(odd[Number(index)] ?? (() => "none")))
      const ids = yield* Queue.enqueueAll(
        job,
        odd.map((_, index) => index)
      )
      const worker = yield* Effect.fork(Effect.provide(Worker.run(workOn(job)), handler))
      for (const { id } of ids) {
        const dead = yield* Effect.flip(Queue.result(job, id))
        expect(dead).toMatchObject({ _tag: "JobDead", code: "output_invalid" })
        expect(dead.message).not.toContain("4242")
        expect(yield* Queue.get(id)).toMatchObject({ attempt: 1, output: Option.none() })
      }
      yield* Fiber.interrupt(worker)
    })
  )

  it.effect("is text of any character, kept exactly, or refused: lone surrogates are never changed silently", () =>
    Effect.gen(function* () {
      const records = yield* roundTrip("unicode", [...texts, Object.fromEntries(texts.map((text) => [text, text]))])
      expect(records).toHaveLength(12)
    })
  )

  it.effect("has a limit in bytes, which the refusal names, without what the payload says", () =>
    Effect.gen(function* () {
      const job = echoOn("sizes")
      const limit = 1024 * 1024
      const quotes = 2
      const refused = yield* Effect.flip(Queue.enqueue(job, "secret".padEnd(limit - quotes + 1, "x")))
      expect(refused).toMatchObject({ _tag: "PayloadTooLarge", size: limit + 1, limit })
      expect(`${refused.message} ${JSON.stringify(refused)}`).not.toContain("secret")
      const wide = yield* Effect.flip(Queue.enqueue(job, "\u{1F600}".repeat(limit / 4)))
      expect(wide).toMatchObject({ _tag: "PayloadTooLarge", size: limit + 2 })
      const values = [
        "x".repeat(65_535 - quotes),
        "x".repeat(65_536 - quotes),
        "\u{1F600}".repeat(16_384),
        "x".repeat(limit - quotes)
      ]
      const sql = yield* SqlClient.SqlClient
      for (const value of values) {
        const ids = [
          yield* Queue.enqueue(job, value),
          yield* sql.withTransaction(Effect.zipRight(sql`SET SESSION sql_mode = ''`, Queue.enqueue(job, value)))
        ]
        for (const { id } of ids) expect((yield* Queue.get(id)).payload === JSON.stringify(value)).toBe(true)
      }
    })
  )

  it.effect("of nearly sixteen megabytes is stored where the limit allows it, and one that is larger is refused", () =>
    Effect.gen(function* () {
      const job = echoOn("huge")
      const limit = 16 * 1024 * 1024
      const enqueue = (value: string) => Effect.provideService(Queue.enqueue(job, value), Payload.Limit, limit)
      expect(yield* Effect.flip(enqueue("x".repeat(limit)))).toMatchObject({ _tag: "PayloadTooLarge", limit })
      for (const value of ["x".repeat(limit - 3), "\u{1F600}".repeat(limit / 4 - 1)]) {
        const { id } = yield* enqueue(value)
        expect((yield* Queue.get(id)).payload === JSON.stringify(value)).toBe(true)
      }
    })
  )

  it.effect("of an older release decodes in a newer one by its steps, and a newer one is left to newer workers", () =>
    Effect.gen(function* () {
      const first = Job.make("greet", { payload: { name: Schema.String }, success: Schema.String, queue: "versions" })
      const third = Job.make("greet", {
        payload: { first: Schema.String, last: Schema.String, polite: Schema.Boolean },
        success: Schema.String,
        queue: "versions",
        version: 3,
        migratePayload: {
          1: (old) => {
            const [given = "", family = ""] = (old as { name: string }).name.split(" ")
            return { first: given, last: family }
          },
          2: (old) => ({ ...(old as object), polite: true })
        }
      })
      const second = Job.make("greet", {
        payload: { first: Schema.String, last: Schema.String },
        success: Schema.String,
        queue: "versions",
        version: 2
      })
      const old = yield* Queue.enqueue(first, { name: "Ada Lovelace" })
      const middle = yield* Queue.enqueue(second, { first: "Grace", last: "Hopper" })
      const current = yield* Queue.enqueue(third, { first: "Mary", last: "Shelley", polite: false })
      const versions = yield* Effect.forEach([old, middle, current], ({ id }) => Queue.get(id))
      expect(versions.map(({ payloadVersion }) => payloadVersion)).toEqual([1, 2, 3])
      // The old release takes what it knows, and leaves the rest.
      const older = first.toLayer(({ name }) => Effect.succeed(`hi ${name}`))
      const another = yield* Queue.enqueue(first, { name: "Alan Turing" })
      yield* Queue.cancel(old.id)
      const oldWorker = yield* Effect.fork(Effect.provide(Worker.run(workOn(first)), older))
      expect(yield* Queue.result(first, another.id)).toBe("hi Alan Turing")
      yield* Effect.sleep("200 millis")
      yield* Fiber.interrupt(oldWorker)
      for (const { id } of [middle, current]) {
        expect(yield* Queue.get(id)).toMatchObject({ state: "pending", attempt: 0, token: 0 })
      }
      yield* Queue.retry(old.id)
      const newer = third.toLayer(({ first: given, last, polite }) =>
        Effect.succeed(`${polite ? "dear" : "hey"} ${given} ${last}`)
      )
      const worker = yield* Effect.fork(Effect.provide(Worker.run(workOn(third)), newer))
      const results = yield* Effect.forEach([old, middle, current], ({ id }) => Queue.result(third, id))
      yield* Fiber.interrupt(worker)
      expect(results).toEqual(["dear Ada Lovelace", "dear Grace Hopper", "hey Mary Shelley"])
    })
  )

  it.effect("that no step leads to ends its job with a word about it, and the jobs beside it run", () =>
    Effect.gen(function* () {
      const first = Job.make("gap", { payload: { a: Schema.Number }, queue: "gap" })
      const third = Job.make("gap", {
        payload: { a: Schema.Number },
        success: Schema.Number,
        queue: "gap",
        version: 3,
        migratePayload: {
          2: () => {
            throw new Error("secret 4242")
          }
        }
      })
      const second = Job.make("gap", { payload: { a: Schema.Number }, queue: "gap", version: 2 })
      const stranded = yield* Queue.enqueue(first, { a: 1 })
      const thrown = yield* Queue.enqueue(second, { a: 2 })
      const fine = yield* Queue.enqueue(third, { a: 3 })
      const worker = yield* Effect.fork(
        Effect.provide(
          Worker.run(workOn(third)),
          third.toLayer(({ a }) => Effect.succeed(a))
        )
      )
      expect(yield* Queue.result(third, fine.id)).toBe(3)
      for (const { id } of [stranded, thrown]) {
        const dead = yield* Effect.flip(Queue.result(third, id))
        expect(dead).toMatchObject({ _tag: "JobDead", code: "payload_invalid" })
        expect(dead.message).not.toContain("4242")
      }
      yield* Fiber.interrupt(worker)
    })
  )
})

const connectionCharset = (charset: string) =>
  Layer.unwrapEffect(
    Effect.map(Database, ({ url }) => {
      const { hostname, password, pathname, port, username } = new URL(url)
      return MysqlClient.layer({
        host: hostname,
        port: Number(port),
        username,
        password: Redacted.make(password),
        database: pathname.slice(1),
        maxConnections: 4,
        poolConfig: { charset }
      })
    })
  )

for (const [charset, settings] of [
  ["latin1", "CHARACTER SET latin1"],
  ["utf8", "CHARACTER SET utf8mb3"],
  ["ascii", ""]
] as const) {
  const here = MysqlQueue.layer().pipe(
    Layer.provideMerge(connectionCharset(charset)),
    Layer.provideMerge(settings === "" ? database : Layer.scoped(Database, emptyDatabase(settings)))
  )
  layer(here, { excludeTestServices: true, timeout: "1 minute" })(
    `over a caller's connection of ${charset} ${settings === "" ? "" : `in a database of ${settings}`}`,
    (it) => {
      it.effect("text of any character is kept exactly, in payloads, results and keys", () =>
        Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          const [session] = yield* sql<{ charset: string }>`SELECT @@character_set_client AS charset`
          expect(session?.charset).toBe(charset === "utf8" ? "utf8mb3" : charset)
          yield* roundTrip("charset", texts)
          const job = echoOn("charset-keys")
          const keys = texts.slice(0, 4)
          const enqueue = (key: string) => Queue.enqueue(job, key, { idempotency: { scope: key, key } })
          const first = yield* sql.withTransaction(Effect.forEach(keys, enqueue))
          expect(yield* Effect.forEach(keys, enqueue)).toEqual(first.map(({ id }) => ({ id, created: false })))
          const found = yield* sql.withTransaction(Effect.forEach(keys, (key) => Queue.find({ scope: key, key })))
          expect(found.map(Option.map(({ payload }) => payload))).toEqual(
            keys.map((key) => Option.some(JSON.stringify(key)))
          )
        })
      )
    }
  )
}
