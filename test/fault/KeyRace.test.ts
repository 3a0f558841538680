import { expect, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import type { Setup } from "../support/enqueuerMain.js"
import { Database } from "../support/Mysql.js"
import { queue } from "../support/QueueOnMysql.js"
import * as WorkerProcess from "../support/WorkerProcess.js"

const answers = Layer.effectDiscard(
  Effect.flatMap(Database, ({ query }) =>
    query("CREATE TABLE answers (round INT, process INT, id VARCHAR(20), created INT, error VARCHAR(64), KEY (round))")
  )
)

layer(answers.pipe(Layer.provideMerge(queue())), { excludeTestServices: true, timeout: "1 minute" })(
  "an idempotency key",
  (it) => {
    it.scoped(
      "D1: that fifty callers of five processes give at once, in a hundred rounds, names one job each, created once",
      () =>
        Effect.gen(function* () {
          const { query, url } = yield* Database
          const common: Omit<Setup, "process"> = { url, rounds: 100, callers: 10, apart: 40 }
          const enqueuers = yield* Effect.forEach([0, 1, 2, 3, 4], (process) =>
            WorkerProcess.run("test/support/enqueuerMain.ts", { ...common, process } satisfies Setup)
          )
          // They are all there before the first round begins.
          yield* Effect.forEach(enqueuers, ({ says }) => says("ready"))
          const from = Date.now() + 500
          yield* Effect.forEach(enqueuers, ({ tell }) => tell(`${from}`))
          const ended = yield* Effect.forEach(enqueuers, (enqueuer) => enqueuer.ended)
          expect(ended).toEqual([0, 0, 0, 0, 0])
          const rounds = yield* query(
            "SELECT COUNT(*) AS answers, COUNT(DISTINCT id) AS ids, SUM(created) AS created, MAX(error) AS error"
              + " FROM answers GROUP BY round ORDER BY round"
          )
          expect(rounds).toEqual(Array.from({ length: 100 }, () => ({ answers: 50, ids: 1, created: "1", error: "" })))
          expect(
            yield* query("SELECT COUNT(*) AS jobs, COUNT(DISTINCT idempotency_key) AS named FROM leasehold_jobs")
          ).toEqual([{ jobs: 100, named: 100 }])
          // Rounds that one process always wins were no race.
          const winners = yield* query("SELECT process FROM answers WHERE created = 1 GROUP BY process")
          expect(winners.length).toBeGreaterThan(1)
        })
    )
  }
)
