/**
 * The job of an order, and the handler that exports it.
 */
import { Duration, Effect, Random, Schema } from "effect"
import { Job, JobFailure, RetryPolicy } from "leasehold"
import { Orders } from "./Orders.js"

/** The warehouse did not take the order. */
export class WarehouseDown extends Schema.TaggedError<WarehouseDown>()("WarehouseDown", { status: Schema.Number }) {
  override get message() {
    return `the warehouse answered ${this.status}`
  }
}

/** The warehouse took the order, and the answer was lost: the attempt fails although its work is done. */
export class AnswerLost extends Schema.TaggedError<AnswerLost>()("AnswerLost", {}) {
  override get message() {
    return "exported, and the answer lost"
  }
}

export const ExportOrder = Job.make("order.export", {
  payload: { orderId: Schema.Number },
  success: Schema.Struct({ exportedBefore: Schema.Boolean }),
  error: Schema.Union(WarehouseDown, AnswerLost),
  failures: { WarehouseDown: "retry", AnswerLost: "retry" },
  queue: "orders",
  // Short delays, since somebody watches.
  retry: RetryPolicy.exponential({ maxAttempts: 25, base: "300 millis", factor: 1.5, max: "2 seconds" })
})

export interface Work {
  readonly delay: Duration.Duration
  /** Share of the attempts that fail, half of them before the order is exported and half of them after. */
  readonly failRate: number
}

/** Exports orders. Repeating an export that was done before is a success: that is all it takes for at-least-once to be enough. */
export const layer = (work: Work) =>
  ExportOrder.toLayer(
    Effect.gen(function* () {
      const orders = yield* Orders
      return ({ orderId }) =>
        Effect.gen(function* () {
          const luck = yield* Random.next
          yield* Effect.sleep(Duration.times(work.delay, 1 + (yield* Random.next) / 2))
          if (luck < work.failRate / 2) return yield* new WarehouseDown({ status: 503 })
          const marked = yield* orders
            .markExported(orderId)
            .pipe(
              Effect.mapError(
                (cause) =>
                  new JobFailure.Retryable({ code: "database", message: "the order can not be written", cause })
              )
            )
          if (marked === "missing") {
            return yield* new JobFailure.Permanent({ code: "order_missing", message: `there is no order ${orderId}` })
          }
          if (luck < work.failRate) return yield* new AnswerLost()
          return { exportedBefore: marked === "was exported" }
        })
    })
  )
