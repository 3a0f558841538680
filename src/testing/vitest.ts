/**
 * Matchers for vitest, and so for @effect/vitest. Importing this module adds them to `expect`: once in a file of vitest's
 * `setupFiles`, or in each test that uses them.
 *
 * ```ts
 * import "leasehold/testing/vitest"
 *
 * it.effect("placing an order enqueues its export", () =>
 *   Effect.gen(function* () {
 *     yield* placeOrder
 *     expect(yield* TestQueue.snapshot()).toHaveEnqueued(ExportOrder, { orderId: 7 }, { delay: "10 seconds" })
 *   }).pipe(Effect.provide(MemoryQueue.layer))
 * )
 * ```
 *
 * What fails says which jobs there were, how they stand, and what about each is not as expected. Payloads, results and keys are
 * not in it, since what tests print is kept by others; `TestQueue.snapshot({ showPayloads: true })` shows the first two.
 *
 * @module
 */
import { Predicate } from "effect"
import { expect } from "vitest"
import type * as Job from "../Job.js"
import * as Ended from "./matchers/Ended.js"
import * as Enqueued from "./matchers/Enqueued.js"
import * as Idempotent from "./matchers/Idempotent.js"
import type { Equals } from "./matchers/Verdict.js"
import type { Report } from "./Rehearsal.js"
import { isSnapshot, type Snapshot } from "./Snapshot.js"

export type { EnqueuedAs } from "./matchers/Enqueued.js"
export type { IdempotentOptions } from "./matchers/Idempotent.js"

/** The matchers of `expect(actual)`. On another value than they look at, they do not compile. */
export interface QueueMatchers<Actual> {
  /**
   * `expect(yield* TestQueue.snapshot())`: at least one job of this type was enqueued, with this payload and these options,
   * whatever became of it since. `undefined` as payload stands for any. Payloads are compared as by `toEqual`, after decoding,
   * so `expect.objectContaining` and the like may stand for them or for parts of them.
   */
  readonly toHaveEnqueued: Actual extends Snapshot
    ? <Type extends string, P, S, E>(job: Job.Job<Type, P, S, E>, payload?: P, options?: Enqueued.EnqueuedAs) => void
    : (onlyForASnapshotOfTestQueue: never) => void
  /**
   * `expect(yield* TestQueue.snapshot())`: at least one job of this type has succeeded, with this result where one is given; it
   * is compared as payloads are.
   */
  readonly toHaveSucceeded: Actual extends Snapshot
    ? <Type extends string, P, S, E>(job: Job.Job<Type, P, S, E>, result?: S) => void
    : (onlyForASnapshotOfTestQueue: never) => void
  /** `expect(yield* TestQueue.snapshot())`: at least one job of this type is dead, with this error code where one is given. */
  readonly toHaveDied: Actual extends Snapshot
    ? (job: Job.Any, errorCode?: string) => void
    : (onlyForASnapshotOfTestQueue: never) => void
  /** `expect(yield* Rehearsal.crash(…))`, or another rehearsal: at every point a fault left the same world as none. */
  readonly toBeIdempotent: Actual extends Report<unknown>
    ? (options?: Idempotent.IdempotentOptions) => void
    : (onlyForAReportOfARehearsal: never) => void
}

declare module "vitest" {
  interface Matchers<T> extends QueueMatchers<T> {}
}

type MatcherState = ReturnType<typeof expect.getState>

/** As `toEqual` compares, with the equality that @effect/vitest has added. */
const equalsOf =
  ({ customTesters, equals, utils }: MatcherState): Equals =>
  (actual, expected) =>
    equals(actual, expected, [...customTesters, utils.iterableEquality])

const snapshotOf = (matcher: string, actual: unknown): Snapshot => {
  if (isSnapshot(actual)) return actual
  throw new TypeError(`${matcher} looks at a snapshot: expect(yield* TestQueue.snapshot()).${matcher}(…)`)
}

const isReport = (value: unknown): value is Report<unknown> =>
  Predicate.hasProperty(value, "failures")
  && Array.isArray(value.failures)
  && Predicate.hasProperty(value, "clean")
  && Predicate.hasProperty(value, "points")

/** So that neither the assertion nor its `.not` holds for what says nothing about it. */
const reportOf = (actual: unknown): Report<unknown> => {
  if (isReport(actual)) return actual
  throw new TypeError("toBeIdempotent looks at a report: expect(yield* Rehearsal.crash(…)).toBeIdempotent()")
}

expect.extend({
  toHaveEnqueued<Type extends string, P, S, E>(
    this: MatcherState,
    actual: unknown,
    job: Job.Job<Type, P, S, E>,
    payload?: P,
    options: Enqueued.EnqueuedAs = {}
  ) {
    return Enqueued.enqueued(snapshotOf("toHaveEnqueued", actual), job, payload, options, equalsOf(this))
  },
  toHaveSucceeded<Type extends string, P, S, E>(
    this: MatcherState,
    actual: unknown,
    job: Job.Job<Type, P, S, E>,
    result?: S
  ) {
    return Ended.succeeded(snapshotOf("toHaveSucceeded", actual), job, result, equalsOf(this))
  },
  toHaveDied(actual: unknown, job: Job.Any, errorCode?: string) {
    return Ended.died(snapshotOf("toHaveDied", actual), job, errorCode)
  },
  toBeIdempotent(actual: unknown, options: Idempotent.IdempotentOptions = {}) {
    return Idempotent.idempotent(reportOf(actual), options)
  }
})
