/**
 * Runs a case: in each run a baseline and then a sample of every variant in turn, and the medians of all runs.
 */
import { Effect } from "effect"
import * as Baseline from "./Baseline.js"
import type { BenchError } from "./BenchError.js"
import type { Case, Sample, Settings, Variant } from "./Case.js"
import { type Figures, figures, medians, names } from "./Figure.js"
import type { Server } from "./Server.js"

/** A row of the result: medians over the runs, and the runs themselves. */
export interface Result {
  readonly case: string
  readonly variant: Variant
  readonly figures: Figures
  readonly verified: boolean
  readonly runs: ReadonlyArray<Figures>
}

const progress = (text: string) => Effect.sync(() => void process.stderr.write(`${text}\n`))

/** The name of this library among the systems that are measured. */
export const own = "leasehold"

/** How long each baseline is measured. */
const baselineMillis = 2_000

export const run = (
  bench: Case,
  settings: Settings,
  runs: number
): Effect.Effect<ReadonlyArray<Result>, BenchError, Server> =>
  Effect.gen(function* () {
    const variants = bench.variants(settings)
    const samples = new Map<Variant, Array<Sample>>(variants.map((variant) => [variant, []]))
    for (let turn = 1; turn <= runs; turn++) {
      for (const variant of variants) {
        const baseline = yield* Baseline.measure(baselineMillis)
        const sample = withBaseline(yield* taken(variant), baseline)
        samples.get(variant)?.push(sample)
        yield* progress(`${bench.name} ${turn}/${runs} · ${variant.peer} · ${variant.name}: ${describe(sample)}`)
      }
    }
    const results = variants.map((variant): Result => {
      const all = samples.get(variant) ?? []
      return {
        case: bench.name,
        variant,
        figures: medians(all.map((sample) => sample.figures)),
        verified: all.every(({ verified }) => verified),
        runs: all.map((sample) => sample.figures)
      }
    })
    return results.map((result) => compared(result, results[0]))
  })

/** A peer that fails costs the others nothing: its row says that nothing was verified. */
const taken = (variant: Variant): Effect.Effect<Sample, BenchError, Server> => {
  const sample = Effect.scoped(variant.sample)
  return variant.peer === own
    ? sample
    : Effect.catchAll(sample, ({ message }) =>
        Effect.as(progress(`Peer ${variant.peer} failed: ${message}`), { figures: {}, verified: false })
      )
}

const withBaseline = (sample: Sample, baseline: number): Sample => {
  const rate = sample.figures.jobs_per_second
  return {
    ...sample,
    figures: {
      ...sample.figures,
      baseline_per_second: baseline,
      ...(rate === undefined ? {} : { ratio: rate / baseline })
    }
  }
}

/** Rows after the first also say how they compare with it, run by run. */
const compared = (result: Result, first: Result | undefined): Result => {
  if (first === undefined || result === first) return result
  const shares = result.runs.flatMap((run, turn): ReadonlyArray<Figures> => {
    const [rate, reference] = [run.jobs_per_second, first.runs[turn]?.jobs_per_second]
    return rate === undefined || reference === undefined ? [] : [{ to_first: rate / reference }]
  })
  return { ...result, figures: { ...result.figures, ...medians(shares) } }
}

export const describe = ({ figures: values, verified }: Sample): string =>
  [
    ...names.flatMap((name) => {
      const value = values[name]
      return value === undefined ? [] : [`${figures[name].title} ${figures[name].show(value)}`]
    }),
    ...(verified ? [] : ["NOT VERIFIED"])
  ].join(", ")
