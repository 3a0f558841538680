import { NodeContext } from "@effect/platform-node"
import { describe, expect, layer } from "@effect/vitest"
import { Effect } from "effect"
import * as Soak from "../soak/Soak.js"
import type { Sizes } from "../soak/watchedMain.js"
import { emptyDatabase } from "../support/Mysql.js"

const soak = (sizes: Sizes) => Effect.flatMap(emptyDatabase(), ({ url }) => Soak.run({ url, ...sizes }))

// Side by side, since each has a process and a database of its own.
describe("the resources of a process", { concurrent: true }, () => {
  layer(NodeContext.layer, { excludeTestServices: true, timeout: "1 minute" })((it) => {
    it.scoped(
      "O3: are the same after thousands of jobs and empty polls, cut connections, starts and stops",
      () =>
        Effect.gen(function* () {
          // Two processes at once, since what each counts is its own.
          const reports = yield* Effect.all(
            [soak({ jobs: 2_000, polls: 1_500, counts: 2 }), soak({ cuts: 48, starts: 48, counts: 2 })],
            { concurrency: "unbounded" }
          )
          const report = reports.flat()
          expect(Soak.grown(report), Soak.table(report)).toEqual([])
          expect(report.map(({ phase }) => phase)).toEqual([
            "jobs",
            "empty polls",
            "connection cuts",
            "starts and stops"
          ])
          // Each poll asked the server.
          expect(report[1]?.statements).toBeGreaterThan(1_500)
        }),
      120_000
    )

    it.scoped(
      "O3: that leak are found, each of its kind and no other",
      () =>
        Effect.gen(function* () {
          const report = yield* soak({ leaks: 50, counts: 1 })
          expect(Soak.grown(report), Soak.table(report)).toEqual([
            "heap (leaks of heap)",
            "timers (leaks of timers)",
            "handles (leaks of handles)",
            "listeners (leaks of listeners)",
            "fibers (leaks of fibers)",
            // A connection is a socket with buffers and listeners too.
            "heap (leaks of sessions)",
            "handles (leaks of sessions)",
            "listeners (leaks of sessions)",
            "sessions (leaks of sessions)",
            "prepared (leaks of prepared)"
          ])
        }),
      120_000
    )
  })
})
