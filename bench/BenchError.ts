/**
 * A benchmark could not be run, or its rows were not what they had to be.
 */
import { Data } from "effect"

export class BenchError extends Data.TaggedError("BenchError")<{ readonly message: string }> {}
