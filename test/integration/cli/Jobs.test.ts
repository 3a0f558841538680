import { expect, layer } from "@effect/vitest"
import { Effect, Option, Schema } from "effect"
import * as Job from "../../../src/Job.js"
import { Permanent } from "../../../src/JobFailure.js"
import { JobStore } from "../../../src/JobStore.js"
import * as Queue from "../../../src/Queue.js"
import { command, type Settings } from "../../support/CommandRun.js"
import { Database } from "../../support/Mysql.js"
import { queue } from "../../support/QueueOnMysql.js"

const job = (queueName: string) =>
  Job.make("cli.print", { payload: { page: Schema.Number }, success: Schema.String, queue: queueName })

/** Runs the command against the suite's database and expects it to do what it was asked for. */
const done = (args: ReadonlyArray<string>, settings: Settings = {}) =>
  Effect.gen(function* () {
    const { url } = yield* Database
    const ran = yield* command(args, { url, ...settings })
    expect(ran, args.join(" ")).toMatchObject({ code: 0 })
    return ran.out
  })

const doneJson = (args: ReadonlyArray<string>, settings: Settings = {}) =>
  Effect.map(done([...args, "--json"], settings), (out): unknown => JSON.parse(out))

const failed = (args: ReadonlyArray<string>) => Effect.flatMap(Database, ({ url }) => command(args, { url }))

/** A job that its handler gave up, with a message that would move the cursor. */
const dead = (definition: ReturnType<typeof job>) =>
  Effect.scoped(
    Effect.gen(function* () {
      const { id } = yield* Queue.enqueue(definition, { page: 7 })
      const lease = yield* Queue.claim(definition)
      expect(lease.jobId).toBe(id)
      yield* lease.fail(new Permanent({ code: "gone", message: "It is\u001b[2J gone" }))
      return id
    })
  )

layer(queue(), { excludeTestServices: true, timeout: "2 minutes" })("the command", (it) => {
  it.effect("counts jobs by queue and state, and says what is paused", () =>
    Effect.gen(function* () {
      const definition = job("cli.counts")
      yield* Queue.enqueueAll(definition, [{ page: 1 }, { page: 2 }])
      yield* dead(job("cli.counts.dead"))
      expect(yield* done(["pause", "cli.counts"])).toBe("Queue cli.counts is paused.")
      expect(yield* Queue.paused).toContain("cli.counts")
      const lines = (yield* done(["counts"])).split("\n")
      expect(lines[0]).toMatch(/^queue +pending +running +succeeded +dead +canceled$/)
      expect(lines.find((line) => line.startsWith("cli.counts "))).toMatch(/^cli.counts +2 +0 +0 +0 +0 +paused$/)
      expect(yield* doneJson(["counts"])).toContainEqual({
        queue: "cli.counts.dead",
        pending: 0,
        running: 0,
        succeeded: 0,
        dead: 1,
        canceled: 0,
        paused: false
      })
      expect(yield* doneJson(["resume", "cli.counts"])).toEqual({ queue: "cli.counts", paused: false })
      expect(yield* Queue.paused).not.toContain("cli.counts")
      expect(yield* failed(["pause", "a b"])).toMatchObject({ code: 2 })
    })
  )

  it.effect("lists jobs that match, a page at a time, to the last", () =>
    Effect.gen(function* () {
      const definition = job("cli.list")
      const enqueued = yield* Queue.enqueueAll(
        definition,
        Array.from({ length: 5 }, (_, page) => ({ page }))
      )
      yield* dead(job("cli.list.dead"))
      const seen: Array<string> = []
      let after = "0"
      for (;;) {
        const page = Schema.decodeUnknownSync(
          Schema.Struct({
            jobs: Schema.Array(
              Schema.Struct({ id: Schema.String, state: Schema.String, payload: Schema.optional(Schema.String) })
            ),
            next: Schema.NullOr(Schema.String)
          })
        )(yield* doneJson(["list", "--queue", "cli.list", "--limit", "2", "--after", after]))
        expect(page.jobs.every(({ payload }) => payload === undefined)).toBe(true)
        seen.push(...page.jobs.map(({ id }) => id))
        if (page.next === null) break
        after = page.next
      }
      expect(seen).toEqual(enqueued.map(({ id }) => id))

      const table = yield* done(["list", "--queue", "cli.list", "--limit", "2"])
      expect(table).toContain(`More: add --after ${seen[1]}`)
      expect(table).not.toContain('{"page"')
      expect(yield* done(["list", "--queue", "cli.list", "--show-payload"])).toContain('{"page":4}')
      expect(yield* done(["list", "--queue", "cli.list.dead", "--state", "dead", "--type", "cli.print"])).toContain(
        "gone"
      )
      expect(yield* done(["list", "--queue", "cli.list", "--state", "dead"])).toBe("No job matches.")
    })
  )

  it.effect("shows one job, its payload and result only where they are asked for", () =>
    Effect.gen(function* () {
      const definition = job("cli.show")
      const payload = /page\W+41/
      const { id } = yield* Queue.enqueue(definition, { page: 41 })
      yield* Effect.scoped(Effect.flatMap(Queue.claim(definition), (lease) => lease.complete("secret result")))
      for (const args of [
        ["show", id],
        ["show", id, "--json"]
      ]) {
        const out = yield* done(args)
        expect(out).toContain("succeeded")
        // With its name, and escaped or not: a time or an id may hold the number.
        expect(out).not.toMatch(payload)
        expect(out).not.toContain("secret result")
      }
      expect(yield* done(["show", id])).toContain("payload          11 bytes, shown by --show-payload")
      expect(yield* done(["show", id, "--show-payload"])).toContain('{"page":41}')
      expect(yield* done(["show", id, "--show-payload", "--json"])).toMatch(payload)
      expect(yield* doneJson(["show", id, "--show-payload"])).toMatchObject({
        id,
        queue: "cli.show",
        state: "succeeded",
        attempt: 1,
        attempts: [{ outcome: "completed" }],
        payload: '{"page":41}',
        output: '"secret result"'
      })
    })
  )

  it.effect(
    "tells why: attempts, refused late writes and where the job stands, in order and with nothing that moves the cursor",
    () =>
      Effect.gen(function* () {
        const store = yield* JobStore
        const id = yield* dead(job("cli.why"))
        yield* store.recordRefusals([
          { lease: { jobId: id, token: 1, attempt: 1, worker: "late.worker" }, verb: "complete" }
        ])
        const out = yield* done(["why", id])
        const says = out.split("\n").map((line) => line.replace(/^\S+ +/, ""))
        expect(says[0]).toContain("Enqueued as cli.print in queue cli.why")
        expect(says[1]).toContain("Attempt 1 started")
        expect(says.slice(2, 4).join()).toContain("Attempt 1 failed for good (gone: It is\\u001b[2J gone)")
        expect(out).toContain("A late complete under lease 1 was refused; nothing was written")
        expect(out).toContain(`Job ${id} now: Dead (gone: It is`)
        expect(out).not.toContain("\u001b")
        expect(yield* doneJson(["why", id])).toMatchObject({
          id,
          state: "dead",
          events: expect.arrayContaining([
            expect.objectContaining({ kind: "refused", token: 1, worker: "late.worker" })
          ])
        })
      })
  )

  it.effect("says what there is no job for, with exit code 5", () =>
    Effect.gen(function* () {
      for (const verb of ["show", "why", "retry", "cancel"]) {
        for (const id of ["999999999", "1 OR 1=1", "-1", "0", "1e3"]) {
          const ran = yield* failed([verb, "--", id])
          expect(ran).toMatchObject({ code: 5, out: "" })
          expect(ran.err).toContain(`There is no job ${JSON.stringify(id)}`)
        }
      }
    })
  )

  it.effect("retries by id: some refused, the others done, and exit code 5", () =>
    Effect.gen(function* () {
      const first = yield* dead(job("cli.retry.a"))
      const second = yield* dead(job("cli.retry.b"))
      const pending = (yield* Queue.enqueue(job("cli.retry.c"), { page: 1 })).id
      const ran = yield* failed(["retry", first, pending, "999999999", second])
      expect(ran.out).toBe(`${first}  pending\n${second}  pending`)
      expect(ran.err).toContain(`Job ${pending} is pending; only dead and canceled jobs can be retried`)
      expect(ran.err).toContain("2 of 4 jobs were refused")
      expect(ran.code).toBe(5)
      for (const id of [first, second]) {
        expect(yield* Queue.get(id)).toMatchObject({ state: "pending", attemptsLeft: Option.some(10) })
      }
    })
  )

  it.effect("retries by filter: dead jobs only, unless canceled ones are named", () =>
    Effect.gen(function* () {
      const definition = job("cli.retry.filter")
      const deadOne = yield* dead(definition)
      const canceled = (yield* Queue.enqueue(definition, { page: 2 })).id
      yield* Queue.cancel(canceled)
      const other = yield* dead(job("cli.retry.other"))
      expect(yield* doneJson(["retry", "--queue", "cli.retry.filter"])).toEqual({ retried: 1 })
      expect(yield* Queue.get(deadOne)).toMatchObject({ state: "pending" })
      expect(yield* Queue.get(canceled)).toMatchObject({ state: "canceled" })
      expect(yield* done(["retry", "--queue", "cli.retry.filter", "--state", "canceled"])).toBe(
        "1 jobs are pending again."
      )
      expect(yield* Queue.get(canceled)).toMatchObject({ state: "pending" })
      expect(yield* Queue.get(other)).toMatchObject({ state: "dead" })
    })
  )

  it.scoped("cancels pending jobs at once, running ones through their holder, and no ended ones", () =>
    Effect.gen(function* () {
      const definition = job("cli.cancel")
      const running = (yield* Queue.enqueue(definition, { page: 1 })).id
      const lease = yield* Queue.claim(definition)
      const pending = (yield* Queue.enqueue(definition, { page: 2 })).id
      expect(yield* doneJson(["cancel", running, pending])).toEqual([
        { id: running, did: "requested", error: null },
        { id: pending, did: "canceled", error: null }
      ])
      expect(yield* Queue.get(running)).toMatchObject({ state: "running", cancelRequested: true })
      const again = yield* failed(["cancel", pending])
      expect(again).toMatchObject({ code: 5, err: `leasehold: Job ${pending} is canceled already.` })
      yield* lease.release.pipe(Effect.ignore)
    })
  )

  it.effect("enqueues by the rules of the library: keys, delays, budgets, and the text that was meant", () =>
    Effect.gen(function* () {
      const definition = job("cli.enqueue")
      const json = ' {"page": 3} '
      const first = (yield* done(["enqueue", "cli.print", json, "--queue", "cli.enqueue"])).match(/\d+/)?.[0] ?? ""
      expect(yield* Queue.get(first)).toMatchObject({
        type: "cli.print",
        queue: "cli.enqueue",
        payload: '{"page":3}',
        priority: 5,
        payloadVersion: 1,
        maxAttempts: Option.some(10)
      })
      const lease = yield* Effect.scoped(
        Effect.tap(Queue.claim(definition), (held) => held.complete("printed by a worker that knows the schema"))
      )
      expect(lease.payload).toEqual({ page: 3 })

      const keyed = ["enqueue", "cli.print", "-", "--queue", "cli.enqueue", "--key", "ключ", "--scope", "s"]
      const made = yield* doneJson(
        [...keyed, "--priority", "2", "--max-attempts", "unlimited", "--payload-version", "3"],
        {
          stdin: '{"page":"é🙂"}'
        }
      )
      expect(made).toMatchObject({ created: true })
      expect(yield* doneJson(keyed, { stdin: '{ "page" : "é🙂" }' })).toEqual({ ...(made as object), created: false })
      const conflict = yield* failed([
        "enqueue",
        "cli.print",
        "1",
        "--queue",
        "cli.enqueue",
        "--key",
        "ключ",
        "--scope",
        "s"
      ])
      expect(conflict).toMatchObject({ code: 5 })
      expect(conflict.err).toContain("belongs to job")
      expect(conflict.err).not.toContain("ключ")
      const found = yield* Queue.find({ scope: "s", key: "ключ" })
      expect(Option.getOrThrow(found)).toMatchObject({
        payload: '{"page":"é🙂"}',
        priority: 2,
        payloadVersion: 3,
        maxAttempts: Option.none()
      })

      const later = Schema.decodeUnknownSync(Schema.Struct({ id: Schema.String }))(
        yield* doneJson(["enqueue", "cli.void", "--run-at", "2999-01-01T00:00:00+02:00"])
      ).id
      expect(yield* doneJson(["show", later, "--show-payload"])).toMatchObject({
        queue: "default",
        payload: null,
        dueAt: "2998-12-31T22:00:00.000Z"
      })
      expect(yield* failed(["enqueue", "cli.print", "1", "--max-attempts", "0"])).toMatchObject({ code: 2 })
      expect(yield* failed(["enqueue", "cli.print", "1", "--delay", "soon"])).toMatchObject({ code: 2 })
      expect(yield* failed(["enqueue", "no type!", "1"])).toMatchObject({ code: 2 })
    })
  )
})
