/** The job of both programs in this folder: the one with Effect that ships orders, and the one with Drizzle that places them. */
import { Schema } from "effect"
import { Job, RetryPolicy } from "leasehold"

export const ShipOrder = Job.make("order.ship", {
  payload: { orderId: Schema.Number, customer: Schema.String },
  success: Schema.Struct({ parcel: Schema.String }),
  queue: "shipping",
  retry: RetryPolicy.exponential({ maxAttempts: 5, base: "1 second", factor: 2, max: "1 minute", jitter: 0.25 })
})
