import { spawn } from "node:child_process"
import { join } from "node:path"
import { expect, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import type { Setup } from "../support/enqueuerMain.js"
import { Database } from "../support/Mysql.js"
import { queue } from "../support/QueueOnMysql.js"

const answers = Layer.effectDiscard(
  Effect.flatMap(Database, ({ query }) =>
    query("CREATE TABLE answers (round INT, process INT, id VARCHAR(20), created INT, error VARCHAR(64), KEY (round))")
  )
)

/** Runs an enqueuer to its end; its exit code. */
const enqueuer = (setup: Setup) =>
  Effect.async<number | null>((resume) => {
    const entry = join(import.meta.dirname ?? ".", "../support/enqueuerMain.ts")
    const child = spawn(process.execPath, ["--import", "tsx", entry, JSON.stringify(setup)], {
      stdio: ["ignore", "ignore", "inherit"]
    })
    child.on("exit", (code) => resume(Effect.succeed(code)))
    return Effect.sync(() => child.kill("SIGKILL"))
  })

layer(answers.pipe(Layer.provideMerge(queue())), { excludeTestServices: true, timeout: "1 minute" })(
  "an idempotency key",
  (it) => {
    it.effect(
      "D1: that fifty callers of five processes give at once, in a hundred rounds, names one job each, created once",
      () =>
        Effect.gen(function* () {
          const { query, url } = yield* Database
          const common = { url, rounds: 100, callers: 10, from: Date.now() + 6_000, apart: 40 }
          const ended = yield* Effect.all(
            Array.from({ length: 5 }, (_, index) => enqueuer({ ...common, process: index })),
            { concurrency: "unbounded" }
          )
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
