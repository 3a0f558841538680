/**
 * `npx tsx examples/09-opentelemetry/main.ts`: a request, and the run of the job that it left behind, as linked traces.
 */
import * as NodeSdk from "@effect/opentelemetry/NodeSdk"
import { NodeRuntime } from "@effect/platform-node"
import { InMemorySpanExporter, type ReadableSpan, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base"
import { Console, Effect, Layer, Schema } from "effect"
import { Job, MysqlQueue, Queue, Worker } from "leasehold"
import { Database } from "../Database.js"

const SendReceipt = Job.make("receipt.send", { payload: { orderId: Schema.Number }, queue: "example-09" })

const SendReceiptLive = SendReceipt.toLayer(() => Effect.withSpan(Effect.void, "smtp.send"))

const placeOrder = Effect.withSpan(Queue.enqueue(SendReceipt, { orderId: 1 }), "POST /orders")

const Live = Worker.layer({ jobs: [SendReceipt] }).pipe(
  Layer.provide(SendReceiptLive),
  Layer.provideMerge(MysqlQueue.layer()),
  Layer.provideMerge(Database)
)

// In a program of your own: a BatchSpanProcessor and an exporter to your collector.
const exporter = new InMemorySpanExporter()
const Tracing = NodeSdk.layer(() => ({
  resource: { serviceName: "shop" },
  spanProcessor: new SimpleSpanProcessor(exporter)
}))

const program = Effect.gen(function* () {
  const { id } = yield* placeOrder
  yield* Queue.result(SendReceipt, id)
})

/** A span, what it is linked to, and the spans below it. */
const describe = (span: ReadableSpan, indent = ""): ReadonlyArray<string> => {
  const spans = exporter.getFinishedSpans()
  const named = (spanId: string) => spans.find((other) => other.spanContext().spanId === spanId)?.name
  const links = span.links.map(({ context }) => `, linked to ${named(context.spanId)}`)
  const below = spans.filter(({ parentSpanContext }) => parentSpanContext?.spanId === span.spanContext().spanId)
  return [`${indent}${span.name}${links.join("")}`, ...below.flatMap((child) => describe(child, `${indent}  `))]
}

const tell = Effect.gen(function* () {
  const spans = exporter.getFinishedSpans()
  // The worker's own claims and settlements are traces too, and left out here.
  const [request, run] = ["POST /orders", "leasehold.run"].map((name) => spans.find((span) => span.name === name))
  if (request === undefined || run === undefined) return yield* Effect.dieMessage("A trace is missing")
  yield* Console.log([...describe(request), ...describe(run)].join("\n"))

  // A job may run hours later, or five times: so its runs are traces of their own, and not a part of the request's.
  const isSame = request.spanContext().traceId === run.spanContext().traceId
  yield* Console.log(`one trace: ${isSame}`)
  const { attempt, job_type, queue } = run.attributes
  yield* Console.log(`attributes of the run: ${job_type} in ${queue}, attempt ${attempt}`)
})

NodeRuntime.runMain(program.pipe(Effect.provide(Live), Effect.zipRight(tell), Effect.provide(Tracing)))
