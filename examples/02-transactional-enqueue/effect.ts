/**
 * `npx tsx examples/02-transactional-enqueue/effect.ts`: a row of the application and its job, in one transaction, with Effect.
 */
import { NodeRuntime } from "@effect/platform-node"
import { SqlClient } from "@effect/sql"
import { Console, Effect, Layer } from "effect"
import { MysqlQueue, Queue, Worker } from "leasehold"
import { Database } from "../Database.js"
import { ShipOrder } from "./ShipOrder.js"

/** The order and its job: both are there, or neither is. */
const insertOrder = (customer: string, requestId: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`INSERT INTO example_orders (customer) VALUES (${customer})`
    const [row] = yield* sql<{ id: number }>`SELECT LAST_INSERT_ID() AS id`
    const orderId = row?.id ?? 0
    const job = yield* Queue.enqueue(
      ShipOrder,
      { orderId, customer },
      // Whoever calls this outside of a transaction hears of it, instead of leaving an order without a job one day.
      { requireTransaction: true, idempotency: { scope: "orders", key: requestId } }
    )
    return { orderId, job }
  })

const program = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`DROP TABLE IF EXISTS example_orders`
  yield* sql`CREATE TABLE example_orders (id INT PRIMARY KEY AUTO_INCREMENT, customer VARCHAR(80) NOT NULL)`
  const requestId = `request ${Date.now()}`

  // 1. Joined: the enqueue runs on the connection of the transaction that is open.
  const placed = yield* sql.withTransaction(insertOrder("Ada", requestId))
  yield* Console.log(`placed    order ${placed.orderId} with job ${placed.job.id}`)

  // 2. Rolled back: no order, and no job that would look for one.
  const refused = yield* Effect.flip(
    sql.withTransaction(Effect.zipRight(insertOrder("Bob", `${requestId} of Bob`), Effect.fail("the card was refused")))
  )
  yield* Console.log(`undone    ${String(refused)}: neither order nor job`)

  // 3. Repeated: the same request again is the same job. Another payload under its key would be a conflict.
  const again = yield* Queue.enqueue(
    ShipOrder,
    { orderId: placed.orderId, customer: "Ada" },
    { idempotency: { scope: "orders", key: requestId } }
  )
  yield* Console.log(`repeated  job ${again.id}, created: ${again.created}`)

  // 4. A transaction that the queue runs: workers of this process are woken the moment it has committed.
  const quick = yield* Queue.withTransaction(insertOrder("Grace", `${requestId} of Grace`)).pipe(
    // A deadlock has undone all of it: then all of it is done again.
    Effect.retry({ times: 3, while: (error) => error._tag === "TransactionAborted" })
  )
  yield* Console.log(`placed    order ${quick.orderId} with job ${quick.job.id}`)

  for (const { job, orderId } of [placed, quick]) {
    const { parcel } = yield* Queue.result(ShipOrder, job.id)
    yield* Console.log(`shipped   order ${orderId} as ${parcel}`)
  }
  const orders = yield* sql`SELECT id FROM example_orders`
  yield* Console.log(`${orders.length} orders, ${orders.length} parcels`)
})

const ShipOrderLive = ShipOrder.toLayer(({ orderId }) => Effect.succeed({ parcel: `parcel-${orderId}` }))

const Live = Worker.layer({ jobs: [ShipOrder], queues: { shipping: { concurrency: 2 } } }).pipe(
  Layer.provide(ShipOrderLive),
  Layer.provideMerge(MysqlQueue.layer({ tablePrefix: "example_" })),
  Layer.provideMerge(Database)
)

NodeRuntime.runMain(Effect.provide(program, Live))
