/**
 * `npx tsx examples/04-cancel-and-timeout/main.ts`: jobs that are not to run any more, and one that takes too long.
 */
import { NodeRuntime } from "@effect/platform-node"
import { Console, Effect, Layer, Option, Schema } from "effect"
import { Job, MysqlQueue, Queue, RetryPolicy, Worker } from "leasehold"
import { Database } from "../Database.js"

const started = Effect.runSync(Effect.makeLatch())

const Report = Job.make("report", { payload: { year: Schema.Number }, queue: "example-04" })

const ReportLive = Report.toLayer(() =>
  // A report that takes for ever. A cancel interrupts it as any Effect: its finalizers run, under its lease.
  Effect.zipRight(started.open, Effect.never).pipe(Effect.onInterrupt(() => Console.log("the handler cleans up")))
)

const Ping = Job.make("ping", {
  payload: { host: Schema.String },
  queue: "example-04",
  // For each attempt. One that is out of time counts as failed, and the retry policy says what comes next.
  timeout: "200 millis",
  retry: RetryPolicy.fixed({ delay: "100 millis", maxAttempts: 2 })
})

const PingLive = Ping.toLayer(() => Effect.never)

const program = Effect.gen(function* () {
  // A job that waits is canceled at once, and never runs.
  const later = yield* Queue.enqueue(Report, { year: 2024 }, { delay: "1 hour" })
  yield* Console.log(`a pending job: ${(yield* Queue.cancel(later.id))._tag}`)

  // One that runs is asked to end. Its worker hears of it at its next renewal, within a third of its lease.
  const now = yield* Queue.enqueue(Report, { year: 2025 })
  yield* started.await
  const { _tag: answer } = yield* Queue.cancel(now.id)
  const ending = yield* Effect.flip(Queue.result(Report, now.id))
  yield* Console.log(`a running job: ${answer}, then ${ending._tag}`)

  // One that was canceled by mistake can be brought back, with a fresh budget: it is due at once.
  yield* started.close
  yield* Queue.retry(later.id)
  yield* started.await
  yield* Console.log(`brought back: ${(yield* Queue.get(later.id)).state}`)
  yield* Queue.cancel(later.id)
  yield* Effect.flip(Queue.result(Report, later.id))

  const ping = yield* Queue.enqueue(Ping, { host: "example.com" })
  yield* Queue.result(Ping, ping.id).pipe(
    Effect.catchTag("JobDead", ({ code }) => Console.log(`a job that is too slow: dead, ${code}`))
  )
  const { attempts } = yield* Queue.get(ping.id)
  yield* Console.log(`its attempts: ${attempts.map(({ outcome }) => Option.getOrNull(outcome)).join(", ")}`)
})

const Live = Worker.layer({ jobs: [Report, Ping], lease: "3 seconds", poll: "50 millis" }).pipe(
  Layer.provide([ReportLive, PingLive]),
  Layer.provideMerge(MysqlQueue.layer()),
  Layer.provideMerge(Database)
)

NodeRuntime.runMain(Effect.provide(program, Live))
