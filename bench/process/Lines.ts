/**
 * What a measured process is told at its start, and the lines that it prints: one JSON object each.
 *
 * The same for this library's processes and for those of its peers, so that one program drives and verifies them all.
 */
import { Schema } from "effect"

/** What a process does once it was told to go. */
export const Act = Schema.Literal(
  "drain",
  "lifecycle",
  "fill",
  "bulk",
  "enqueue",
  "latency",
  "serve",
  "ask",
  "count"
).annotations({ identifier: "Act" })
export type Act = typeof Act.Type

export class Setup extends Schema.Class<Setup>("Setup")({
  act: Act,
  url: Schema.String,
  /** Jobs to enqueue or to run until the process stops. */
  jobs: Schema.Number,
  /** Jobs before those: the same is done with them first, and only then the clock starts. */
  warmup: Schema.optionalWith(Schema.Number, { default: () => 0 }),
  /** Handlers at once, or fibers that enqueue. */
  concurrency: Schema.Number,
  /** Bytes of a payload. */
  payload: Schema.Number,
  lease: Schema.optionalWith(Schema.Number, { default: () => 30_000 }),
  poll: Schema.optionalWith(Schema.Number, { default: () => 1_000 }),
  /** What handlers do in `serve`: end at once, or run for ever. */
  handler: Schema.optionalWith(Schema.Literal("end", "hang"), { default: () => "end" as const }),
  /** Queues that a worker serves, each with its own type of job. */
  queues: Schema.optionalWith(Schema.Number, { default: () => 1 }),
  /** Whether workers hear of jobs by the binary log. */
  binlog: Schema.optionalWith(Schema.Boolean, { default: () => false }),
  /** Whether `serve` prints a line for each start. */
  sayStarts: Schema.optionalWith(Schema.Boolean, { default: () => true }),
  /** `default`: as the README has it. `best`: the best settings found for this system. */
  settings: Schema.optionalWith(Schema.Literal("default", "best"), { default: () => "best" as const })
}) {}

/** What the process used since it was told to go, or since it is warm. */
const usage = {
  /** CPU time in microseconds. */
  cpu: Schema.Number,
  /** Heap in use, in MiB; "collect" before it leaves what is really held. */
  heap: Schema.Number,
  /** Handlers that ran to their end. */
  handled: Schema.Number,
  /** Jobs whose handler ran more than once. */
  repeated: Schema.Number
}

/** Loaded and connected: waits to be told to go. */
export class Ready extends Schema.TaggedClass<Ready>()("Ready", {}) {}

/** A handler has started, or a job is about to be enqueued, at a time of the machine's monotonic clock in milliseconds. */
export class Mark extends Schema.TaggedClass<Mark>()("Mark", { n: Schema.Number, at: Schema.Number }) {}

export class Usage extends Schema.TaggedClass<Usage>()("Usage", usage) {}

/** The act is done, and all of it is durable. */
export class Done extends Schema.TaggedClass<Done>()("Done", {
  ...usage,
  /** Milliseconds since it was told to go, or since it is warm. */
  elapsed: Schema.Number,
  /** Single measurements in milliseconds, where the act makes some. */
  samples: Schema.Array(Schema.Number)
}) {}

export const Line = Schema.parseJson(Schema.Union(Ready, Mark, Usage, Done))
export type Line = typeof Line.Type

/** What a process is told on its standard input, a word on a line. */
export type Word = "go" | "usage" | "collect" | "stop"
