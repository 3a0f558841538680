/** What is tested: an order that is placed, and the job that exports it. */
import { Context, Effect, Schema } from "effect"
import { Job, Queue, RetryPolicy } from "leasehold"

export class StorageDown extends Schema.TaggedError<StorageDown>()("StorageDown", {}) {}

/** Where exports are written to. */
export class Storage extends Context.Tag("Storage")<
  Storage,
  { readonly write: (name: string) => Effect.Effect<void, StorageDown> }
>() {}

export const ExportOrder = Job.make("order.export", {
  payload: { orderId: Schema.Number },
  success: Schema.Struct({ file: Schema.String }),
  error: StorageDown,
  failures: { StorageDown: "retry" },
  retry: RetryPolicy.fixed({ delay: "1 minute", maxAttempts: 3, jitter: 0 })
})

export const ExportOrderLive = ExportOrder.toLayer(
  Effect.gen(function* () {
    const storage = yield* Storage
    return ({ orderId }) => Effect.as(storage.write(`order-${orderId}.pdf`), { file: `order-${orderId}.pdf` })
  })
)

export const placeOrder = (orderId: number) => Queue.enqueue(ExportOrder, { orderId }, { delay: "10 seconds" })
