import { describe, expect, it } from "@effect/vitest"
import { Effect, Exit, Schema } from "effect"
import * as Payload from "../../src/Payload.js"
import type { PayloadInvalid } from "../../src/QueueError.js"

const anything = Payload.codec(Schema.Unknown, "test.job", "payload")

/** The value through its text and back. */
const roundTrip = (value: unknown) => Effect.flatMap(anything.encode(value), anything.decode)

const nested = (depth: number): unknown => {
  let value: unknown = "end"
  for (let level = 0; level < depth; level++) value = level % 2 === 0 ? [value] : { value }
  return value
}

const textOf = (depth: number) => `${"[".repeat(depth)}${"]".repeat(depth)}`

describe("a payload", () => {
  const exact: ReadonlyArray<readonly [string, unknown]> = [
    ["null", null],
    ["an empty text", ""],
    ["a text that is JSON itself", "{}"],
    ["a text that is a number", "5"],
    ["true", true],
    ["zero", 0],
    ["0.1 + 0.2", 0.1 + 0.2],
    ["2^53 - 1", 2 ** 53 - 1],
    ["2^53 + 2", 2 ** 53 + 2],
    ["an integer of 19 digits as text", "7088992364139642880"],
    ["an integer of 19 digits as number", Number("7088992364139642880")],
    ["the largest number", Number.MAX_VALUE],
    ["the smallest number", Number.MIN_VALUE],
    ["an empty array", []],
    ["an empty object", {}],
    ["keys in their order", { bbb: 1, a: 2 }],
    ["an empty key", { "": 1 }],
    ["keys that every object knows", { constructor: 1, toString: { a: 1 }, hasOwnProperty: null }],
    ["its own key __proto__", JSON.parse('{"__proto__":{"polluted":true},"a":1}')],
    ["its own key __proto__ with a plain value", JSON.parse('{"a":{"__proto__":1}}')],
    ["an object without a prototype", Object.assign(Object.create(null), { a: 1 })],
    ["5,000 keys", Object.fromEntries(Array.from({ length: 5_000 }, (_, index) => [`key-${index}`, index]))],
    ["200 levels", nested(200)],
    ["1,000 levels", nested(1_000)],
    ["emoji and joined families", "\u{1F600}\u{1F468}\u200D\u{1F469}\u200D\u{1F467}"],
    ["right-to-left marks and U+FFFF", "\u202E\uFFFF\uFFFE\uFEFF"],
    ["lone halves of surrogate pairs", ["\uD800", "a\uDC00b", "\uDC00\uD800", { "\uD83D": 1 }]],
    ["NUL at every place", ["\u0000", "a\u0000b", "\u0000a", "a\u0000", { "\u0000": "\u0000" }]],
    ["quotes and backslashes", "'\"\\`; DROP TABLE jobs; -- %_"],
    ["line separators", "\u2028\u2029\r\n\t\b\f"]
  ]

  it.effect.each(exact)("of %s comes back as it was", ([, value]) =>
    Effect.gen(function* () {
      const back = yield* roundTrip(value)
      expect(JSON.stringify(back)).toBe(JSON.stringify(value))
      expect(back).toEqual(value !== null && typeof value === "object" ? JSON.parse(JSON.stringify(value)) : value)
      expect(({} as { polluted?: true }).polluted).toBeUndefined()
    })
  )

  it.effect("is stored as text of ASCII where only escapes are exact, and as itself elsewhere", () =>
    Effect.gen(function* () {
      expect(yield* anything.encode("\uD800")).toBe('"\\ud800"')
      expect(yield* anything.encode("\u0000é\u{1F600}")).toBe('"\\u0000é\u{1F600}"')
      expect(yield* anything.encode({ b: 1, a: [1.0, -0] })).toBe('{"b":1,"a":[1,0]}')
    })
  )

  it.effect("that encodes to undefined is null, which is not the text null", () =>
    Effect.gen(function* () {
      const nothing = Payload.codec(Schema.Void, "test.job", "output")
      expect(yield* nothing.encode(undefined)).toBe(null)
      expect(yield* nothing.decode(null)).toBe(undefined)
      expect(yield* anything.encode(undefined)).toBe(null)
      expect(yield* anything.encode(null)).toBe("null")
      expect(yield* anything.decode("null")).toBe(null)
    })
  )

  it.effect("leaves out optional members that are undefined", () =>
    Effect.gen(function* () {
      const optional = Payload.codec(
        Schema.Struct({ a: Schema.optional(Schema.Number), b: Schema.Number }),
        "test.job",
        "payload"
      )
      expect(yield* optional.encode({ a: undefined, b: 1 })).toBe('{"b":1}')
      expect(yield* optional.decode('{"b":1}')).toEqual({ b: 1 })
    })
  )

  const circular: { self?: unknown } = {}
  circular.self = { circular }
  const circularArray: Array<unknown> = []
  circularArray.push(circularArray, circularArray)
  class Point {
    constructor(readonly x: number) {}
  }
  const arrayWithToJson = Object.assign([1], { toJSON: () => "other" })

  const refused: ReadonlyArray<readonly [string, () => unknown]> = [
    ["undefined in an array", () => [undefined]],
    ["a hole in an array", () => new Array(1)],
    ["a function", () => () => 1],
    ["a function within", () => ({ a: () => 1 })],
    ["a symbol", () => Symbol("s")],
    ["a symbol within", () => [Symbol("s")]],
    ["NaN", () => NaN],
    ["NaN within", () => ({ a: [NaN] })],
    ["Infinity", () => Infinity],
    ["1e400", () => ({ a: JSON.parse("-1e400") })],
    ["a bigint", () => 5n],
    ["a date", () => new Date(0)],
    ["a map", () => new Map([[1, 2]])],
    ["a set", () => new Set([1])],
    ["a typed array", () => new Uint8Array(2)],
    ["a buffer", () => Buffer.from("x")],
    ["a regular expression", () => /x/],
    ["an error", () => new Error("x")],
    ["a class instance", () => new Point(1)],
    ["a boxed number", () => Object(1)],
    ["a circular object", () => circular],
    ["a circular array", () => circularArray],
    [
      "a getter that throws",
      () => ({
        get a() {
          throw new Error("getter")
        }
      })
    ],
    [
      "a proxy that throws",
      () =>
        new Proxy(
          {},
          {
            ownKeys() {
              throw new Error("ownKeys")
            }
          }
        )
    ],
    [
      "toJSON that throws",
      () => ({
        toJSON() {
          throw new Error("toJSON")
        }
      })
    ],
    ["toJSON that answers undefined", () => ({ toJSON: () => undefined })],
    ["toJSON of an array", () => arrayWithToJson],
    ["10,000 levels", () => nested(10_000)],
    ["100,000 levels", () => nested(100_000)]
  ]

  it.effect.each(refused)("that JSON would change is refused: %s", ([, make]) =>
    Effect.gen(function* () {
      const exit = yield* Effect.exit(anything.encode(make()))
      expect(exit).toMatchObject(Exit.fail({ _tag: "PayloadInvalid", jobType: "test.job", part: "payload" }))
    })
  )

  it.effect("whose schema makes JSON of dates, bigints and maps is accepted", () =>
    Effect.gen(function* () {
      const rich = Payload.codec(
        Schema.Struct({
          at: Schema.Date,
          id: Schema.BigInt,
          tags: Schema.ReadonlyMap({ key: Schema.String, value: Schema.Number })
        }),
        "test.job",
        "payload"
      )
      const value = { at: new Date(1_700_000_000_000), id: 2n ** 70n, tags: new Map([["a", 1]]) }
      const text = yield* rich.encode(value)
      expect(text).toBe('{"at":"2023-11-14T22:13:20.000Z","id":"1180591620717411303424","tags":[["a",1]]}')
      expect(yield* rich.decode(text)).toEqual(value)
    })
  )

  it.effect("of a record schema keeps no key from the handler without a word", () =>
    Effect.gen(function* () {
      const record = Payload.codec(Schema.Record({ key: Schema.String, value: Schema.Unknown }), "test.job", "payload")
      for (const text of ['{"__proto__":1}', '{"__proto__":{"polluted":true}}', '{"constructor":1,"toString":2}']) {
        const value: Record<string, unknown> = JSON.parse(text)
        const exit = yield* Effect.exit(Effect.flatMap(record.encode(value), record.decode))
        if (Exit.isSuccess(exit)) expect(JSON.stringify(exit.value)).toBe(text)
        else expect(exit).toMatchObject(Exit.fail({ _tag: "PayloadInvalid" }))
      }
      expect(({} as { polluted?: true }).polluted).toBeUndefined()
    })
  )
})

describe("what is said of a payload that is refused", () => {
  const person = Payload.codec(
    Schema.Struct({ name: Schema.String, cards: Schema.Array(Schema.Struct({ number: Schema.Number })) }),
    "test.job",
    "payload"
  )
  const secret = "hunter2"
  const reasonOf = (exit: Effect.Effect<unknown, PayloadInvalid>) =>
    Effect.map(Effect.flip(exit), (error) => `${error.reason} ${error.message}`)

  it.effect("names the place, and neither the value nor a key that is data", () =>
    Effect.gen(function* () {
      const wrong = { name: "x", cards: [{ number: secret }] }
      const decoded = yield* reasonOf(person.decode(JSON.stringify(wrong)))
      expect(decoded).toContain("cards.….number")
      expect(decoded).not.toContain(secret)
      const encoded = yield* reasonOf(person.encode(wrong as never))
      expect(encoded).not.toContain(secret)
      const keys = yield* reasonOf(anything.encode({ [`${secret}@example.com`]: { number: NaN } }))
      expect(keys).not.toContain(secret)
      expect(keys).toContain("number")
      expect(yield* reasonOf(anything.decode(`{"${secret}`))).not.toContain(secret)
      expect(yield* reasonOf(person.decode(secret))).not.toContain(secret)
    })
  )

  it.effect("is typed where the schema throws, on both ways", () =>
    Effect.gen(function* () {
      const throwing = Payload.codec(
        Schema.transform(Schema.String, Schema.String, {
          decode: () => {
            throw new Error(secret)
          },
          encode: () => {
            throw new Error(secret)
          }
        }),
        "test.job",
        "output"
      )
      for (const attempt of [throwing.decode('"x"'), throwing.encode("x")]) {
        const reason = yield* reasonOf(attempt)
        expect(reason).not.toContain(secret)
      }
    })
  )

  it.effect("is typed for stored text of any kind", () =>
    Effect.gen(function* () {
      for (const text of ["", "{", "undefined", "NaN", '{"name":1}', "[]", "null", null, textOf(100_000)]) {
        expect(yield* Effect.exit(person.decode(text))).toMatchObject(Exit.fail({ _tag: "PayloadInvalid" }))
      }
    })
  )
})

describe("the size of a payload", () => {
  const check = (text: string | null, limit: number) => Payload.checkSize(text, "test.job", "payload", limit)

  it.effect("is counted in bytes of UTF-8, up to the limit itself", () =>
    Effect.gen(function* () {
      for (const [text, size] of [
        ["x".repeat(65_536), 65_536],
        ["é".repeat(100), 200],
        ["\u{1F600}".repeat(50), 200]
      ] as const) {
        expect(yield* check(text, size)).toBe(text)
        const error = yield* Effect.flip(check(text, size - 1))
        expect(error).toMatchObject({ _tag: "PayloadTooLarge", size, limit: size - 1, part: "payload" })
        expect(error.message).toContain(String(size - 1))
        expect(error.message).not.toContain(text.slice(0, 10))
      }
      expect(yield* check(null, 0)).toBe(null)
      expect(yield* check("", 0)).toBe("")
    })
  )

  it.effect("is limited to 1 MiB unless a program says otherwise", () =>
    Effect.gen(function* () {
      expect(yield* Payload.Limit).toBe(1_048_576)
      expect(yield* Effect.provideService(Payload.Limit, Payload.Limit, 5)).toBe(5)
    })
  )
})

describe("a fingerprint", () => {
  const of = (payload: string | null, type = "a", queue = "q") => Payload.fingerprint(type, queue, payload)

  it("is a SHA-256 in lower-case hexadecimal", () => {
    expect(of("{}")).toMatch(/^[0-9a-f]{64}$/)
  })

  it("does not see the order of keys, white space, or how a number is written", () => {
    expect(of('{"a":1,"b":{"c":2,"d":[1,2]}}')).toBe(of('{ "b": {"d":[1, 2],"c":2}, "a": 1 }'))
    expect(of('{"a":1.0}')).toBe(of('{"a":1}'))
    expect(of("1e2")).toBe(of("100"))
    expect(of("-0")).toBe(of("0"))
    expect(of('"\\u0041"')).toBe(of('"A"'))
    expect(of('{"__proto__":1,"a":2}')).toBe(of('{"a":2,"__proto__":1}'))
  })

  it("sees every other difference", () => {
    const texts = [
      null,
      "null",
      '"null"',
      "{}",
      "[]",
      '""',
      "0",
      '"0"',
      "false",
      "1",
      "1.5",
      "[1,2]",
      "[2,1]",
      "[[1],2]",
      "[1,[2]]",
      '{"a":1}',
      '{"a":"1"}',
      '{"a":null}',
      '{"b":1}',
      '{"A":1}',
      '{"a":1,"b":2}',
      '{"a":2,"b":1}',
      '{"a":{"b":1}}',
      '{"a":["b",1]}',
      '{"a,b":1}',
      '{"a":{},"b":{}}',
      '{"__proto__":1}',
      '{"":1}',
      '"a\\u0000"',
      '"a"',
      '"é"',
      '"e\\u0301"',
      '"\\ud800"',
      '"\\udc00"',
      '"\\ufffd"'
    ]
    expect(new Set(texts.map((text) => of(text))).size).toBe(texts.length)
  })

  it("sees the type and the queue, and does not mix them up", () => {
    const all = [
      of("1", "a", "b"),
      of("1", "b", "a"),
      of("1", "ab", ""),
      of("1", "", "ab"),
      of("1", "a", "bc"),
      of(null, "a", "b")
    ]
    expect(new Set(all).size).toBe(all.length)
  })

  it("is made of deep and of large payloads", () => {
    expect(of(textOf(1_000))).not.toBe(of(textOf(999)))
    const large = (seed: number) => JSON.stringify(Array.from({ length: 50_000 }, (_, index) => ({ index, seed })))
    expect(of(large(1))).not.toBe(of(large(2)))
  })
})
