/**
 * `npx tsx examples/03-retry-and-permanent/main.ts`: typed failures, and what each of them means for the job.
 */
import { NodeRuntime } from "@effect/platform-node"
import { Console, Effect, Layer, Option, Schema } from "effect"
import { Job, MysqlQueue, Queue, RetryPolicy, Worker } from "leasehold"
import { Database } from "../Database.js"

class UpstreamDown extends Schema.TaggedError<UpstreamDown>()("UpstreamDown", { status: Schema.Number }) {}
class OrderMissing extends Schema.TaggedError<OrderMissing>()("OrderMissing", { orderId: Schema.Number }) {}

const Export = Job.make("order.export", {
  payload: { orderId: Schema.Number },
  error: Schema.Union(UpstreamDown, OrderMissing),
  // Leave one of them out, and it does not compile.
  failures: { UpstreamDown: "retry", OrderMissing: "permanent" },
  queue: "example-03",
  retry: RetryPolicy.exponential({ maxAttempts: 3, base: "100 millis", max: "1 second" })
})

const ExportLive = Export.toLayer(({ orderId }, { attempt }) => {
  if (orderId === 404) return new OrderMissing({ orderId })
  // Order 1 is exported by its third attempt, order 2 by none.
  return orderId === 2 || attempt < 3 ? new UpstreamDown({ status: 503 }) : Effect.void
})

const program = Effect.gen(function* () {
  for (const orderId of [1, 2, 404]) {
    const { id } = yield* Queue.enqueue(Export, { orderId })
    // A job that ends dead fails its result with JobDead, and says why.
    const ending = yield* Queue.result(Export, id).pipe(
      Effect.as("done"),
      Effect.catchTag("JobDead", ({ code }) => Effect.succeed(`dead, ${code}`))
    )
    const { attempts } = yield* Queue.get(id)
    const outcomes = attempts.map(({ outcome }) => Option.getOrElse(outcome, () => "open"))
    yield* Console.log(`order ${orderId}: ${ending}; attempts: ${outcomes.join(", ")}`)
  }
})

const Live = Worker.layer({ jobs: [Export], poll: "50 millis" }).pipe(
  Layer.provide(ExportLive),
  Layer.provideMerge(MysqlQueue.layer()),
  Layer.provideMerge(Database)
)

NodeRuntime.runMain(Effect.provide(program, Live))
