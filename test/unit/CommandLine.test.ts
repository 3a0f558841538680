import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, Option } from "effect"
import * as ExactJson from "../../src/cli/ExactJson.js"
import * as Output from "../../src/cli/Output.js"
import { judge as judgeClocks } from "../../src/mysql/diagnosis/Clocks.js"
import { judge as judgeRoom } from "../../src/mysql/diagnosis/Room.js"
import { command } from "../support/CommandRun.js"

const refusalOf = (text: string) =>
  Effect.map(Effect.either(ExactJson.parse(text)), (parsed) =>
    Either.isLeft(parsed) ? parsed.left.message : `accepted ${JSON.stringify(parsed.right)}`
  )

describe("a payload from the command line", () => {
  it.effect("is taken as it is where JavaScript can hold it", () =>
    Effect.gen(function* () {
      for (const text of [
        '{"a":[1,2.50,-0.1,1e3,1E-7,0,-0,9007199254740991,123456789012345680000],"b":"12345678901234567890"}',
        '"\\"1\\":"',
        '{"a":{"a":1},"__proto__":{"a":2}}',
        "null",
        '{"a:":"b:","é":"\\u00e9"}'
      ]) {
        expect(yield* ExactJson.parse(text)).toEqual(JSON.parse(text))
      }
    })
  )

  it.effect("is refused where JavaScript would change its digits or lose a key", () =>
    Effect.gen(function* () {
      for (const number of ["12345678901234567890", "0.12345678901234567891", "1e400", "9007199254740993", "-1e-400"]) {
        expect(yield* refusalOf(`{"a":${number}}`)).toContain(`the number ${number}`)
      }
      expect(yield* refusalOf('{"a":1,"b":{"c":1,"c":2}}')).toContain("names the same key twice")
      expect(yield* refusalOf("{a:1}")).toContain("is no JSON")
      expect(yield* refusalOf("")).toContain("is no JSON")
    })
  )
})

describe("what the command prints", () => {
  it("keeps its columns, and lets no control character of others through", () => {
    expect(
      Output.table(
        ["id", "count"],
        [
          ["a", 7],
          ["bcd\u001b[2J\u202e", 12_345]
        ]
      )
    ).toEqual(["id                  count", "a                       7", "bcd\\u001b[2J\\u202e  12345"])
    expect(
      Output.fields([
        ["a", 1],
        ["none", Option.none()],
        ["long", Option.some("x\ny")]
      ])
    ).toEqual(["a     1", "long  x y"])
  })
})

describe("a wrong command line", () => {
  it.effect("is answered with what is wrong, what is accepted, and exit code 2", () =>
    Effect.gen(function* () {
      const cases: ReadonlyArray<readonly [ReadonlyArray<string>, string]> = [
        [["lst"], 'There is no command "lst". Did you mean list?'],
        [["--json", "counts"], "Options follow the command"],
        [["show", "42", "--jsn"], 'show has no option "--jsn". Did you mean --json?'],
        [["list", "--state"], "Option --state needs a value"],
        [["list", "--queue", "--json"], "Option --queue needs a value"],
        [["list", "--state", "bad"], "pending, running, succeeded, dead, canceled"],
        [["list", "--limit", "1001"], 'Option --limit is "1001"; accepted: a whole number from 1 to 1000'],
        [["list", "--queue", "a b"], '"a b" is no valid queue'],
        [["list", "--after", "x"], "Option --after is no cursor"],
        [["show"], "Missing argument <id>"],
        [["show", "1", "2"], "unknown argument: '2'"],
        [["retry"], "retry needs ids, or else a filter"],
        [["retry", "1", "--queue", "a"], "retry needs ids, or else a filter"],
        [["cancel"], "id"],
        [["migrate", "--verify", "--repair"], "Give one of --verify, --dry-run and --repair"],
        [["enqueue", "a.b", "{"], "The payload is no JSON"],
        [["enqueue", "a.b", "1", "--file", "x"], "but not both"],
        [["enqueue", "a.b", "--file", "/no/such/file"], "can not be read"],
        [["enqueue", "a.b", "--run-at", "tomorrow"], "a time with its zone"],
        [["enqueue", "a.b", "--run-at", "2026-01-01T00:00:00"], "a time with its zone"],
        [["enqueue", "a.b", "--delay", "1 minute", "--run-at", "2026-01-01T00:00:00Z"], "but not both"],
        [["enqueue", "a.b", "--scope", "x"], "Option --scope needs --key"],
        [["enqueue", "a.b", "--priority", "10"], "a whole number from 0 to 9"],
        [["work", "/no/such/module.js"], "There is no file"],
        [["counts"], "No database is given"]
      ]
      for (const [args, said] of cases) {
        const ran = yield* command(args)
        expect(ran.err, args.join(" ")).toContain(said)
        expect(ran.err.split("\n"), args.join(" ")).toHaveLength(1)
        expect({ code: ran.code, out: ran.out }, args.join(" ")).toEqual({ code: 2, out: "" })
      }
    })
  )

  it.effect("never prints the password of a URL, wherever it stands", () =>
    Effect.gen(function* () {
      for (const args of [
        ["counts", "--url", "mysql://root:hunter2@localhost"],
        ["counts", "--url", "mysql://root:hunter2%zz@localhost/app"],
        ["counts", "--url", "postgres://root:hunter2@localhost/app"],
        ["counts", "--url", "root:hunter2@localhost/app"],
        ["counts", "mysql://root:hunter2@localhost/app"],
        ["mysql://root:hunter2@localhost/app"]
      ]) {
        const { code, err } = yield* command(args)
        expect(code).toBe(2)
        expect(err).not.toContain("hunter2")
      }
    })
  )

  it.effect("of a server that is not there is exit code 3 and names the address alone", () =>
    Effect.gen(function* () {
      const { code, err } = yield* command(["counts"], { url: "mysql://root:hunter2@127.0.0.1:1/app" })
      expect(err).toBe("leasehold: No MySQL server answers at 127.0.0.1:1 (ECONNREFUSED).")
      expect(code).toBe(3)
    })
  )
})

describe("help", () => {
  it.effect("has a page for each command, with examples and every option explained", () =>
    Effect.gen(function* () {
      const { code, out } = yield* command(["--help"])
      expect(code).toBe(0)
      expect((yield* command([])).out).toBe(out)
      const names = [...out.matchAll(/^ {2}([a-z]+) {2,}[A-Z]/gm)].map(([, name = ""]) => name)
      expect(names).toEqual([
        "migrate",
        "doctor",
        "counts",
        "list",
        "show",
        "why",
        "retry",
        "cancel",
        "pause",
        "resume",
        "enqueue",
        "bench",
        "work"
      ])
      for (const name of names) {
        const page = yield* command([name, "--help"])
        expect(page.code).toBe(0)
        expect(page.out).toContain(`Usage: leasehold ${name} `)
        expect(page.out).toMatch(/Examples:\n {2}\S/)
        const options = page.out.split("\n").filter((line) => line.startsWith("  --"))
        expect(options.length).toBeGreaterThan(1)
        for (const option of options) expect(option, name).toMatch(/^ {2}--.+? {2,}\S/)
        expect((yield* command(["help", name])).out).toBe(page.out)
      }
    })
  )
})

const reading = (at: number, database = at) => ({ database, wall: at, monotonic: at, unsure: 1 })

describe("the doctor's verdict", () => {
  it("on clocks tells skew from drift", () => {
    const levels = (first: Parameters<typeof judgeClocks>[0], second: Parameters<typeof judgeClocks>[1]) =>
      judgeClocks(first, second).map(({ check, level }) => `${check} ${level}`)
    expect(levels(reading(0), reading(1_000))).toEqual(["clock ok", "drift ok"])
    expect(levels(reading(0, 5_000), reading(1_000, 6_000))).toEqual(["clock warning", "drift ok"])
    expect(levels(reading(0), reading(1_000, 1_022))).toEqual(["clock ok", "drift warning"])
    expect(levels(reading(0), reading(1_000, 900))).toEqual(["clock ok", "drift problem"])
    // What the round trips can explain is no drift.
    expect(levels(reading(0), reading(1_000, 1_002))).toEqual(["clock ok", "drift ok"])
  })

  it("on connections counts what all processes may open", () => {
    const level = (processes: number, server: { most: number; now: number; peak: number }) =>
      judgeRoom({ processes, appPool: 10 }, server).map((finding) => finding.level)
    expect(level(1, { most: 151, now: 5, peak: 40 })).toEqual(["ok"])
    expect(level(5, { most: 151, now: 5, peak: 40 })).toEqual(["warning"])
    expect(level(6, { most: 151, now: 5, peak: 40 })).toEqual(["problem"])
    expect(level(1, { most: 151, now: 5, peak: 140 })).toEqual(["warning"])
  })
})
