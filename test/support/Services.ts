/**
 * Queue and worker on the memory store, with a store whose verbs a test can spoil.
 */
import { Effect, Layer } from "effect"
import { JobStore } from "../../src/JobStore.js"
import { layer as MemoryJobStore } from "../../src/memory/MemoryJobStore.js"
import * as Queue from "../../src/Queue.js"
import * as Wakeup from "../../src/Wakeup.js"

type Store = JobStore["Type"]

/** Queue, store and wake-ups, each test its own: `spoil` replaces verbs of the memory store. */
export const services = (
  spoil: (store: Store) => Partial<Store> = () => ({})
): Layer.Layer<Queue.Queue | JobStore | Wakeup.Wakeup> => {
  const store = Layer.effect(
    JobStore,
    Effect.map(JobStore, (memory) => ({ ...memory, ...spoil(memory) }))
  ).pipe(Layer.provide(MemoryJobStore))
  return Queue.layer.pipe(Layer.provideMerge(Layer.merge(store, Wakeup.layer)))
}
