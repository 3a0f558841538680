/**
 * The jobs of a memory queue at one moment, as a plain value: assertions of a test runner look at it without running an effect.
 */
import { Effect, type Option } from "effect"
import type { JobRecord } from "../JobRecord.js"
import { MemoryTable } from "../memory/MemoryJobStore.js"
import * as Table from "../memory/Table.js"

/** What sets a snapshot apart from all other values. */
export const TypeId: unique symbol = Symbol.for("leasehold/testing/Snapshot")
export type TypeId = typeof TypeId

/** One job of a snapshot, payload and output still encoded. */
export interface SnapshotJob {
  readonly record: JobRecord
  readonly idempotency: Option.Option<{ readonly scope: string; readonly key: string }>
}

/** All jobs of a memory queue, in the order of their enqueue, as they stood when it was taken. Nothing changes it. */
export interface Snapshot {
  /** @internal */
  readonly [TypeId]: TypeId
  readonly jobs: ReadonlyArray<SnapshotJob>
  /** Whether the message of an assertion that fails shows payloads and results. */
  readonly showPayloads: boolean
}

/** How a snapshot is told by the assertions on it. */
export interface SnapshotOptions {
  /** Whether the message of an assertion that fails shows payloads and results. Default false. */
  readonly showPayloads?: boolean
}

export const take = ({ showPayloads = false }: SnapshotOptions = {}): Effect.Effect<Snapshot, never, MemoryTable> =>
  Effect.flatMap(MemoryTable, ({ read }) =>
    Effect.map(read, (table) => ({ [TypeId]: TypeId, jobs: Table.above(table, ""), showPayloads }))
  )

export const isSnapshot = (value: unknown): value is Snapshot =>
  typeof value === "object" && value !== null && TypeId in value
