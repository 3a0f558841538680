/**
 * The queue without a database: the same contract in memory, on whatever `Clock` the program runs with, `TestClock` too.
 *
 * @module
 */
import { Layer } from "effect"
import type { JobStore } from "../JobStore.js"
import * as MemoryJobStore from "../memory/MemoryJobStore.js"
import * as Queue from "../Queue.js"
import * as Wakeup from "../Wakeup.js"

/** Provides what `MysqlQueue.layer` provides. Nothing outlives the layer, and there is no transaction to join. */
export const layer: Layer.Layer<JobStore | Queue.Queue | Wakeup.Wakeup> = Queue.layer.pipe(
  Layer.provideMerge(Layer.merge(MemoryJobStore.layer, Wakeup.layer))
)
