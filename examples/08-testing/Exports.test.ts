/**
 * `npx vitest run --root examples/08-testing`: tests of a program that uses Leasehold. No database, and no waiting: the queue is
 * in memory, and `TestClock` is moved over delays and retries.
 */
import { expect, it } from "@effect/vitest"
import { Context, Effect, Layer, Ref } from "effect"
import { MemoryQueue, Rehearsal, TestQueue } from "leasehold/testing"
import "leasehold/testing/vitest"
import { ExportOrder, ExportOrderLive, placeOrder, Storage, StorageDown } from "./Exports.js"

/** What a storage holds: each file as often as it was written. */
class Written extends Context.Tag("Written")<Written, Ref.Ref<ReadonlyArray<string>>>() {}
const written = Effect.flatMap(Written, Ref.get)

/** A storage in memory, whose first `outages` writes fail. */
const fakeStorage = (outages = 0) =>
  Layer.effect(
    Storage,
    Effect.gen(function* () {
      const files = yield* Written
      const left = yield* Ref.make(outages)
      return {
        write: (name) =>
          Effect.flatMap(
            Ref.getAndUpdate(left, (count) => count - 1),
            (count) => (count > 0 ? new StorageDown() : Ref.update(files, (all) => [...all, name]))
          )
      }
    })
  ).pipe(Layer.provideMerge(Layer.effect(Written, Ref.make<ReadonlyArray<string>>([]))))

const live = (outages?: number) =>
  ExportOrderLive.pipe(Layer.provideMerge(fakeStorage(outages)), Layer.provideMerge(MemoryQueue.layer))

it.effect("placing an order enqueues its export, ten seconds later", () =>
  Effect.gen(function* () {
    yield* placeOrder(7)
    expect(yield* TestQueue.snapshot()).toHaveEnqueued(ExportOrder, { orderId: 7 }, { delay: "10 seconds" })
  }).pipe(Effect.provide(MemoryQueue.layer))
)

it.effect("the export writes one file", () =>
  Effect.gen(function* () {
    const { id } = yield* placeOrder(7)
    // Nothing is due yet, so nothing runs.
    expect(yield* TestQueue.drain([ExportOrder])).toEqual([])

    yield* TestQueue.advance(id)
    expect(yield* TestQueue.drain([ExportOrder])).toMatchObject([
      { outcome: "completed", output: { file: "order-7.pdf" } }
    ])
    expect(yield* written).toEqual(["order-7.pdf"])
  }).pipe(Effect.provide(live()))
)

it.effect("an export is tried again while the storage is down", () =>
  Effect.gen(function* () {
    yield* placeOrder(7)
    const runs = yield* TestQueue.drain([ExportOrder], { within: "1 hour" })
    expect(runs.map(({ attempt, outcome }) => [attempt, outcome])).toEqual([
      [1, "retry"],
      [2, "retry"],
      [3, "completed"]
    ])
  }).pipe(Effect.provide(live(2)))
)

it.effect("and given up after three attempts", () =>
  Effect.gen(function* () {
    yield* placeOrder(7)
    const runs = yield* TestQueue.drain([ExportOrder], { within: "1 hour" })
    expect(runs.at(-1)).toMatchObject({ attempt: 3, outcome: "dead" })
    expect(yield* TestQueue.snapshot()).toHaveDied(ExportOrder, "StorageDown")
  }).pipe(Effect.provide(live(3)))
)

// The process may die at any moment, and the job runs again then. A rehearsal tries each of these moments.
const rehearsal = { world: fakeStorage(), handler: ExportOrderLive }

it.effect("a crash at any point leaves the same files as none", () =>
  Effect.gen(function* () {
    // A file that is written twice is still one file, so this is what must be the same.
    const observe = Effect.map(written, (files) => new Set(files))
    const report = yield* Rehearsal.crash(ExportOrder, { orderId: 7 }, { ...rehearsal, observe })
    expect(report).toBeIdempotent()
  })
)

it.effect("but a job that is delivered twice calls the storage twice", () =>
  Effect.gen(function* () {
    const report = yield* Rehearsal.duplicate(ExportOrder, { orderId: 7 }, { ...rehearsal, observe: written })
    expect(report.failures).toMatchObject([{ observed: ["order-7.pdf", "order-7.pdf"], state: "succeeded" }])
  })
)
