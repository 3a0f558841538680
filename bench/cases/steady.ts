/**
 * One process enqueues single jobs while another runs them.
 */
import { Effect, Option } from "effect"
import type { Case } from "../Case.js"
import * as Child from "../Child.js"
import * as Database from "../Database.js"
import { handled, race, repeated } from "../Meter.js"
import * as Verify from "../Verify.js"

export const steady: Case = {
  name: "steady",
  about: "16 fibers of one process enqueue single jobs while another process runs them",
  variants: (settings) => {
    const jobs = Option.getOrElse(settings.jobs, () => 20_000)
    const concurrency = Option.getOrElse(settings.concurrency, () => 32)
    return [
      {
        name: "steady",
        peer: "leasehold",
        jobs,
        concurrency,
        sample: Effect.gen(function* () {
          const { url, ...session } = yield* Database.migrated
          const setup = { jobs, payload: settings.payload, url }
          const worker = yield* Child.start({ ...setup, concurrency, act: "drain" })
          const client = yield* Child.start({ ...setup, concurrency: 16, act: "enqueue" })
          const { done, figures } = yield* race([worker, client], handled)
          const rows = yield* Verify.rows(session, { succeeded: jobs })
          return { figures, verified: rows && repeated(done) === 0 && handled(done) === jobs }
        })
      }
    ]
  }
}
