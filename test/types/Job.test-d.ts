import { Context, Effect, type Layer, Schema } from "effect"
import { describe, expectTypeOf, test } from "vitest"
import * as Job from "../../src/Job.js"
import { Retryable } from "../../src/JobFailure.js"
import * as RetryPolicy from "../../src/RetryPolicy.js"

class UpstreamDown extends Schema.TaggedError<UpstreamDown>()("UpstreamDown", { status: Schema.Number }) {}
class OrderMissing extends Schema.TaggedError<OrderMissing>()("OrderMissing", { orderId: Schema.Number }) {}
class Undeclared extends Schema.TaggedError<Undeclared>()("Undeclared", {}) {}
class FileStore extends Context.Tag("FileStore")<
  FileStore,
  {
    readonly export: (orderId: number, options: { readonly fence: number }) => Effect.Effect<string, UpstreamDown>
  }
>() {}

const ExportOrder = Job.make("order.export", {
  payload: { orderId: Schema.Number },
  success: Schema.Struct({ url: Schema.String }),
  error: Schema.Union(UpstreamDown, OrderMissing),
  failures: {
    UpstreamDown: (error) =>
      new Retryable({ code: "down", message: `status ${error.status}`, retryAfter: "5 seconds" }),
    OrderMissing: "permanent"
  },
  queue: "orders",
  priority: 5,
  timeout: "30 seconds",
  retry: RetryPolicy.exponential({ maxAttempts: 10, base: "1 second", factor: 2, max: "1 hour", jitter: 0.25 }),
  idempotencyKey: ({ orderId }) => `export:${orderId}`
})

const payload = { orderId: Schema.Number }
const error = Schema.Union(UpstreamDown, OrderMissing)

describe("the failures table", () => {
  test("leaving a tag out does not compile", () => {
    // @ts-expect-error OrderMissing has no verdict
    Job.make("a", { payload, error, failures: { UpstreamDown: "retry" } })
  })
  test("leaving the table out does not compile", () => {
    // @ts-expect-error the table is missing
    Job.make("a", { payload, error })
  })
  test("an extra tag does not compile", () => {
    // @ts-expect-error Other is no tag of the error
    Job.make("a", { payload, error, failures: { UpstreamDown: "retry", OrderMissing: "permanent", Other: "retry" } })
  })
  test("a table without errors does not compile", () => {
    // @ts-expect-error there is nothing to decide
    Job.make("a", { payload, failures: { Other: "retry" } })
  })
  test("a word that is no verdict does not compile", () => {
    // @ts-expect-error "later" is no verdict
    Job.make("a", { payload, error, failures: { UpstreamDown: "later", OrderMissing: "permanent" } })
  })
  test("an error without a tag does not compile", () => {
    // @ts-expect-error a string has no _tag
    Job.make("a", { payload, error: Schema.String, failures: {} })
  })
})

describe("a handler", () => {
  test("is given the payload and a lease, and its services become the layer's", () => {
    const layer = ExportOrder.toLayer(
      Effect.gen(function* () {
        const files = yield* FileStore
        return ({ orderId }, lease) =>
          Effect.gen(function* () {
            expectTypeOf(orderId).toEqualTypeOf<number>()
            const url = yield* files.export(orderId, { fence: lease.token })
            return { url }
          })
      })
    )
    expectTypeOf(layer).toEqualTypeOf<Layer.Layer<Job.JobHandler<"order.export">, never, FileStore>>()
  })
  test("may be given directly, and may need services and a scope of its own", () => {
    const layer = ExportOrder.toLayer(({ orderId }) =>
      Effect.gen(function* () {
        yield* Effect.addFinalizer(() => Effect.void)
        const files = yield* FileStore
        return { url: yield* files.export(orderId, { fence: 1 }) }
      })
    )
    expectTypeOf(layer).toEqualTypeOf<Layer.Layer<Job.JobHandler<"order.export">, never, FileStore>>()
  })
  test("with an error that the job does not declare does not compile", () => {
    // @ts-expect-error Undeclared is neither declared nor an outcome of work
    ExportOrder.toLayer(() => Effect.fail(new Undeclared()))
  })
  test("with another success does not compile", () => {
    // @ts-expect-error the url is missing
    ExportOrder.toLayer(() => Effect.succeed({}))
  })
  test("may fail with the outcomes of work", () => {
    ExportOrder.toLayer(() => Effect.fail(new Retryable({ code: "a", message: "b" })))
  })
})
