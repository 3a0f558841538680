/**
 * Modules as a user gives them to `leasehold work`: layers of a worker, complete or asking for the queue.
 */
import { MysqlClient } from "@effect/sql-mysql2"
import { Effect, Layer, Redacted, Schema } from "effect"
import { Job, MysqlQueue, Worker } from "../../../src/index.js"

export const Greet = Job.make("module.greet", {
  payload: { name: Schema.String, seconds: Schema.Number },
  success: Schema.String,
  queue: "module"
})

const GreetLive = Greet.toLayer(({ name, seconds }) =>
  Effect.gen(function* () {
    yield* Effect.sync(() => process.stdout.write(`greeting ${name}\n`))
    yield* Effect.sleep(seconds * 1_000)
    return `Hello ${name}`
  })
)

const options = { jobs: [Greet], queues: { module: { concurrency: 4 } }, poll: "50 millis" } as const

/** Asks for the queue. */
export default Worker.layer(options).pipe(Layer.provide(GreetLive))

/** Brings its own. */
export const Complete = Worker.layer(options).pipe(
  Layer.provide(GreetLive),
  Layer.provide(MysqlQueue.layer()),
  Layer.provide(Layer.suspend(() => MysqlClient.layer({ url: Redacted.make(process.env["GREET_URL"] ?? "") })))
)

export const Broken = Layer.fail(new Error("the file of settings is missing"))

export const noLayer = 7
