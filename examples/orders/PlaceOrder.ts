/**
 * An order and its job, committed together or not at all.
 */
import { SqlClient } from "@effect/sql"
import { Effect, Random, Schedule } from "effect"
import { Queue } from "leasehold"
import { ExportOrder } from "./ExportOrder.js"
import { Orders } from "./Orders.js"

/** Places one order: the row, its job and the row's note of the job are one transaction. */
export const placeOrder = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const orders = yield* Orders
  const item = yield* anyItem
  return yield* sql.withTransaction(
    Effect.gen(function* () {
      const orderId = yield* orders.insert(item)
      const job = yield* Queue.enqueue(ExportOrder, { orderId }, { requireTransaction: true })
      yield* orders.rememberJob(orderId, job.id)
      return orderId
    })
  )
}).pipe(
  // Whatever became of the enqueue, its failure has rolled the transaction back: so the whole of it can be run again.
  Effect.retry({
    while: ({ _tag }) => _tag === "TransactionAborted" || _tag === "StoreUnavailable" || _tag === "OutcomeUnknown",
    schedule: Schedule.jittered(Schedule.exponential("50 millis")),
    times: 6
  })
)

const items = [
  "teapot",
  "reading lamp",
  "garden chair",
  "chess set",
  "umbrella",
  "bicycle bell",
  "wool blanket",
  "globe"
]

const anyItem = Effect.map(
  Effect.zip(Random.nextIntBetween(1, 4), Random.nextIntBetween(0, items.length)),
  ([count, index]) => `${count} × ${items[index]}`
)
