/**
 * What the suites over a store need beside the store itself, so that the same tests run in memory and on a database.
 */
import { Context, type Duration, type Effect, Layer, TestClock, TestContext } from "effect"
import type { JobStore } from "../../src/JobStore.js"
import * as MemoryJobStore from "../../src/memory/MemoryJobStore.js"

/**
 * On a database: an UPDATE that moves every time of the rows of `queue` back by `duration` (`due_at`, `finished_at`,
 * `enqueued_at`, `first_due_at`; the ledger's times are not looked at across an `elapse`), and whatever the store needs
 * to notice it, since it may remember up to which due time it has claimed. No test has a row locked when it calls it.
 */
export class StoreHarness extends Context.Tag("leasehold/test/StoreHarness")<
  StoreHarness,
  {
    /** Lets time pass for the jobs of a queue, as its store sees it. */
    readonly elapse: (queue: string, duration: Duration.DurationInput) => Effect.Effect<void>
  }
>() {}

/** What a suite runs on: a store and its harness, shared by all tests of the suite. */
export type StoreUnderTest = JobStore | StoreHarness

/** The memory store, whose time is that of a `TestClock`. */
export const memory: Layer.Layer<StoreUnderTest> = Layer.merge(
  MemoryJobStore.layer,
  Layer.succeed(StoreHarness, { elapse: (_queue, duration) => TestClock.adjust(duration) })
).pipe(Layer.provideMerge(TestContext.TestContext))
