/**
 * The demo as a person starts it: a process of its own, on an empty database.
 */

import { spawn } from "node:child_process"
import { fileURLToPath } from "node:url"
import { describe, expect, it } from "@effect/vitest"
import { Duration, Effect, Either, Schedule } from "effect"
import * as Options from "../../examples/orders/Options.js"
import { emptyDatabase, type Outside } from "../support/Mysql.js"

const root = fileURLToPath(new URL("../../", import.meta.url))

interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

type JobsThat = "exist" | "running" | "succeeded"

/** Starts the demo in a process group of its own, which the end of the scope kills, whatever is left of it. */
const start = (database: Outside, ...args: ReadonlyArray<string>) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => {
        const child = spawn(
          process.execPath,
          ["--import", "tsx", "examples/orders/main.ts", "--url", database.url, ...args],
          { cwd: root, detached: true, stdio: ["ignore", "pipe", "pipe"] }
        )
        let stdout = ""
        let stderr = ""
        child.stdout.on("data", (chunk) => (stdout += chunk))
        child.stderr.on("data", (chunk) => (stderr += chunk))
        const ended = new Promise<Ended>((resolve) =>
          child.on("close", (code, signal) => resolve({ code, signal, stdout, stderr }))
        )
        return { child, ended: Effect.promise(() => ended) }
      }),
      ({ child }) => Effect.sync(() => isAlive(child.pid) && process.kill(-(child.pid ?? 0), "SIGKILL"))
    ),
    ({ child, ended }) => ({
      kill: (signal: NodeJS.Signals) => Effect.sync(() => void child.kill(signal)),
      /** Waits until so many jobs are in a state; fails where the demo ends before. */
      untilJobs: (state: JobsThat, count: number) =>
        Effect.raceFirst(
          Effect.repeat(countJobs(database, state), {
            until: (found) => found === count,
            schedule: Schedule.spaced("50 millis")
          }),
          Effect.flatMap(ended, ({ stderr }) => Effect.fail(new Error(`The demo ended too early: ${stderr}`)))
        ).pipe(
          Effect.timeout("40 seconds"),
          Effect.tapError(() => tellOf(database))
        ),
      /** How it ended; nothing of its process group is left behind, but for the moment that the compiler's helper takes. */
      ended: Effect.tap(ended, () =>
        Effect.sync(() => isAlive(child.pid)).pipe(
          Effect.repeat({ while: (alive) => alive, schedule: Schedule.spaced("20 millis") }),
          Effect.timeoutFail({ duration: "10 seconds", onTimeout: () => new Error("a process was left behind") })
        )
      )
    })
  )

/** What the jobs say for themselves where a test waits in vain. */
const tellOf = (database: Outside) =>
  Effect.map(
    database.query(
      "SELECT id, state, token, attempt, attempts_left, due_at, UTC_TIMESTAMP(6) AS now, attempts FROM leasehold_jobs"
    ),
    (rows) => process.stderr.write(`${JSON.stringify(rows)}\n`)
  )

/** None, where the table is not there yet: it appears some time after the process has. */
const countJobs = (database: Outside, state: JobsThat) =>
  database
    .query("SELECT COUNT(*) AS n FROM leasehold_jobs WHERE state IN (?)", [
      { exist: [0, 1, 2, 3, 4], running: [1], succeeded: [2] }[state]
    ])
    .pipe(
      Effect.map(([row]) => Number(row?.["n"])),
      Effect.catchAllCause(() => Effect.succeed(0))
    )

/** Whether anything of a process group is there. */
const isAlive = (group: number | undefined): boolean => {
  try {
    return group !== undefined && process.kill(-group, 0)
  } catch {
    return false
  }
}

const run = (database: Outside, ...args: ReadonlyArray<string>) =>
  Effect.flatMap(start(database, ...args), ({ ended }) => ended)

const linesOf = ({ stdout }: Ended): ReadonlyArray<Record<string, unknown>> =>
  stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line))

/** How often each order was exported; orders that were not are there with 0. */
const exportsOf = (database: Outside) =>
  Effect.map(database.query("SELECT exports FROM orders ORDER BY id"), (rows) => rows.map(({ exports }) => exports))

describe("the demo", () => {
  it.scopedLive("exports each order once, and prints one JSON line for each and nothing else", () =>
    Effect.gen(function* () {
      const database = yield* emptyDatabase()
      const ended = yield* run(database, "--json", "--orders", "20", "--handler-delay", "10ms")
      expect(ended).toMatchObject({ code: 0, stderr: "" })
      expect(linesOf(ended)).toEqual(
        Array.from({ length: 20 }, (_, index) => ({
          order: index + 1,
          job: expect.stringMatching(/^\d+$/),
          order_status: "exported",
          state: "succeeded",
          attempt: 1
        }))
      )
      expect(new Set(linesOf(ended).map(({ job }) => job)).size).toBe(20)
      expect(yield* exportsOf(database)).toEqual(Array.from({ length: 20 }, () => 1))
    })
  )

  it.scopedLive("exports each order once although attempts fail before and after their export", () =>
    Effect.gen(function* () {
      const database = yield* emptyDatabase()
      const ended = yield* run(database, "--orders", "15", "--handler-delay", "0ms", "--fail-rate", "0.5")
      expect(ended.code).toBe(0)
      expect(ended.stdout).toMatch(/15 orders, each exported once, in (1[6-9]|[2-9]\d) attempts/)
      expect(yield* exportsOf(database)).toEqual(Array.from({ length: 15 }, () => 1))
    })
  )

  it.scopedLive("goes on with the jobs of a killed run, as attempt 2, when their leases have run out", () =>
    Effect.gen(function* () {
      const database = yield* emptyDatabase()
      const work = ["--orders", "5", "--concurrency", "3", "--handler-delay", "1h", "--lease", "3s"]
      const first = yield* start(database, ...work)
      yield* first.untilJobs("exist", 5)
      yield* first.untilJobs("running", 3)
      yield* first.kill("SIGKILL")
      expect(yield* first.ended).toMatchObject({ signal: "SIGKILL" })

      const second = yield* start(database, "--json", "--orders", "0", "--handler-delay", "0ms")
      yield* second.untilJobs("succeeded", 5)
      yield* second.kill("SIGINT")
      const ended = yield* second.ended
      expect(ended.code).toBe(0)
      expect(linesOf(ended).map(({ attempt, order_status, state }) => [order_status, state, attempt])).toEqual(
        [2, 2, 2, 1, 1].map((attempt) => ["exported", "succeeded", attempt])
      )
      expect(yield* exportsOf(database)).toEqual([1, 1, 1, 1, 1])
    })
  )

  it.scopedLive("stops on SIGINT, and says which jobs are not finished and what happens to them", () =>
    Effect.gen(function* () {
      const database = yield* emptyDatabase()
      const demo = yield* start(
        database,
        "--orders",
        "3",
        "--concurrency",
        "2",
        "--handler-delay",
        "1h",
        "--lease",
        "20s"
      )
      yield* demo.untilJobs("exist", 3)
      yield* demo.untilJobs("running", 2)
      yield* demo.kill("SIGINT")
      const [took, ended] = yield* Effect.timed(demo.ended)
      expect(ended.code).toBe(130)
      expect(Duration.toSeconds(took)).toBeLessThan(15)
      const story = ended.stdout.slice(ended.stdout.indexOf("3 jobs are not finished:"))
      expect(story.replace(/within [\d.]+ s/, "within a while")).toBe(
        [
          "3 jobs are not finished:",
          "  2 cut off, nothing was written: job 1 (order 1), job 2 (order 2).",
          "    The lease ends within a while, then the next worker runs it again, as attempt 2.",
          "  1 not started: job 3 (order 3).",
          "    The next worker runs it, as attempt 1.",
          "There is nothing to repair: any worker goes on with them. For example:",
          `  npm run demo -- --orders 0 --url ${database.url}`,
          ""
        ].join("\n")
      )
      // The jobs are left to the end of their leases, as it says.
      expect(yield* database.query("SELECT state, attempt FROM leasehold_jobs ORDER BY id")).toEqual([
        { state: 1, attempt: 1 },
        { state: 1, attempt: 1 },
        { state: 0, attempt: 0 }
      ])
    })
  )

  it.scopedLive("refuses a table of orders that is not its own", () =>
    Effect.gen(function* () {
      const database = yield* emptyDatabase()
      yield* database.query("CREATE TABLE orders (id INT PRIMARY KEY)")
      const ended = yield* run(database, "--json")
      expect(ended).toMatchObject({ code: 1, stdout: "" })
      expect(ended.stderr).toContain("did not make")
    })
  )
})

describe("the demo's options", () => {
  const refused = (...args: ReadonlyArray<string>) =>
    Either.match(Options.parse(args), { onLeft: ({ message }) => message, onRight: () => "accepted" })

  it.each([
    [["--orders", "-1"], "a whole number from 0 to 10000"],
    [["--orders", "1.5"], "a whole number from 0 to 10000"],
    [["--orders=10001"], "a whole number from 0 to 10000"],
    [["--concurrency", "0"], "a whole number from 1 to 1000"],
    [["--fail-rate", "1.01"], "a number from 0 to 1"],
    [["--fail-rate", "NaN"], "a number from 0 to 1"],
    [["--lease", "299ms"], "300ms to 1h"],
    [["--lease", "5"], "300ms to 1h"],
    [["--handler-delay", "2h"], "0ms to 1h"],
    [["--reap", "500ms"], "1s to 1h"],
    [["--url", "mysql://root:hidden@127.0.0.1:3306"], "with the name of a database"]
  ])("refuse %j and name what is accepted", (args, accepted) => {
    expect(refused(...args)).toContain(accepted)
    expect(refused(...args)).not.toContain("hidden")
  })

  it("refuse what they do not know", () => {
    expect(refused("--order", "1")).toContain("Unknown option")
    expect(refused("12")).toContain("Unexpected argument")
  })

  it("have a help that names each of them", () => {
    for (const option of ["orders", "handler-delay", "lease", "concurrency", "fail-rate", "url", "json", "reap"]) {
      expect(Options.help).toContain(`--${option} `)
    }
    expect(Options.parse(["--help"])).toEqual(Either.right({ _tag: "Help" }))
  })
})
