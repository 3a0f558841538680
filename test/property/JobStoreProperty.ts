/**
 * Random sequences of verbs by several holders, compared step by step with the model, over a store given as a layer.
 */
import { expect, layer } from "@effect/vitest"
import { Duration, Effect, Exit, FastCheck, type Layer, Option, Runtime } from "effect"
import type { JobId } from "../../src/JobRecord.js"
import type { Settlement } from "../../src/JobStore.js"
import type { Lease } from "../../src/Lease.js"
import { before, scene } from "../support/Scene.js"
import type { StoreUnderTest } from "../support/StoreHarness.js"
import * as Model from "./Model.js"

/**
 * `lease` counts back over all leases that were ever given out, stale ones too, and `job` over all jobs; both modulo
 * what there is. `jobs` is a set of bits: which jobs are claimed.
 */
type Step =
  | { readonly _tag: "enqueue"; readonly maxAttempts: Option.Option<number> }
  | { readonly _tag: "claim"; readonly jobs: number; readonly worker: string }
  | { readonly _tag: "renew"; readonly lease: number }
  | { readonly _tag: "settle"; readonly lease: number; readonly as: Model.Settling }
  | { readonly _tag: "completeWith"; readonly lease: number; readonly succeeds: boolean }
  | { readonly _tag: "cancel"; readonly job: number }
  | { readonly _tag: "retry"; readonly job: number }
  | { readonly _tag: "reap" }
  | { readonly _tag: "elapse"; readonly seconds: number }

const tagged = <Tag extends string, Fields extends object>(
  tag: Tag,
  fields: { readonly [Field in keyof Fields]: FastCheck.Arbitrary<Fields[Field]> }
) => FastCheck.record({ _tag: FastCheck.constant(tag), ...fields })

/** Mostly the newest lease or job; else any. */
const index = FastCheck.oneof(
  { weight: 2, arbitrary: FastCheck.constant(0) },
  { weight: 1, arbitrary: FastCheck.nat(20) }
)

const settling = FastCheck.constantFrom<Model.Settling>(
  "Complete",
  "RetryLater",
  "RetryLater",
  "Bury",
  "Snooze",
  "Release"
)

const step: FastCheck.Arbitrary<Step> = FastCheck.oneof(
  {
    weight: 1,
    arbitrary: tagged("enqueue", {
      maxAttempts: FastCheck.constantFrom(Option.none(), Option.some(1), Option.some(2), Option.some(3))
    })
  },
  {
    weight: 6,
    arbitrary: tagged("claim", {
      jobs: FastCheck.integer({ min: 1, max: 7 }),
      worker: FastCheck.constantFrom("a", "b", "c")
    })
  },
  { weight: 2, arbitrary: tagged("renew", { lease: index }) },
  { weight: 6, arbitrary: tagged("settle", { lease: index, as: settling }) },
  { weight: 1, arbitrary: tagged("completeWith", { lease: index, succeeds: FastCheck.boolean() }) },
  { weight: 2, arbitrary: tagged("cancel", { job: index }) },
  { weight: 2, arbitrary: tagged("retry", { job: index }) },
  { weight: 1, arbitrary: FastCheck.constant<Step>({ _tag: "reap" }) },
  { weight: 2, arbitrary: tagged("elapse", { seconds: FastCheck.constantFrom(...Model.elapses) }) }
)

const settlements: { readonly [Tag in Model.Settling]: Settlement } = {
  Complete: { _tag: "Complete", output: "1" },
  RetryLater: { _tag: "RetryLater", delay: Duration.seconds(Model.retryDelay), code: "c", message: "m" },
  Bury: { _tag: "Bury", code: "c", message: "m" },
  Snooze: { _tag: "Snooze", delay: Duration.seconds(Model.snoozeDelay) },
  Release: { _tag: "Release" }
}

/** A job beside its model, and the token that the store gave at each time the model raised it. */
interface Pair {
  readonly id: JobId
  readonly type: string
  readonly model: Model.Job
  readonly tokens: Array<number>
}

const mostJobs = 3

const run = (steps: ReadonlyArray<Step>) =>
  Effect.gen(function* () {
    const { claim, elapse, newJob, record, store } = yield* scene
    const pairs: Array<Pair> = []
    const leases: Array<{ readonly pair: Pair; readonly lease: Lease; readonly raised: number }> = []
    let now = 0

    const enqueue = (maxAttempts: Option.Option<number>) =>
      Effect.gen(function* () {
        const type = `type-${pairs.length}`
        const [enqueued] = yield* store.enqueue([newJob({ type, maxAttempts })])
        if (enqueued === undefined) throw new Error("an enqueue answered nothing")
        const { token } = yield* record(enqueued.id)
        pairs.push({ id: enqueued.id, type, model: Model.newJob(maxAttempts, now), tokens: [token] })
      })

    const newest = <A>(items: ReadonlyArray<A>, index: number): A | undefined =>
      items.length === 0 ? undefined : items[items.length - 1 - (index % items.length)]

    /** The job in the store is what the model says, and the token rises where the model says so. */
    const compare = (pair: Pair) =>
      Effect.gen(function* () {
        const job = yield* record(pair.id)
        const { model, tokens } = pair
        // It never falls, whatever happens to the budget (laws 1 and 5).
        if (model.raised >= tokens.length) {
          expect(job.token).toBeGreaterThan(tokens.at(-1) ?? -1)
          while (tokens.length <= model.raised) tokens.push(job.token)
        }
        expect({
          state: job.state,
          token: job.token,
          attempt: job.attempt,
          attemptsLeft: job.attemptsLeft,
          cancelRequested: job.cancelRequested,
          waits: Option.isSome(job.dueAt),
          ended: Option.isSome(job.finishedAt),
          owned: Option.isSome(job.worker),
          ledger: job.attempts.map(({ outcome, token }) => [token, Option.getOrUndefined(outcome)])
        }).toEqual({
          state: model.state,
          token: tokens[model.raised],
          attempt: model.attempt,
          attemptsLeft: model.attemptsLeft,
          cancelRequested: model.cancelRequested,
          waits: model.state === "pending" || model.state === "running",
          ended: model.state !== "pending" && model.state !== "running",
          owned: model.state === "running",
          ledger: model.ledger.map(({ outcome, raised }) => [tokens[raised], outcome])
        })
      })

    /** Claims some of the jobs, again and again, until what the model expects has come. */
    const claimSome = (mask: number, worker: string) =>
      Effect.gen(function* () {
        const chosen = pairs.filter((_, index) => (mask & (1 << index)) !== 0)
        const expected = new Map(chosen.map((pair) => [pair.id, Model.claim(pair.model, now)]))
        const wanted = [...expected.values()].filter((what) => what !== "nothing").length
        const types = chosen.map(({ type }) => ({ type, version: 1 }))
        let seen = 0
        for (let turn = 0; turn === 0 || (seen < wanted && turn < 500); turn++) {
          const { ended, jobs } = yield* claim({ types, worker, lease: Duration.seconds(Model.lease) })
          seen += jobs.length + ended.length
          for (const { attemptsLeft, lease } of jobs) {
            expect(expected.get(lease.jobId)).toBe("taken")
            const pair = pairs.find(({ id }) => id === lease.jobId)
            if (pair === undefined) throw new Error("a claim answered a job of another test")
            expect(lease.attempt).toBe(pair.model.attempt)
            expect(attemptsLeft).toEqual(pair.model.attemptsLeft)
            leases.push({ pair, lease, raised: pair.model.raised })
          }
          for (const { id, state } of ended) expect(expected.get(id)).toBe(state)
        }
        expect(seen).toBe(wanted)
      })

    const perform = (step: Step) =>
      Effect.gen(function* () {
        switch (step._tag) {
          case "enqueue":
            return pairs.length < mostJobs ? yield* enqueue(step.maxAttempts) : undefined
          case "claim":
            return yield* claimSome(step.jobs, step.worker)
          case "elapse":
            now += step.seconds
            return yield* elapse(Duration.seconds(step.seconds))
          case "reap": {
            for (const { id, model } of pairs) {
              const expected = Model.reap(model, now)
              const { ended } = yield* store.reap(before(id), 1)
              expect(ended.map(({ state }) => state)).toEqual(expected === "nothing" ? [] : [expected])
            }
            return undefined
          }
          case "cancel": {
            const pair = newest(pairs, step.job)
            if (pair === undefined) return undefined
            return expect(yield* store.cancel(pair.id)).toEqual(Model.cancel(pair.model, now))
          }
          case "retry": {
            const pair = newest(pairs, step.job)
            if (pair === undefined) return undefined
            const retried = Exit.isSuccess(yield* Effect.exit(store.retry(pair.id)))
            return expect(retried).toBe(Model.retry(pair.model, now))
          }
        }
        const held = newest(leases, step.lease)
        if (held === undefined) return undefined
        const {
          lease,
          pair: { model },
          raised
        } = held
        switch (step._tag) {
          case "renew": {
            const renewals = yield* store.renew([lease], Duration.seconds(Model.lease))
            return expect(renewals).toEqual([Model.renew(model, raised, now)])
          }
          case "settle": {
            const verdicts = yield* store.settle([[lease, settlements[step.as]]])
            return expect(verdicts).toEqual([Model.settle(model, raised, step.as, now)])
          }
          case "completeWith": {
            const effect = step.succeeds ? Effect.succeed(["1", undefined] as const) : Effect.fail("no" as const)
            const answer = yield* store.completeWith(lease, effect).pipe(
              Effect.match({
                onSuccess: () => "completed",
                onFailure: (error) =>
                  error === "no"
                    ? "the effect's failure"
                    : error._tag === "LeaseLost"
                      ? `${error._tag} ${error.reason}`
                      : error._tag
              })
            )
            return expect(answer).toBe(Model.completeWith(model, raised, step.succeeds, now))
          }
        }
      })

    yield* enqueue(Option.some(3))
    for (const each of steps) {
      yield* perform(each)
      yield* Effect.forEach(pairs, compare)
    }
  })

/**
 * Declares the property over a store. A failure prints its seed and its shortest sequence; `LEASEHOLD_SEED=…` in the
 * environment runs that seed again.
 */
export const property = <E>(name: string, store: Layer.Layer<StoreUnderTest, E>, runs: number): void =>
  layer(store, { excludeTestServices: true, timeout: "2 minutes" })(`any sequence of verbs, ${name}`, (it) => {
    it.effect(
      "leaves every job as the table of transitions says",
      () =>
        Effect.gen(function* () {
          const runtime = yield* Effect.runtime<StoreUnderTest>()
          const seed = process.env["LEASEHOLD_SEED"]
          yield* Effect.promise(() =>
            FastCheck.assert(
              FastCheck.asyncProperty(FastCheck.array(step, { maxLength: 40, size: "max" }), (steps) =>
                Runtime.runPromise(runtime)(run(steps))
              ),
              { numRuns: runs, ...(seed === undefined ? {} : { seed: Number(seed) }) }
            )
          )
        }),
      120_000
    )
  })
