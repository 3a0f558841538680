import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { codeLength, messageLength, Redactor, redactSecrets, storableCode, storableMessage } from "../../src/Attempt.js"
import { cpuMillis } from "../support/CpuTime.js"

const stored = (message: unknown) => storableMessage(message, redactSecrets)

const points = (text: string) => Array.from(text).length

const isWellFormed = (text: string) => {
  try {
    encodeURIComponent(text)
    return true
  } catch {
    return false
  }
}

describe("the redactor", () => {
  it.each([
    "mysql://root:hunter2@db.local:3306/app",
    "mysql://root:hunter2@x@db.local/app",
    "redis+tls://:hunter2@cache:6379",
    "connect ECONNREFUSED https://user:hunter2@example.com/path?x=1 failed",
    "Bearer hunter2hunter2",
    "authorization: Bearer hunter2.hunter2-_~+/=",
    "Authorization: Basic aHVudGVyMg==hunter2",
    "Authorization: Token hunter2",
    '{"authorization":"Token hunter2","a":1}',
    "password=hunter2",
    "password: hunter2",
    "PASSWORD = 'hunter2 with blanks hunter2'",
    'db_password="hunter2 \\" hunter2"',
    '{"password":"hunter2"}',
    'body: "{\\"password\\":\\"hunter2\\"}"',
    "user-passwd:hunter2;x",
    "pwd=hunter2&next=1",
    "client_secret=hunter2",
    "secret: hunter2",
    "accessToken=hunter2",
    "x-api-key: hunter2",
    "apiKey: hunter2",
    "api_key=hunter2",
    "privateKey=hunter2",
    "credentials=hunter2",
    "passphrase=hunter2",
    "Set-Cookie: hunter2",
    `${"a".repeat(200)}password=hunter2`
  ])("leaves nothing of the secret in %s", (text) => {
    expect(redactSecrets(text)).not.toContain("hunter2")
    expect(redactSecrets(text)).toContain("***")
  })

  it.each([
    "the order 7 was not found",
    "GET https://example.com/a@b?c=d answered 503",
    "Unexpected end of JSON input",
    "the token has expired, ask for a new one",
    "mail to a.b@example.com bounced: 550"
  ])('leaves "%s" as it is', (text) => {
    expect(redactSecrets(text)).toBe(text)
  })

  const attacks: ReadonlyArray<readonly [string, string]> = [
    "a",
    "password",
    "pwd",
    "password ",
    'password"',
    "password=",
    'password="',
    "password='\\",
    "token:",
    "authorization: ",
    "bearer ",
    "basic\t",
    "a://",
    "a.",
    "http://a",
    "@",
    "://@",
    '"',
    "-",
    "_",
    "\\",
    " ",
    "api_key-",
    "secret:bearer "
  ].map((part) => [part, part.repeat(Math.ceil(200_000 / part.length))])

  it.each(attacks)("is quick on a text of nothing but %j", (_part, text) => {
    for (const attack of [text, `password${text}`, `password:${text}`, `http://${text}`, `bearer${text}`]) {
      const started = cpuMillis()
      stored(attack)
      expect(cpuMillis() - started).toBeLessThan(1_000)
    }
  })

  it.effect("can be replaced by a program", () =>
    Effect.gen(function* () {
      const redactor = yield* Redactor
      expect(redactor("password=hunter2")).toBe("password=***")
      const replaced = yield* Effect.provideService(Redactor, Redactor, () => "nothing")
      expect(replaced("password=hunter2")).toBe("nothing")
    })
  )
})

describe("a stored message", () => {
  it("is redacted before it is cut, so that no half of a secret stays", () => {
    const text = `${"x".repeat(messageLength - 12)} password=hunter2`
    expect(stored(text)).not.toContain("hunt")
  })

  it("is cut between code points at 1,000 of them", () => {
    expect(stored("x".repeat(1_000))).toBe("x".repeat(1_000))
    expect(stored("x".repeat(1_001))).toBe(`${"x".repeat(999)}…`)
    expect(stored("\u{1F600}".repeat(1_000))).toBe("\u{1F600}".repeat(1_000))
    const emoji = stored("\u{1F600}".repeat(3_000))
    expect(points(emoji)).toBe(1_000)
    expect(isWellFormed(emoji)).toBe(true)
  })

  it("has no lone half of a surrogate pair, wherever one was or a cut could make one", () => {
    for (const text of ["\uD800", "a\uDC00b", "\uDC00\uD800", "\uD83D\uD83D\uDE00", `x${"\u{1F600}".repeat(6_000)}`]) {
      expect(isWellFormed(stored(text))).toBe(true)
    }
    expect(stored("a\uD800b\uDC00c\u{1F600}")).toBe("a\uFFFDb\uFFFDc\u{1F600}")
  })

  it("keeps NUL, quotes, and every other character that can be stored", () => {
    const text = "\u0000a\u0000'\"\\`%_;\n\r\t\uFFFF\u202E\u{1F468}\u200D\u{1F469}\u200D\u{1F467}\u0000"
    expect(stored(text)).toBe(text)
  })

  it("of 10 million characters is made quickly", () => {
    for (const text of ["x", "\u{1F600}", "\uD800", "password=", "a b "]) {
      const long = text.repeat(Math.ceil(10_000_000 / text.length))
      const started = cpuMillis()
      expect(points(stored(long))).toBeLessThanOrEqual(messageLength)
      expect(cpuMillis() - started).toBeLessThan(1_000)
    }
  })

  it.each<readonly [string, unknown]>([
    ["null", null],
    ["undefined", undefined],
    ["zero", 0],
    ["a symbol", Symbol("s")],
    ["an object without a prototype", Object.create(null)],
    [
      "an object whose text throws",
      {
        toString() {
          throw new Error("toString")
        }
      }
    ]
  ])("can be made of %s, which only a caller without types gives", (_name, message) => {
    expect(typeof stored(message)).toBe("string")
    expect(typeof storableCode(message)).toBe("string")
  })

  it("is not stored where the redactor throws or answers no text", () => {
    const failing = [
      () => {
        throw new Error("redactor")
      },
      () => undefined as never,
      () => 5 as never
    ]
    for (const redactor of failing) {
      const message = storableMessage("password=hunter2", redactor)
      expect(message).not.toContain("hunter2")
      expect(message).not.toBe("")
    }
  })

  it("is cut and well-formed also where the redactor makes it long or breaks it", () => {
    expect(points(storableMessage("x", () => "y".repeat(100_000)))).toBe(messageLength)
    expect(isWellFormed(storableMessage("x", () => "a\uD800"))).toBe(true)
  })
})

describe("a stored code", () => {
  it("is well-formed and cut at 64 code points", () => {
    expect(storableCode("upstream")).toBe("upstream")
    expect(storableCode("x".repeat(64))).toBe("x".repeat(64))
    expect(points(storableCode("x".repeat(65)))).toBe(codeLength)
    expect(points(storableCode("\u{1F600}".repeat(10_000)))).toBe(codeLength)
    for (const code of ["\uD800", "\u{1F600}".repeat(10_000), `x${"\u{1F600}".repeat(10_000)}`]) {
      expect(isWellFormed(storableCode(code))).toBe(true)
    }
    expect(storableCode("a\u0000b")).toBe("a\u0000b")
  })
})
