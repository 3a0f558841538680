/**
 * The job that all benchmarks run: a number, and a filler that brings the payload to the wanted size. Its handler does nothing.
 */
import { Schema } from "effect"
import { Job } from "../src/index.js"

export const queue = "bench"
export const type = "bench.work"

// One type for all of them, so that a worker can have a list of them whose length is not known.
const make = (name: string, queueName: string) =>
  Job.make(name, { payload: { n: Schema.Number, filler: Schema.String }, queue: queueName })

export const Work = make(type, queue)

/** The same work under other names, for workers of several queues: `bench`, `bench.2`, `bench.3` and so on. */
export const onQueue = (index: number) => (index === 1 ? Work : make(`${type}.${index}`, `${queue}.${index}`))

/** The payload of job `n`, which takes `bytes` once it is encoded. */
export const payload = (n: number, bytes: number) => ({
  n,
  filler: "x".repeat(Math.max(0, bytes - JSON.stringify({ n, filler: "" }).length))
})
