/**
 * The queue without a database: the same contract in memory, on whatever `Clock` the program runs with, `TestClock` too.
 * What costs time in tests with it are rehearsals: see `Rehearsal` for the timeout that they need.
 *
 * @module
 */
import { Effect, Layer, Ref } from "effect"
import type { JobStore } from "../JobStore.js"
import * as MemoryJobStore from "../memory/MemoryJobStore.js"
import * as Transactions from "../memory/Transactions.js"
import * as Queue from "../Queue.js"
import * as Wakeup from "../Wakeup.js"

/** What is behind the queue in memory; `TestQueue` looks at it. */
export type MemoryTable = MemoryJobStore.MemoryTable

/**
 * Provides what `MysqlQueue.layer` provides. Nothing outlives the layer; each build has jobs of its own.
 *
 * `Queue.withTransaction` and `lease.completeWith` undo the enqueues, cancels and retries in them where they do not commit,
 * and what {@link update} wrote. They are not isolated: what they write is seen at once.
 */
export const layer: Layer.Layer<JobStore | Queue.Queue | Wakeup.Wakeup | MemoryTable> = Queue.layer.pipe(
  Layer.provideMerge(Layer.merge(MemoryJobStore.layer, Wakeup.layer))
)

/**
 * For fakes of what an application keeps in the same database: as `Ref.update`, but the `Ref` is as it was before if the
 * transaction around the caller, of `Queue.withTransaction` or `lease.completeWith`, does not commit. Outside of one it stands.
 *
 * ```ts
 * const insert = (row: Row) => MemoryQueue.update(rows, Array.append(row))
 * ```
 */
export const update = <A>(ref: Ref.Ref<A>, f: (before: A) => A): Effect.Effect<void> =>
  Effect.flatMap(Transactions.undoing, (onRollback) =>
    // One step, so that no crash can come between the write and what undoes it.
    Ref.update(ref, (before) => {
      onRollback(Ref.set(ref, before))
      return f(before)
    })
  )
