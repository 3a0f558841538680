/**
 * The stage of one test over a store: a queue of its own, and short ways to put jobs on it and take them.
 */

import { randomUUID } from "node:crypto"
import { addEqualityTesters, expect, type Vitest } from "@effect/vitest"
import { Duration, Effect, Option } from "effect"
import type { JobId, JobRecord } from "../../src/JobRecord.js"
import {
  type ClaimedJob,
  type ClaimRequest,
  type EndedJob,
  JobStore,
  type NewJob,
  type Settlement
} from "../../src/JobStore.js"
import type { Lease } from "../../src/Lease.js"
import { StoreHarness, type StoreUnderTest } from "./StoreHarness.js"

/** Options, dates and durations are compared by value. */
addEqualityTesters()

/** The `it` that the parts of a suite are given. */
export type It = Vitest.MethodsNonLive<StoreUnderTest, true>

/** The length of all leases; long enough that the time that a test really takes does not count. */
export const leaseLength = Duration.minutes(1)

/** Longer than a lease. */
export const pastLease = Duration.seconds(61)

/** A claim that finds nothing is repeated so often where something is expected: a store may look at some jobs late. */
const mostClaims = 500

/** The only element. */
export const only = <A>(items: ReadonlyArray<A>): A => {
  const [first] = items
  if (first === undefined || items.length > 1) throw new Error(`expected one element, found ${items.length}`)
  return first
}

/** The id just below, as a cursor from which a walk finds this job first. */
export const before = (id: JobId): string => String(BigInt(id) - 1n)

export const scene = Effect.gen(function* () {
  const store = yield* JobStore
  const harness = yield* StoreHarness
  const queue = `contract.${randomUUID()}`

  const newJob = (changes: Partial<NewJob> = {}): NewJob => ({
    queue,
    type: "count",
    priority: 5,
    payload: "{}",
    payloadVersion: 1,
    maxAttempts: Option.some(3),
    due: Option.none(),
    idempotency: Option.none(),
    traceContext: Option.none(),
    ...changes
  })

  const enqueue = (changes: Partial<NewJob> = {}) =>
    Effect.map(store.enqueue([newJob(changes)]), (enqueued) => only(enqueued).id)

  const enqueueMany = (count: number, changes: Partial<NewJob> = {}) =>
    Effect.map(store.enqueue(Array.from({ length: count }, () => newJob(changes))), (enqueued) =>
      enqueued.map(({ id }) => id)
    )

  const request = (changes: Partial<ClaimRequest> = {}): ClaimRequest => ({
    queue,
    types: [{ type: "count", version: 1 }],
    worker: "worker-a",
    lease: leaseLength,
    limit: 100,
    ...changes
  })

  const claim = (changes: Partial<ClaimRequest> = {}) => store.claim(request(changes))

  /** Claims until so many jobs were taken or ended. */
  const take = (count: number, changes: Partial<ClaimRequest> = {}) =>
    Effect.gen(function* () {
      const jobs: Array<ClaimedJob> = []
      const ended: Array<EndedJob> = []
      for (let turn = 0; turn < mostClaims && jobs.length + ended.length < count; turn++) {
        const claimed = yield* claim(changes)
        jobs.push(...claimed.jobs)
        ended.push(...claimed.ended)
      }
      expect(jobs.length + ended.length).toBe(count)
      return { jobs, ended }
    })

  const takeOne = (changes: Partial<ClaimRequest> = {}) => Effect.map(take(1, changes), ({ jobs }) => only(jobs))

  /** A new job that `worker-a` holds. */
  const hold = (changes: Partial<NewJob> = {}, by: Partial<ClaimRequest> = {}): Effect.Effect<Lease, unknown> =>
    Effect.gen(function* () {
      const id = yield* enqueue(changes)
      const job = yield* takeOne(by)
      expect(job.lease.jobId).toBe(id)
      return job.lease
    })

  const record = (id: JobId): Effect.Effect<JobRecord, unknown> => Effect.flatMap(store.get(id), Effect.orDie)

  const elapse = (duration: Duration.DurationInput) => harness.elapse(queue, duration)

  const settle = (lease: Lease, settlement: Settlement) => Effect.map(store.settle([[lease, settlement]]), only)

  const renew = (lease: Lease) => Effect.map(store.renew([lease], leaseLength), only)

  /** Nothing can be claimed now. */
  const expectNothingDue = (changes: Partial<ClaimRequest> = {}) =>
    Effect.map(claim(changes), ({ ended, jobs }) => {
      expect(jobs.map(({ lease }) => lease.jobId)).toEqual([])
      expect(ended).toEqual([])
    })

  /** Walks all jobs from the scene's first one, a few at a time. */
  const walk = <A>(
    from: JobId,
    step: (after: string) => Effect.Effect<A & { readonly next: Option.Option<string> }, unknown>
  ): Effect.Effect<ReadonlyArray<A>, unknown> =>
    Effect.gen(function* () {
      const steps: Array<A> = []
      let next = Option.some(before(from))
      while (Option.isSome(next) && steps.length < 2_000) {
        const walked = yield* step(next.value)
        steps.push(walked)
        next = walked.next
      }
      expect(next).toEqual(Option.none())
      return steps
    })

  return {
    store,
    queue,
    newJob,
    enqueue,
    enqueueMany,
    request,
    claim,
    take,
    takeOne,
    hold,
    record,
    elapse,
    settle,
    renew,
    expectNothingDue,
    walk
  }
})

export const settlements: { readonly [Tag in Settlement["_tag"]]: Extract<Settlement, { readonly _tag: Tag }> } = {
  Complete: { _tag: "Complete", output: '{"url":"x"}' },
  RetryLater: { _tag: "RetryLater", delay: Duration.seconds(30), code: "upstream", message: "It was down" },
  Bury: { _tag: "Bury", code: "missing", message: "It is gone" },
  Snooze: { _tag: "Snooze", delay: Duration.seconds(40) },
  Release: { _tag: "Release" },
  Cancel: { _tag: "Cancel" }
}
