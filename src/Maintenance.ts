/**
 * What a queue needs beside workers: jobs of vanished holders are ended, and ended jobs are deleted after a while.
 *
 * @module
 */
import { Duration, Effect, Layer } from "effect"
import { JobStore } from "./JobStore.js"
import * as Cleaner from "./maintenance/Cleaner.js"
import * as Reaper from "./maintenance/Reaper.js"
import type { InvalidOption } from "./QueueError.js"
import * as Restarting from "./Restarting.js"
import * as Setting from "./Setting.js"

/** How often to reap and to clean, and how long ended jobs are kept. */
export interface Options {
  /** About how often the reaper walks over all jobs; `false`: never. 1 second to 1 day, default 30 seconds. */
  readonly reap?: Duration.DurationInput | false
  /** About how often the cleaner walks over all jobs; `false`: never. 1 second to 1 day, default 5 minutes. */
  readonly clean?: Duration.DurationInput | false
  /**
   * How long ended jobs are kept; `false` keeps them for ever. Up to 365 days; 0 deletes them with the next walk.
   * Defaults: succeeded and canceled 7 days, dead 30 days.
   */
  readonly retention?: {
    readonly succeeded?: Duration.DurationInput | false
    readonly canceled?: Duration.DurationInput | false
    readonly dead?: Duration.DurationInput | false
  }
}

/**
 * Checks the options; answers the loops of maintenance, which run until they are interrupted, outside of any transaction. A stop
 * waits for one batch at most. Any number of them may run at once, in any number of processes.
 */
export const make = (options: Options = {}): Effect.Effect<Effect.Effect<never>, InvalidOption, JobStore> =>
  Effect.gen(function* () {
    const store = yield* JobStore
    const interval = (
      option: string,
      value: Duration.DurationInput | false | undefined,
      fallback: Duration.DurationInput
    ) => (value === false ? Effect.succeed(undefined) : Setting.duration(option, value, fallback, "1 second", "1 day"))
    const reap = yield* interval("maintenance.reap", options.reap, "30 seconds")
    const clean = yield* interval("maintenance.clean", options.clean, "5 minutes")
    const retention = yield* retentionOf(options.retention ?? {})
    const loops: Array<Effect.Effect<never>> = []
    if (reap !== undefined) loops.push(Reaper.run(store, reap))
    if (clean !== undefined && Object.keys(retention).length > 0) loops.push(Cleaner.run(store, clean, retention))
    return Effect.forEach([...loops, Effect.never], (loop) => loop, { concurrency: "unbounded", discard: true }).pipe(
      Effect.zipRight(Effect.never),
      store.detached
    )
  })

const retentionOf = (given: NonNullable<Options["retention"]>): Effect.Effect<Cleaner.Retention, InvalidOption> =>
  Effect.gen(function* () {
    const retention: { -readonly [State in keyof Cleaner.Retention]: Cleaner.Retention[State] } = {}
    for (const [state, fallback] of [
      ["succeeded", 7],
      ["canceled", 7],
      ["dead", 30]
    ] as const) {
      const value = given[state]
      if (value === false) continue
      retention[state] = yield* Setting.duration(
        `maintenance.retention.${state}`,
        value,
        Duration.days(fallback),
        "0 millis",
        "365 days"
      )
    }
    return retention
  })

/** Runs maintenance for as long as the layer lives. `Worker` does so by itself, unless it is given `maintenance: false`. */
export const layer = (options: Options = {}): Layer.Layer<never, InvalidOption, JobStore> =>
  Layer.scopedDiscard(
    Effect.flatMap(make(options), (loops) => Effect.forkScoped(Restarting.forever("maintenance", loops)))
  )
