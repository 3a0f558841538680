import { expect, it } from "@effect/vitest"
import { Duration, Effect } from "effect"
import * as Summary from "../torture/Summary.js"
import * as Torture from "../torture/Torture.js"

/** A new one each time; LEASEHOLD_SEED repeats one. */
const seed = Number(process.env["LEASEHOLD_SEED"] ?? Math.floor(Math.random() * 1_000_000_000))

it.live(
  "a short torture loses nothing and does nothing twice",
  () =>
    // On a server of its own, since its faults restart and kill it.
    Effect.gen(function* () {
      const options: Torture.Options = {
        seed,
        duration: Duration.seconds(10),
        leastJobs: 60,
        leastFaults: 4,
        workers: 3
      }
      // A failure shows how to repeat it.
      yield* Effect.sync(() => process.stdout.write(`${Torture.command(options)}\n`))
      const report = yield* Torture.run(options)
      expect(report.isGood, `${Summary.table(report)}\n${Torture.command(options)}`).toBe(true)
      // A torture in which nothing happens proves nothing.
      expect(report.jobs).toBeGreaterThan(20)
      expect(report.claims).toBeGreaterThan(20)
      expect(Object.keys(report.happened).length).toBeGreaterThanOrEqual(4)
    }),
  240_000
)
