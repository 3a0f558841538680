/**
 * `npx tsx examples/07-graceful-shutdown/main.ts`: what a deploy does to jobs under way. The program sends itself the SIGTERM.
 */
import { NodeRuntime } from "@effect/platform-node"
import { Console, Effect, Layer, Option, Schema } from "effect"
import { Job, MysqlQueue, Queue, Worker } from "leasehold"
import { Database } from "../Database.js"

const Encode = Job.make("video.encode", { payload: { title: Schema.String }, queue: "example-07" })

const shortStarted = Effect.runSync(Effect.makeLatch())
const longStarted = Effect.runSync(Effect.makeLatch())

const EncodeLive = Encode.toLayer(({ title }) =>
  title === "short"
    ? Effect.zipRight(shortStarted.open, Effect.delay(Console.log("short: encoded"), "300 millis"))
    : Effect.zipRight(longStarted.open, Effect.never).pipe(Effect.onInterrupt(() => Console.log(`${title}: cut off`)))
)

const WorkerLive = Worker.layer({
  jobs: [Encode],
  queues: { "example-07": { concurrency: 2, prefetch: 0 } },
  shutdown: {
    // Handlers may go on for so long: less than what your platform waits before its SIGKILL.
    grace: "1 second",
    // Then those that have not ended are interrupted, and their jobs given back. Their attempts cost nothing.
    unfinished: "release"
  }
}).pipe(Layer.provide(EncodeLive))

/** Layers are released from the top down: the end of this one, which the worker stands on, comes after the worker's. */
const JobsLive = Layer.scopedDiscard(
  Effect.gen(function* () {
    const titles = ["short", "long", "next"]
    const jobs = yield* Queue.enqueueAll(
      Encode,
      titles.map((title) => ({ title }))
    )
    const tell = Effect.forEach(jobs, ({ id }, index) =>
      Effect.gen(function* () {
        const { attempt, attemptsLeft, state } = yield* Queue.get(id)
        yield* Console.log(
          `${titles[index]}: ${state}; claims: ${attempt}, attempts left: ${Option.getOrNull(attemptsLeft)}`
        )
      })
    )
    yield* Effect.addFinalizer(() => Effect.orDie(tell))
  })
)

const Deploy = Layer.effectDiscard(
  Effect.gen(function* () {
    yield* Effect.zipRight(shortStarted.await, longStarted.await)
    yield* Console.log("two of three jobs run: SIGTERM")
    process.kill(process.pid, "SIGTERM")
  })
)

const Live = Layer.merge(WorkerLive, Deploy).pipe(
  Layer.provide(JobsLive),
  Layer.provide(MysqlQueue.layer()),
  Layer.provide(Database)
)

// This is all that a worker's process needs: it runs until SIGTERM or SIGINT interrupts it, and stops as above.
NodeRuntime.runMain(Layer.launch(Live))
