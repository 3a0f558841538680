/**
 * `npx tsx examples/01-enqueue-and-work/main.ts`: a job, its handler, and a worker that runs it.
 */
import { NodeRuntime } from "@effect/platform-node"
import { Console, Effect, Layer, Schema } from "effect"
import { Job, MysqlQueue, Queue, Worker } from "leasehold"
import { Database } from "../Database.js"

// A job is a value: its name, and the schemas of its payload and its result.
const Greet = Job.make("greet", {
  payload: { name: Schema.String },
  success: Schema.Struct({ greeting: Schema.String }),
  queue: "example-01"
})

// The handler is a layer. It gets the payload decoded, and answers the result.
const GreetLive = Greet.toLayer(({ name }) => Effect.succeed({ greeting: `Hello, ${name}!` }))

const program = Effect.gen(function* () {
  // Durable on return: from here on the job survives this process.
  const first = yield* Queue.enqueue(Greet, { name: "Ada" })
  const rest = yield* Queue.enqueueAll(Greet, [{ name: "Grace" }, { name: "Barbara" }])

  for (const { id } of [first, ...rest]) {
    const { greeting } = yield* Queue.result(Greet, id)
    yield* Console.log(greeting)
  }
  const record = yield* Queue.get(first.id)
  yield* Console.log(`The first job has ${record.state} in attempt ${record.attempt}`)
})

// The worker lives as long as the layer; its end stops it gracefully.
const Live = Worker.layer({ jobs: [Greet], queues: { "example-01": { concurrency: 4 } } }).pipe(
  Layer.provide(GreetLive),
  Layer.provideMerge(MysqlQueue.layer()),
  Layer.provideMerge(Database)
)

NodeRuntime.runMain(Effect.provide(program, Live))
