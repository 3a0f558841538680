/**
 * The job that all benchmarks run: a number, and a filler that brings the payload to the wanted size. Its handler does nothing.
 */
import { Schema } from "effect"
import { Job } from "../src/index.js"

export const queue = "bench"
export const type = "bench.work"

export const Work = Job.make(type, { payload: { n: Schema.Number, filler: Schema.String }, queue })

/** The payload of job `n`, which takes `bytes` once it is encoded. */
export const payload = (n: number, bytes: number) => ({
  n,
  filler: "x".repeat(Math.max(0, bytes - JSON.stringify({ n, filler: "" }).length))
})
