/**
 * `npx tsx examples/06-exactly-once-effects/main.ts`: rows and the completion of their job in one transaction. A handler may run
 * twice; what it writes by `completeWith` is written once.
 */
import { NodeRuntime } from "@effect/platform-node"
import { SqlClient } from "@effect/sql"
import { Console, Effect, Either, Layer, Schema } from "effect"
import { Job, MysqlQueue, Queue } from "leasehold"
import { Database } from "../Database.js"

const Payout = Job.make("payout", {
  payload: { account: Schema.String, amount: Schema.Number },
  success: Schema.Struct({ booked: Schema.Number }),
  queue: "example-06"
})

const book = (account: string, amount: number) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`INSERT INTO example_payouts (account, amount) VALUES (${account}, ${amount})`
    return { booked: amount }
  })

const program = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`DROP TABLE IF EXISTS example_payouts`
  yield* sql`CREATE TABLE example_payouts (id INT PRIMARY KEY AUTO_INCREMENT, account VARCHAR(40), amount INT)`
  const payouts = Effect.map(sql`SELECT id FROM example_payouts`, (rows) => rows.length)
  const { id } = yield* Queue.enqueue(Payout, { account: "ada", amount: 100 })

  // A worker that is too slow: it has 300 milliseconds, and does not renew its lease.
  const stale = yield* Effect.scoped(Queue.claim(Payout, { lease: "300 millis" }))
  yield* Effect.sleep("400 millis")

  // So another one takes the job over, under a higher token, and does it.
  yield* Effect.scoped(
    Effect.gen(function* () {
      const lease = yield* Queue.claim(Payout)
      yield* Console.log(`taken over: ${lease.token > stale.token}`)
      yield* lease.completeWith(book(lease.payload.account, lease.payload.amount))
    })
  )
  yield* Console.log(`payouts: ${yield* payouts}`)

  // The first one comes back too late: nothing of it is written.
  const late = yield* Effect.either(stale.completeWith(book(stale.payload.account, stale.payload.amount)))
  yield* Console.log(`the late one: ${Either.isLeft(late) ? late.left._tag : "written"}`)
  yield* Console.log(`payouts: ${yield* payouts}, job ${(yield* Queue.get(id)).state}`)
})

const Live = MysqlQueue.layer().pipe(Layer.provideMerge(Database))

NodeRuntime.runMain(Effect.provide(program, Live))
