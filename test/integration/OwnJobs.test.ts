/**
 * A worker is told of what its own process commits once, so what it then looks at must hold that job: else it would sleep on until
 * its next poll.
 */
import { expect, layer } from "@effect/vitest"
import { Deferred, Duration, Effect, Option } from "effect"
import { JobStore, type NewJob } from "../../src/JobStore.js"
import { store as storeOnMysql } from "../support/Mysql.js"

const rounds = Array.from({ length: 20 }, (_, round) => round)

/** Short ways to use a queue that was looked at and found empty. */
const idle = (queue: string) =>
  Effect.gen(function* () {
    const store = yield* JobStore
    const job = (priority: number): NewJob => ({
      queue,
      type: "count",
      priority,
      payload: null,
      payloadVersion: 1,
      maxAttempts: Option.none(),
      due: Option.none(),
      idempotency: Option.none(),
      traceContext: Option.none()
    })
    const claim = (limit: number) =>
      store.claim({
        queue,
        types: [{ type: "count", version: 1 }],
        worker: "worker-1",
        lease: Duration.minutes(10),
        limit
      })
    /** Claims as a worker does after a signal: until the store says that there is no more. */
    const claimAll: Effect.Effect<ReadonlyArray<string>, unknown> = Effect.flatMap(claim(50), ({ jobs, more }) => {
      const ids = jobs.map(({ lease }) => lease.jobId)
      return more ? Effect.map(claimAll, (others) => [...ids, ...others]) : Effect.succeed(ids)
    })
    expect(yield* claimAll).toEqual([])
    return {
      store,
      claim,
      claimAll,
      add: (...priorities: ReadonlyArray<number>) =>
        Effect.map(store.enqueue(priorities.map(job)), (enqueued) => enqueued.map(({ id }) => String(id)))
    }
  })

layer(storeOnMysql, { excludeTestServices: true, timeout: "1 minute" })(
  "a claim after a commit of this process",
  (it) => {
    it.effect("finds a job whose transaction began before others that were claimed meanwhile", () =>
      Effect.gen(function* () {
        const { add, claimAll, store } = yield* idle("own.late")
        for (const round of rounds) {
          const written = yield* Deferred.make<ReadonlyArray<string>>()
          const claimed = yield* Deferred.make<void>()
          const late = yield* Effect.fork(
            store.transaction(
              Effect.zipRight(
                Effect.flatMap(add(5), (ids) => Deferred.succeed(written, ids)),
                Deferred.await(claimed)
              )
            )
          )
          const ids = yield* Deferred.await(written)
          // A look from the start comes after the first ones, so that none is due so soon after the last ones.
          for (const _ of ["first", "second", "last"]) {
            const others = yield* add(5, 5)
            expect(yield* claimAll, `round ${round}`).toEqual(others)
          }
          yield* Deferred.succeed(claimed, undefined)
          yield* late.await
          expect(yield* claimAll, `round ${round}`).toEqual(ids)
        }
      })
    )

    it.effect("finds a job of another priority than those that are known to be due", () =>
      Effect.gen(function* () {
        const { add, claim, claimAll } = yield* idle("own.priority")
        for (const round of rounds) {
          yield* add(5, 5, 5)
          expect((yield* claim(1)).jobs).toHaveLength(1)
          // Known by a look from now on, as jobs of other processes would be.
          expect((yield* claim(1)).jobs).toHaveLength(1)
          const ids = yield* add(3)
          expect(yield* claimAll, `round ${round}`).toEqual(expect.arrayContaining(ids))
        }
      })
    )
  }
)
