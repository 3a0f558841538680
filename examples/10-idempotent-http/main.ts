/**
 * `npx tsx examples/10-idempotent-http/main.ts`: an HTTP API whose POST may be sent again: the caller's Idempotency-Key names one
 * job, however often a client, a proxy or a person repeats the request.
 */
import {
  HttpApi,
  HttpApiBuilder,
  HttpApiEndpoint,
  HttpApiGroup,
  HttpApiSchema,
  HttpClient,
  HttpClientRequest
} from "@effect/platform"
import { NodeHttpServer, NodeRuntime } from "@effect/platform-node"
import { Console, Effect, Layer, Schema } from "effect"
import { Job, MysqlQueue, Queue, Worker } from "leasehold"
import { Database } from "../Database.js"

const ExportOrder = Job.make("order.export", {
  payload: { orderId: Schema.Number },
  success: Schema.Struct({ url: Schema.String }),
  queue: "example-10"
})

const ExportOrderLive = ExportOrder.toLayer(({ orderId }) => Effect.succeed({ url: `/files/order-${orderId}.pdf` }))

// 1. The API.
class KeyReused extends Schema.TaggedError<KeyReused>()(
  "KeyReused",
  { message: Schema.String },
  HttpApiSchema.annotations({ status: 409 })
) {}

class Exports extends HttpApiGroup.make("exports").add(
  HttpApiEndpoint.post("start", "/exports")
    .setHeaders(Schema.Struct({ "idempotency-key": Schema.String.pipe(Schema.pattern(/^[!-~]{1,255}$/)) }))
    .setPayload(Schema.Struct({ orderId: Schema.Number }))
    .addSuccess(Schema.Struct({ jobId: Schema.String, created: Schema.Boolean }), { status: 202 })
    .addError(KeyReused)
) {}

class Api extends HttpApi.make("shop").add(Exports) {}

// 2. What it does.
const ExportsLive = HttpApiBuilder.group(Api, "exports", (handlers) =>
  handlers.handle("start", ({ headers, payload }) =>
    Queue.enqueue(ExportOrder, payload, {
      // Keys of one scope never meet those of another: here it would be the caller's account.
      idempotency: { scope: "account-7", key: headers["idempotency-key"] }
    }).pipe(
      Effect.map(({ created, id }) => ({ jobId: id, created })),
      Effect.catchTag(
        "IdempotencyConflict",
        () => new KeyReused({ message: "This Idempotency-Key belongs to another request." })
      ),
      // What is left is a database that can not be reached, or a mistake in this program: 500, and the client tries again.
      Effect.orDie
    )
  )
)

const ServerLive = HttpApiBuilder.serve().pipe(
  Layer.provide(HttpApiBuilder.api(Api)),
  Layer.provide(ExportsLive),
  // On any free port, with a client for it. In production: NodeHttpServer.layer(createServer, { port: 3000 })
  Layer.provideMerge(NodeHttpServer.layerTest)
)

const WorkerLive = Worker.layer({ jobs: [ExportOrder] }).pipe(Layer.provide(ExportOrderLive))

// 3. A client that repeats itself.
const post = (body: unknown, key?: string) =>
  Effect.gen(function* () {
    const client = yield* HttpClient.HttpClient
    const request = HttpClientRequest.post("/exports").pipe(HttpClientRequest.bodyUnsafeJson(body))
    const response = yield* client.execute(
      key === undefined ? request : HttpClientRequest.setHeader(request, "Idempotency-Key", key)
    )
    return { status: response.status, body: yield* response.json }
  })

const program = Effect.gen(function* () {
  const Started = Schema.decodeUnknown(Schema.Struct({ jobId: Schema.String, created: Schema.Boolean }))
  const key = crypto.randomUUID()

  const first = yield* post({ orderId: 42 }, key)
  const { created, jobId } = yield* Started(first.body)
  yield* Console.log(`a request: ${first.status}, created: ${created}`)

  const again = yield* post({ orderId: 42 }, key)
  const replay = yield* Started(again.body)
  yield* Console.log(`sent again: ${again.status}, created: ${replay.created}, the same job: ${replay.jobId === jobId}`)

  const reused = yield* post({ orderId: 43 }, key)
  yield* Console.log(`another order under its key: ${reused.status} ${JSON.stringify(reused.body)}`)

  yield* Console.log(`without a key: ${(yield* post({ orderId: 42 })).status}`)
  yield* Console.log(`the export: ${(yield* Queue.result(ExportOrder, jobId)).url}`)
})

const Live = Layer.merge(ServerLive, WorkerLive).pipe(
  Layer.provideMerge(MysqlQueue.layer()),
  Layer.provideMerge(Database)
)

NodeRuntime.runMain(Effect.provide(program, Live))
