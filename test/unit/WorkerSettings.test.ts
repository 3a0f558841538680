import { describe, expect, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { Job } from "../../src/index.js"
import { check } from "../../src/worker/Settings.js"

const Work = Job.make("work", { payload: { n: Schema.Number }, queue: "work" })

describe("the options of a queue", () => {
  for (const concurrency of [1, 10, 1_000, 1_001, 10_000]) {
    it.effect(`are accepted with ${concurrency} handlers at once and nothing else chosen`, () =>
      Effect.gen(function* () {
        const { queues } = yield* check({ jobs: [Work], queues: { work: { concurrency } } })
        const ahead = queues.get("work")?.ahead
        expect(queues.get("work")?.concurrency).toBe(concurrency)
        expect(ahead).toBeGreaterThanOrEqual(Math.min(64, concurrency))
        expect(ahead).toBeLessThanOrEqual(1_000)
      })
    )
  }
})
