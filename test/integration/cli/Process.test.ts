import { execFile } from "node:child_process"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { promisify } from "node:util"
import { FileSystem } from "@effect/platform"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { expect, layer } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import * as Queue from "../../../src/Queue.js"
import { command, commandProcess, start, workerModule } from "../../support/CommandRun.js"
import { Database, emptyDatabase } from "../../support/Mysql.js"
import { Greet } from "../../support/modules/worker.js"
import { queue } from "../../support/QueueOnMysql.js"

const worker = "test/support/modules/worker.ts"

layer(queue(), { excludeTestServices: true, timeout: "2 minutes" })("the command as a process", (it) => {
  it.effect("prints its result to stdout alone, all of it, and ends with its code", () =>
    Effect.gen(function* () {
      const { url } = yield* Database
      yield* Queue.enqueueAll(
        Greet,
        Array.from({ length: 1_000 }, (_, index) => ({ name: "x".repeat(200), seconds: index }))
      )
      const listed = yield* commandProcess(
        ["list", "--queue", "module", "--limit", "1000", "--show-payload", "--json"],
        { url }
      )
      expect(listed).toMatchObject({ code: 0, err: "" })
      expect(JSON.parse(listed.out).jobs).toHaveLength(1_000)
      const enqueued = yield* commandProcess(["enqueue", "other.type", "-", "--json"], { url, stdin: '{"é":1}' })
      expect(enqueued).toMatchObject({ code: 0, err: "" })
      const { query } = yield* Database
      yield* query("DELETE FROM leasehold_jobs")
    })
  )

  it.effect("ends with one line and its code, and no stack, where it can not do what was asked", () =>
    Effect.gen(function* () {
      const { url } = yield* Database
      const wrong = new URL(url)
      wrong.password = "hunter2"
      wrong.username = "nobody"
      const cases = [
        [["show", "999999"], url, 5],
        [["counts", "--jsn"], url, 2],
        [["counts"], wrong.href, 3],
        [["counts", "--prefix", "nothing_"], url, 4],
        [["work", worker], url, 2]
      ] as const
      const ran = yield* Effect.forEach(cases, ([args, place]) => commandProcess(args, { url: place }), {
        concurrency: 2
      })
      for (const [index, [args, , code]] of cases.entries()) {
        expect(ran[index], args.join(" ")).toMatchObject({ code, out: "" })
        expect(ran[index]?.err, args.join(" ")).toMatch(/^leasehold: [^\n]+\n$/)
        expect(ran[index]?.err).not.toContain("hunter2")
      }
    })
  )

  it.scoped("works on a module's layer: a first SIGTERM lets the handler end, and the code is 0", () =>
    Effect.gen(function* () {
      const { url } = yield* Database
      const process = yield* start(["work", workerModule()], { url })
      yield* process.says("works; SIGTERM or SIGINT stops it")
      const { id } = yield* Queue.enqueue(Greet, { name: "Ada", seconds: 1 })
      yield* process.says("greeting Ada")
      yield* process.signal("SIGTERM")
      yield* process.says("stopping")
      const ended = yield* process.ended
      expect(ended.err).toContain("leasehold: stopped.")
      expect(ended.code).toBe(0)
      expect(yield* Queue.result(Greet, id)).toBe("Hello Ada")
    })
  )

  it.scoped("works until a second signal, which does not wait", () =>
    Effect.gen(function* () {
      const { url } = yield* Database
      const process = yield* start(["work", workerModule()], { url })
      yield* process.says("works")
      const { id } = yield* Queue.enqueue(Greet, { name: "Bob", seconds: 600 })
      yield* process.says("greeting Bob")
      yield* process.signal("SIGINT")
      yield* process.says("stopping")
      yield* process.signal("SIGINT")
      expect((yield* process.ended).code).toBe(130)
      expect(yield* Queue.get(id)).toMatchObject({ state: "running" })
      yield* Queue.cancel(id)
    })
  )

  it.scoped("stops what takes long by a signal, and a bench leaves no table behind", () =>
    Effect.gen(function* () {
      const { query, url } = yield* emptyDatabase()
      const process = yield* start(["bench", "--yes", "--jobs", "1000000"], { url })
      yield* process.says("in bulk")
      yield* process.signal("SIGTERM")
      expect((yield* process.ended).code).toBe(143)
      expect(yield* query("SHOW TABLES")).toEqual([])
    })
  )
})

layer(queue(), { excludeTestServices: true, timeout: "2 minutes" })("leasehold work", (it) => {
  it.scoped("runs a layer that brings its own queue, without a URL", () =>
    Effect.gen(function* () {
      const { url } = yield* Database
      yield* Effect.acquireRelease(
        Effect.sync(() => {
          process.env["GREET_URL"] = url
        }),
        () =>
          Effect.sync(() => {
            delete process.env["GREET_URL"]
          })
      )
      const stop = yield* Deferred.make<130 | 143>()
      const running = yield* Effect.fork(
        command(["work", worker, "--export", "Complete"], { stop: Deferred.await(stop) })
      )
      const { id } = yield* Queue.enqueue(Greet, { name: "Eve", seconds: 0 })
      expect(yield* Queue.result(Greet, id)).toBe("Hello Eve")
      yield* Deferred.succeed(stop, 143)
      expect(yield* Fiber.join(running)).toMatchObject({ code: 0 })
    })
  )

  it.effect("says what a module lacks", () =>
    Effect.gen(function* () {
      const { url } = yield* Database
      const cases = [
        [["work", worker, "--export", "noLayer"], url, 2, "it exports these: Broken, Complete, default. Use --export."],
        [["work", worker, "--export", "Broken"], url, 1, "failed: the file of settings is missing"],
        [["work", worker], undefined, 2, "asks for leasehold/"],
        [["work", worker, "--prefix", "nothing_"], url, 4, "Run: leasehold migrate"]
      ] as const
      for (const [args, place, code, said] of cases) {
        const ran = yield* command(args, place === undefined ? {} : { url: place })
        expect(ran.err, args.join(" ")).toContain(said)
        expect(ran.code, args.join(" ")).toBe(code)
      }
    })
  )
})

layer(queue(), { excludeTestServices: true, timeout: "2 minutes" })("leasehold bench", (it) => {
  it.effect("wants consent, measures, and leaves no table behind", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const { query, url } = yield* emptyDatabase()
        const refused = yield* command(["bench"], { url })
        expect(refused.code).toBe(2)
        expect(refused.err).toContain("Add --yes to agree")
        const ran = yield* command(["bench", "--yes", "--jobs", "100", "--concurrency", "4", "--json"], { url })
        expect(ran).toMatchObject({ code: 0 })
        expect(JSON.parse(ran.out)).toMatchObject({
          jobs: 100,
          concurrency: 4,
          enqueue: expect.any(Number),
          enqueueAll: expect.any(Number),
          drain: expect.any(Number)
        })
        expect(ran.err).toContain("draining 600 jobs")
        expect(yield* query("SHOW TABLES")).toEqual([])
      })
    )
  )
})

layer(NodeFileSystem.layer, { excludeTestServices: true, timeout: "1 minute" })("completions", (it) => {
  it.scoped("complete commands and options in bash", () =>
    Effect.gen(function* () {
      const files = yield* FileSystem.FileSystem
      const folder = yield* files.makeTempDirectoryScoped()
      const { code, out } = yield* command(["--completions", "bash"])
      expect(code).toBe(0)
      const script = join(folder, "complete.bash")
      const line = [
        "complete_line() { COMP_WORDS=($1); COMP_CWORD=$2; COMPREPLY=()",
        "  $(complete -p leasehold | sed 's/.*-F \\([^ ]*\\).*/\\1/') leasehold",
        "  printf '%s ' \"$(IFS=' '; echo $" + '{COMPREPLY[*]})"; echo; }',
        "complete_line 'leasehold en' 1",
        "complete_line 'leasehold list --st' 2",
        "complete_line 'leasehold list --state de' 3"
      ]
      writeFileSync(script, [out, ...line].join("\n"))
      const { stdout } = yield* Effect.promise(() => promisify(execFile)("bash", [script]))
      expect(stdout.split("\n").map((line) => line.trim())).toEqual(["enqueue", "--state", "dead", ""])
    })
  )
})
