import { describe, expect, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import * as Job from "../../src/Job.js"
import * as RetryPolicy from "../../src/RetryPolicy.js"
import * as Worker from "../../src/Worker.js"
import { services } from "../support/Services.js"

const Task = Job.make("task", { payload: Schema.Void, queue: "orders" })
const Handlers = Task.toLayer(() => Effect.void)

/** What a worker with these options is refused with. */
const refusal = (options: Omit<Worker.Options, "jobs">) =>
  Worker.make({ ...options, jobs: [Task] }).pipe(Effect.provide([Handlers, services()]), Effect.scoped, Effect.flip)

describe("a worker's options", () => {
  const cases: ReadonlyArray<readonly [option: string, options: Omit<Worker.Options, "jobs">]> = [
    ["lease", { lease: 0 }],
    ["lease", { lease: -1 }],
    ["lease", { lease: Number.NaN }],
    ["lease", { lease: "299 millis" }],
    ["lease", { lease: "2 days" }],
    ["lease", { lease: Number.POSITIVE_INFINITY }],
    ["poll", { poll: 0 }],
    ["poll", { poll: "30 days" }],
    ["queues.orders.concurrency", { queues: { orders: { concurrency: 0 } } }],
    ["queues.orders.concurrency", { queues: { orders: { concurrency: 1.5 } } }],
    ["queues.orders.concurrency", { queues: { orders: { concurrency: Number.NaN } } }],
    ["queues.orders.prefetch", { queues: { orders: { concurrency: 2, prefetch: 1_001 } } }],
    ["queues.mail", { queues: { mail: { concurrency: 1 } } }],
    ["shutdown.grace", { shutdown: { grace: -1 } }],
    ["shutdown.unfinished", { shutdown: { unfinished: "keep" as "expire" } }],
    ["interruptGrace", { interruptGrace: 0 }],
    ["maintenance.reap", { maintenance: { reap: 0 } }],
    ["maintenance.retention.dead", { maintenance: { retention: { dead: "1000 weeks" } } }]
  ]
  it.effect.each(cases)("that are out of range are refused by name: %s", ([option, options]) =>
    Effect.gen(function* () {
      const error = yield* refusal(options)
      expect(error).toMatchObject({ _tag: "InvalidOption", option })
      expect(error.message).toContain(option)
    })
  )

  it.effect("may not hold a name that no row could", () =>
    Effect.gen(function* () {
      const long = "q".repeat(65)
      expect(yield* refusal({ queues: { [long]: { concurrency: 1 } } })).toMatchObject({
        _tag: "InvalidName",
        name: long
      })
      expect(yield* refusal({ workerId: "a worker" })).toMatchObject({ _tag: "InvalidName", kind: "worker id" })
    })
  )

  it.effect("list one job or more, each type once, each well defined", () =>
    Effect.gen(function* () {
      const run = <const Jobs extends ReadonlyArray<Job.Any>>(jobs: Jobs) =>
        Effect.flip(Worker.run({ jobs })).pipe(Effect.provide(services()), Effect.scoped)
      expect(yield* run([])).toMatchObject({ option: "jobs" })
      expect(yield* Effect.provide(run([Task, Task]), Handlers)).toMatchObject({ option: "jobs", value: "task" })
      const Bad = Job.make("bad", {
        payload: Schema.Void,
        retry: RetryPolicy.fixed({ delay: "1 second", maxAttempts: 0 })
      })
      expect(
        yield* Effect.provide(
          run([Bad]),
          Bad.toLayer(() => Effect.void)
        )
      ).toMatchObject({ option: "retry.maxAttempts" })
    })
  )

  it.effect("are all optional but the jobs", () =>
    Effect.gen(function* () {
      const worker = yield* Worker.make({ jobs: [Task] })
      expect(worker.id).toMatch(/^[A-Za-z0-9_.-]{1,64}$/)
      expect((yield* worker.health).status).toBe("bad")
    }).pipe(Effect.provide([Handlers, services()]), Effect.scoped)
  )
})
