/**
 * `npx tsx examples/02-transactional-enqueue/drizzle.ts`: a row and its job in one transaction of Drizzle, without Effect.
 * Whoever works these jobs has Effect; whoever places them need not.
 */
import { MysqlClient } from "@effect/sql-mysql2"
import { sql } from "drizzle-orm"
import { int, mysqlTable, varchar } from "drizzle-orm/mysql-core"
import { drizzle, type MySql2Database } from "drizzle-orm/mysql2"
import { Effect, Redacted } from "effect"
import { Enqueuer, Migrations, QueueError } from "leasehold"
import * as Leasehold from "leasehold/adapters/drizzle"
import { createPool } from "mysql2/promise"
import { launch } from "../../scripts/mysql/MysqlServer.js"
import { ShipOrder } from "./ShipOrder.js"

const orders = mysqlTable("example_orders", {
  id: int().primaryKey().autoincrement(),
  customer: varchar({ length: 80 }).notNull()
})

const placeOrders = async (db: MySql2Database) => {
  const enqueuer = Enqueuer.promise({ tablePrefix: "example_", outside: Leasehold.outside(db) })
  const requestId = `request ${Date.now()}`

  const placeOrder = (customer: string, key: string, isPaid: boolean) =>
    db.transaction(async (tx) => {
      const [{ insertId }] = await tx.insert(orders).values({ customer })
      const job = await enqueuer.enqueue(
        Leasehold.transaction(tx),
        ShipOrder,
        { orderId: insertId, customer },
        { idempotency: { scope: "orders", key } }
      )
      if (!isPaid) throw new Error("the card was refused")
      return { orderId: insertId, job }
    })

  const placed = await placeOrder("Ada", requestId, true)
  console.log(`placed    order ${placed.orderId} with job ${placed.job.id}`)

  await placeOrder("Bob", `${requestId} of Bob`, false).catch((error: Error) =>
    console.log(`undone    ${error.message}: neither order nor job`)
  )

  // The same request again, for another order: the key tells that it is not the same, and the new order is undone.
  await placeOrder("Ada", requestId, true).catch((error) => {
    if (!(error instanceof QueueError.IdempotencyConflict)) throw error
    console.log(`repeated  ${error._tag}: the order of job ${placed.job.id} stands`)
  })

  // Outside of a transaction the enqueue could outlive an order that is rolled back later: it is refused.
  await enqueuer.enqueue(Leasehold.transaction(db), ShipOrder, { orderId: 0, customer: "Eve" }).catch((error) => {
    if (!(error instanceof QueueError.NotInTransaction)) throw error
    console.log(`refused   ${error._tag}`)
  })

  console.log(`${(await db.select().from(orders)).length} order, ${await countJobs(db, placed.job.id)} job`)
}

/** The jobs of this run. */
const countJobs = async (db: MySql2Database, first: string) => {
  const [rows] = await db.execute(sql`SELECT COUNT(*) AS jobs FROM example_jobs WHERE id >= ${first}`)
  return (rows as unknown as ReadonlyArray<{ readonly jobs: number }>)[0]?.jobs
}

const program = Effect.gen(function* () {
  const { url } = yield* launch()
  // As a deployment step would.
  yield* Effect.provide(Migrations.run({ tablePrefix: "example_" }), MysqlClient.layer({ url: Redacted.make(url) }))
  const pool = yield* Effect.acquireRelease(
    Effect.sync(() => createPool(url)),
    (open) => Effect.promise(() => open.end())
  )
  yield* Effect.promise(async () => {
    await pool.query("DROP TABLE IF EXISTS example_orders")
    await pool.query("CREATE TABLE example_orders (id INT PRIMARY KEY AUTO_INCREMENT, customer VARCHAR(80) NOT NULL)")
    await placeOrders(drizzle(pool))
  })
})

Effect.runPromise(Effect.scoped(program)).catch((error) => {
  console.error(error)
  process.exitCode = 1
})
