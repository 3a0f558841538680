import { expect, it } from "@effect/vitest"
import { Duration, Effect } from "effect"
import * as Summary from "../torture/Summary.js"
import * as Torture from "../torture/Torture.js"

/** On a server of its own, since its faults restart and kill it. */
const torture = (seed: number) =>
  Effect.gen(function* () {
    const options: Torture.Options = { seed, duration: Duration.seconds(10), leastJobs: 60, workers: 3 }
    // A failure shows how to repeat it.
    yield* Effect.sync(() => process.stdout.write(`${Torture.command(options)}\n`))
    const report = yield* Torture.run(options)
    expect(report.isGood, `${Summary.table(report)}\n${Torture.command(options)}`).toBe(true)
    // A torture in which nothing happens proves nothing.
    expect(report.jobs).toBeGreaterThan(20)
    expect(report.claims).toBeGreaterThan(20)
    expect(Object.keys(report.happened).length).toBeGreaterThan(3)
  })

it.live("a short torture with a fixed seed loses nothing and does nothing twice", () => torture(20_261_129), 240_000)

it.live(
  "a short torture with a new seed loses nothing and does nothing twice",
  () => Effect.suspend(() => torture(Math.floor(Math.random() * 1_000_000_000))),
  240_000
)
