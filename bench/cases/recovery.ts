/**
 * From `kill -9` of a worker to the start of its jobs elsewhere.
 */
import { Effect, Option } from "effect"
import type { Case } from "../Case.js"
import * as Child from "../Child.js"
import * as Database from "../Database.js"
import { percentile } from "../Figure.js"
import { monotonic } from "../process/Monotonic.js"
import { insert } from "../Seed.js"

const lease = 2_000
const poll = 100
const held = 8

const round = (payload: number) =>
  Effect.scoped(
    Effect.gen(function* () {
      const { url, ...session } = yield* Database.migrated
      yield* insert(session, { count: held, payload })
      const setup = { jobs: held, concurrency: held, payload, url, lease, poll, act: "serve" } as const
      const victim = yield* Child.start({ ...setup, handler: "hang" })
      yield* victim.go
      yield* Effect.replicateEffect(victim.mark, held, { discard: true })
      const survivor = yield* Child.start(setup)
      yield* survivor.go
      // At any moment between two renewals.
      yield* Effect.sleep(500 + (lease / 3) * Math.random())
      const killed = yield* Effect.sync(monotonic)
      yield* victim.kill
      const starts = yield* Effect.replicateEffect(survivor.mark, held)
      yield* survivor.stop
      yield* survivor.done
      const [row] = yield* session.query(
        "SELECT SUM(state = 2 AND token = 2 AND attempt = 2 AND attempts->>'$[0].o' = 'expired') AS recovered"
          + " FROM leasehold_jobs"
      )
      return { samples: starts.map(({ at }) => at - killed), verified: Number(row?.["recovered"]) === held }
    })
  )

export const recovery: Case = {
  name: "recovery",
  about: "from kill -9 of a worker to the start of its jobs elsewhere, with leases of 2 s and polls of 100 ms",
  variants: ({ jobs: asked, payload }) => {
    const rounds = Option.getOrElse(asked, () => 10)
    return [
      {
        name: "recovery",
        peer: "leasehold",
        jobs: rounds * held,
        concurrency: held,
        settings: { lease_ms: lease, poll_ms: poll, rounds },
        sample: Effect.gen(function* () {
          const done = yield* Effect.replicateEffect(round(payload), rounds)
          const samples = done.flatMap((one) => one.samples)
          return {
            figures: { p50_ms: percentile(samples, 0.5), p99_ms: percentile(samples, 0.99) },
            verified: done.every(({ verified }) => verified)
          }
        })
      }
    ]
  }
}
