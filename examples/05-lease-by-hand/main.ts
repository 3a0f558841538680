/**
 * `npx tsx examples/05-lease-by-hand/main.ts`: a program that claims a job, works on it, and settles it itself.
 */
import { NodeRuntime } from "@effect/platform-node"
import { Console, Effect, Either, Layer, Option, Schema } from "effect"
import { Job, MysqlQueue, Queue } from "leasehold"
import { Database } from "../Database.js"

const Resize = Job.make("image.resize", {
  payload: { image: Schema.String },
  success: Schema.Struct({ bytes: Schema.Number }),
  queue: "example-05"
})

const program = Effect.gen(function* () {
  const { id } = yield* Queue.enqueue(Resize, { image: "cat.png" })

  // A lease is a scoped resource: a fiber of the scope renews it for as long as the work takes.
  yield* Effect.scoped(
    Effect.gen(function* () {
      const lease = yield* Queue.claim(Resize, { lease: "30 seconds" })
      yield* Console.log(`claimed ${lease.payload.image}: attempt ${lease.attempt}, token ${lease.token}`)

      // Nobody else gets it meanwhile.
      const other = yield* Queue.claimOption(Resize)
      yield* Console.log(`another claim finds ${Option.isNone(other) ? "nothing" : "a job"}`)

      // Work that must not outlive the lease is raced against its loss.
      const bytes = yield* Effect.raceFirst(Effect.succeed(1_234), lease.lost)
      yield* lease.complete({ bytes })

      // Exactly one settlement counts.
      const again = yield* Effect.either(lease.complete({ bytes: 0 }))
      yield* Console.log(`a second settlement: ${Either.isLeft(again) ? again.left._tag : "accepted"}`)
    })
  )
  yield* Console.log(`the result: ${(yield* Queue.result(Resize, id)).bytes} bytes`)

  // A scope that closes without a settlement can give the job back at once; the attempt costs nothing then.
  const { id: given } = yield* Queue.enqueue(Resize, { image: "dog.png" })
  yield* Effect.scoped(Queue.claim(Resize, { onClose: "release" }))
  const record = yield* Queue.get(given)
  yield* Console.log(`given back: ${record.state}, ${Option.getOrNull(record.attemptsLeft)} attempts left`)
  yield* Queue.cancel(given)
})

const Live = MysqlQueue.layer().pipe(Layer.provideMerge(Database))

NodeRuntime.runMain(Effect.provide(program, Live))
