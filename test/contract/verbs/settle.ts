import { expect } from "@effect/vitest"
import { DateTime, Duration, Effect, Option } from "effect"
import type { Settlement } from "../../../src/JobStore.js"
import { type It, only, pastLease, scene, settlements } from "../../support/Scene.js"

const tags = ["Complete", "RetryLater", "Bury", "Snooze", "Release"] as const

/** What each settlement by the holder leaves behind. */
export const settle = (it: It): void => {
  it.effect("a completed job has succeeded, with its output exactly, and is due no more", () =>
    Effect.gen(function* () {
      const { elapse, expectNothingDue, hold, record, settle } = yield* scene
      const output = `{"b":1.0,"a":["\\u0000","\u{1F468}\u200D\u{1F469}"],"a":2}`
      const lease = yield* hold()
      const held = yield* record(lease.jobId)
      expect(yield* settle(lease, { _tag: "Complete", output })).toEqual({ _tag: "Recorded", state: "succeeded" })
      const job = yield* record(lease.jobId)
      const entry = only(job.attempts)
      expect(job).toEqual({
        ...held,
        state: "succeeded",
        worker: Option.none(),
        output: Option.some(output),
        dueAt: Option.none(),
        finishedAt: entry.endedAt,
        attempts: [{ ...only(held.attempts), endedAt: entry.endedAt, outcome: Option.some("completed") }]
      })
      expect(Option.isSome(entry.endedAt)).toBe(true)
      yield* elapse(pastLease)
      yield* expectNothingDue()
    })
  )

  it.effect("an output of nothing, an empty one and a large one are kept apart and whole", () =>
    Effect.gen(function* () {
      const { enqueueMany, record, store, take } = yield* scene
      const outputs = [null, "null", '""', `"${"\u{1F600}".repeat(30_000)}"`, `"${"x".repeat(200_000)}"`]
      yield* enqueueMany(outputs.length)
      const { jobs } = yield* take(outputs.length)
      const verdicts = yield* store.settle(
        jobs.map(({ lease }, index) => [lease, { _tag: "Complete", output: outputs[index] ?? null }])
      )
      expect(verdicts).toEqual(outputs.map(() => ({ _tag: "Recorded", state: "succeeded" })))
      const records = yield* Effect.forEach(jobs, ({ lease }) => record(lease.jobId))
      expect(records.map(({ output }) => output)).toEqual(outputs.map(Option.fromNullable))
    })
  )

  it.effect("a failed job with budget left is pending again, due after the delay, with what went wrong", () =>
    Effect.gen(function* () {
      const { elapse, expectNothingDue, hold, record, settle, takeOne } = yield* scene
      const lease = yield* hold({ maxAttempts: Option.some(2) })
      expect(yield* settle(lease, settlements.RetryLater)).toEqual({ _tag: "Recorded", state: "pending" })
      const job = yield* record(lease.jobId)
      const entry = only(job.attempts)
      expect(job).toMatchObject({
        state: "pending",
        token: lease.token,
        attempt: 1,
        attemptsLeft: Option.some(1),
        worker: Option.none(),
        output: Option.none(),
        errorCode: Option.some("upstream"),
        errorMessage: Option.some("It was down"),
        dueAt: Option.map(entry.endedAt, DateTime.addDuration("30 seconds")),
        finishedAt: Option.none()
      })
      expect(entry).toMatchObject({
        token: lease.token,
        outcome: Option.some("retry"),
        errorCode: Option.some("upstream"),
        errorMessage: Option.some("It was down")
      })
      yield* elapse("29 seconds")
      yield* expectNothingDue()
      yield* elapse("2 seconds")
      const again = yield* takeOne()
      expect(again.lease).toMatchObject({ jobId: lease.jobId, attempt: 2 })
      expect(again.lease.token).toBeGreaterThan(lease.token)
      expect(again.attemptsLeft).toEqual(Option.some(0))
    })
  )

  it.effect("a failed job without budget is dead, with its own failure as the reason", () =>
    Effect.gen(function* () {
      const { elapse, expectNothingDue, hold, record, settle } = yield* scene
      const lease = yield* hold({ maxAttempts: Option.some(1) })
      expect(yield* settle(lease, settlements.RetryLater)).toEqual({ _tag: "Recorded", state: "dead" })
      const job = yield* record(lease.jobId)
      expect(job).toMatchObject({
        state: "dead",
        token: lease.token,
        attemptsLeft: Option.some(0),
        worker: Option.none(),
        errorCode: Option.some("upstream"),
        errorMessage: Option.some("It was down"),
        dueAt: Option.none()
      })
      expect(Option.isSome(job.finishedAt)).toBe(true)
      expect(only(job.attempts)).toMatchObject({ outcome: Option.some("dead"), errorCode: Option.some("upstream") })
      yield* elapse(pastLease)
      yield* expectNothingDue()
    })
  )

  it.effect("a failed job with an unlimited budget is always pending again", () =>
    Effect.gen(function* () {
      const { elapse, enqueue, record, settle, takeOne } = yield* scene
      const id = yield* enqueue({ maxAttempts: Option.none() })
      for (let attempt = 1; attempt <= 4; attempt++) {
        expect(yield* settle((yield* takeOne()).lease, settlements.RetryLater)).toMatchObject({ state: "pending" })
        yield* elapse("31 seconds")
      }
      expect(yield* record(id)).toMatchObject({ attempt: 4, attemptsLeft: Option.none() })
    })
  )

  it.effect("a buried job is dead, whatever is left of its budget", () =>
    Effect.gen(function* () {
      const { elapse, expectNothingDue, hold, record, settle } = yield* scene
      const lease = yield* hold()
      expect(yield* settle(lease, settlements.Bury)).toEqual({ _tag: "Recorded", state: "dead" })
      const job = yield* record(lease.jobId)
      expect(job).toMatchObject({
        state: "dead",
        token: lease.token,
        attemptsLeft: Option.some(2),
        errorCode: Option.some("missing"),
        errorMessage: Option.some("It is gone"),
        dueAt: Option.none()
      })
      expect(only(job.attempts)).toMatchObject({
        outcome: Option.some("dead"),
        errorCode: Option.some("missing"),
        errorMessage: Option.some("It is gone")
      })
      yield* elapse(pastLease)
      yield* expectNothingDue()
    })
  )

  it.effect("a snoozed job is pending, due after the delay, with its attempt given back", () =>
    Effect.gen(function* () {
      const { elapse, enqueue, expectNothingDue, record, settle, takeOne } = yield* scene
      const id = yield* enqueue({ maxAttempts: Option.some(1) })
      for (const attempt of [1, 2, 3]) {
        const { attemptsLeft, lease } = yield* takeOne()
        expect(lease.attempt).toBe(attempt)
        expect(attemptsLeft).toEqual(Option.some(0))
        expect(yield* settle(lease, settlements.Snooze)).toEqual({ _tag: "Recorded", state: "pending" })
        const job = yield* record(id)
        const last = job.attempts.at(-1)
        expect(job).toMatchObject({ state: "pending", token: lease.token, attempt, attemptsLeft: Option.some(1) })
        expect(last?.outcome).toEqual(Option.some("snoozed"))
        expect(job.dueAt).toEqual(Option.map(last?.endedAt ?? Option.none(), DateTime.addDuration("40 seconds")))
        yield* elapse("39 seconds")
        yield* expectNothingDue()
        yield* elapse("2 seconds")
      }
    })
  )

  it.effect("a released job is pending, due at once, with its attempt given back", () =>
    Effect.gen(function* () {
      const { elapse, hold, record, settle, takeOne } = yield* scene
      const lease = yield* hold({ maxAttempts: Option.some(2) })
      yield* elapse("10 seconds")
      expect(yield* settle(lease, settlements.Release)).toEqual({ _tag: "Recorded", state: "pending" })
      const job = yield* record(lease.jobId)
      expect(job).toMatchObject({
        state: "pending",
        token: lease.token,
        attempt: 1,
        attemptsLeft: Option.some(2),
        worker: Option.none(),
        dueAt: only(job.attempts).endedAt
      })
      expect(only(job.attempts).outcome).toEqual(Option.some("released"))
      const again = yield* takeOne()
      expect(again.lease.attempt).toBe(2)
      expect(Duration.toMillis(again.waited)).toBeLessThan(9_000)
    })
  )

  it.effect("what is given back never exceeds the budget, and nothing is given back to an unlimited one", () =>
    Effect.gen(function* () {
      const { elapse, enqueue, record, settle, store, takeOne } = yield* scene
      // A retry renews the budget while the job has attempts behind it.
      const id = yield* enqueue({ maxAttempts: Option.some(2) })
      yield* settle((yield* takeOne()).lease, settlements.Bury)
      yield* store.retry(id)
      yield* settle((yield* takeOne()).lease, settlements.Release)
      yield* settle((yield* takeOne()).lease, settlements.Snooze)
      expect((yield* record(id)).attemptsLeft).toEqual(Option.some(2))
      yield* store.cancel(id)
      const unlimited = yield* enqueue({ maxAttempts: Option.none() })
      yield* elapse(pastLease)
      yield* settle((yield* takeOne()).lease, settlements.Release)
      expect((yield* record(unlimited)).attemptsLeft).toEqual(Option.none())
    })
  )

  it.effect("text of a failure is stored as it is given, whatever characters it has", () =>
    Effect.gen(function* () {
      const { hold, record, settle } = yield* scene
      const message = `\u0000 '"\\; DROP TABLE jobs; -- \u{1F468}\u200D\u{1F469} ${"é".repeat(900)}`
      const lease = yield* hold()
      yield* settle(lease, { _tag: "Bury", code: "c\u0000'\"\\ é", message })
      const job = yield* record(lease.jobId)
      expect(job.errorMessage).toEqual(Option.some(message))
      expect(job.errorCode).toEqual(Option.some("c\u0000'\"\\ é"))
      expect(only(job.attempts).errorMessage).toEqual(Option.some(message))
    })
  )

  for (const tag of [...tags, "Cancel"] as const) {
    it.effect(`${tag} becomes canceled where a cancel was requested, and its output is dropped`, () =>
      Effect.gen(function* () {
        const { elapse, expectNothingDue, hold, record, settle, store } = yield* scene
        const lease = yield* hold()
        yield* store.cancel(lease.jobId)
        expect(yield* settle(lease, settlements[tag])).toEqual({ _tag: "Recorded", state: "canceled" })
        const job = yield* record(lease.jobId)
        const entry = only(job.attempts)
        expect(job).toMatchObject({
          state: "canceled",
          token: lease.token,
          // Nothing is given back to a job that has ended.
          attemptsLeft: Option.some(2),
          worker: Option.none(),
          output: Option.none(),
          dueAt: Option.none(),
          finishedAt: entry.endedAt
        })
        expect(entry.outcome).toEqual(Option.some("canceled"))
        // What went wrong is kept, for whoever asks why.
        expect(job.errorCode).toEqual(entry.errorCode)
        expect(Option.isSome(job.errorCode)).toBe(tag === "RetryLater" || tag === "Bury")
        yield* elapse(pastLease)
        yield* expectNothingDue()
      })
    )
  }

  it.effect("a success takes back what went wrong before, a release does not, and the ledger keeps both", () =>
    Effect.gen(function* () {
      const { elapse, hold, record, settle, takeOne } = yield* scene
      const first = yield* hold({ maxAttempts: Option.some(5) })
      yield* settle(first, settlements.RetryLater)
      yield* elapse("31 seconds")
      yield* settle((yield* takeOne()).lease, settlements.Release)
      expect((yield* record(first.jobId)).errorCode).toEqual(Option.some("upstream"))
      yield* settle((yield* takeOne()).lease, settlements.Complete)
      const job = yield* record(first.jobId)
      expect(job).toMatchObject({ state: "succeeded", errorCode: Option.none(), errorMessage: Option.none() })
      expect(job.attempts.map(({ errorCode, outcome }) => [outcome, errorCode])).toEqual([
        [Option.some("retry"), Option.some("upstream")],
        [Option.some("released"), Option.none()],
        [Option.some("completed"), Option.none()]
      ])
    })
  )

  it.effect("a settlement of nothing answers nothing", () =>
    Effect.gen(function* () {
      const { store } = yield* scene
      expect(yield* store.settle([])).toEqual([])
    })
  )

  it.effect("settlements are answered in the order given, each behind its own fence", () =>
    Effect.gen(function* () {
      const { elapse, enqueueMany, record, store, take, takeOne } = yield* scene
      yield* enqueueMany(6, { maxAttempts: Option.some(2) })
      const { jobs } = yield* take(6)
      const [first, second, third, fourth, fifth, sixth] = jobs.map(({ lease }) => lease)
      if (!first || !second || !third || !fourth || !fifth || !sixth) throw new Error("six jobs were taken")
      const given = [first, third, fourth, fifth, sixth]
      yield* store.renew(given, Duration.hours(1))
      yield* elapse(pastLease)
      const taker = yield* takeOne({ worker: "worker-b" })
      yield* store.cancel(third.jobId)
      yield* store.settle([[fourth, settlements.Bury]])
      const verdicts = yield* store.settle([
        [sixth, settlements.Snooze],
        [second, settlements.Complete],
        [third, settlements.Complete],
        [fourth, settlements.Complete],
        [{ ...fifth, token: fifth.token + 7 }, settlements.Complete],
        [first, settlements.RetryLater]
      ])
      expect(verdicts).toEqual([
        { _tag: "Recorded", state: "pending" },
        { _tag: "Lost", reason: "superseded" },
        { _tag: "Recorded", state: "canceled" },
        { _tag: "AlreadySettled" },
        { _tag: "Unknown" },
        { _tag: "Recorded", state: "pending" }
      ])
      expect(taker.lease.jobId).toBe(second.jobId)
      const states = yield* Effect.forEach([first, second, third, fourth, fifth, sixth], ({ jobId }) =>
        Effect.map(record(jobId), ({ state }) => state)
      )
      expect(states).toEqual(["pending", "running", "canceled", "dead", "running", "pending"])
    })
  )

  it.effect("a hundred settlements of all kinds in one call are all recorded", () =>
    Effect.gen(function* () {
      const { enqueueMany, record, store, take } = yield* scene
      yield* enqueueMany(100)
      const { jobs } = yield* take(100)
      const kinds = [...tags, "Cancel"] as const
      const given = jobs.map(({ lease }, index): readonly [typeof lease, Settlement] => [
        lease,
        settlements[kinds[index % kinds.length] ?? "Complete"]
      ])
      const verdicts = yield* store.settle([...given].reverse())
      const states = yield* Effect.forEach(given, ([{ jobId }]) => Effect.map(record(jobId), ({ state }) => state))
      expect(verdicts.map((verdict) => (verdict._tag === "Recorded" ? verdict.state : verdict._tag)).reverse()).toEqual(
        states
      )
      expect(states.slice(0, 6)).toEqual(["succeeded", "pending", "dead", "pending", "pending", "canceled"])
    })
  )
}
