/**
 * One benchmark: what it measures, and how one sample of each of its variants is taken.
 */
import { type Effect, Option, type Scope } from "effect"
import type { BenchError } from "./BenchError.js"
import type { Figures } from "./Figure.js"
import type { Peer } from "./Peer.js"
import type { Server } from "./Server.js"

/** What was asked for on the command line. */
export interface Settings {
  readonly jobs: Option.Option<number>
  readonly concurrency: Option.Option<number>
  /** Jobs before those that count; default half as many as these. */
  readonly warmup: Option.Option<number>
  /** Bytes of an encoded payload. */
  readonly payload: number
  /** The server was started with a binary log. */
  readonly binlog: boolean
  /** What is measured in turn with this library, in the cases that the others can do, too. */
  readonly peers: ReadonlyArray<Peer>
}

/** A process that has just started compiles its code while it runs: not what a worker does all day. */
export const warmupOf = ({ warmup }: Settings, jobs: number): number =>
  Option.getOrElse(warmup, () => Math.floor(jobs / 2))

export interface Sample {
  readonly figures: Figures
  /** Whether the rows were what they had to be afterwards. */
  readonly verified: boolean
}

/** A row of the table. All variants of a case are sampled in turn in each run, so that the machine's drift meets all alike. */
export interface Variant {
  readonly name: string
  readonly peer: string
  readonly jobs: number
  readonly concurrency: number
  /** What else was chosen, for the record. */
  readonly settings?: { readonly [name: string]: string | number }
  readonly sample: Effect.Effect<Sample, BenchError, Server | Scope.Scope>
}

export interface Case {
  readonly name: string
  readonly about: string
  readonly variants: (settings: Settings) => ReadonlyArray<Variant>
}
