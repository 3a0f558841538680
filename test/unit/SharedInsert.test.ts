import { describe, expect, it } from "@effect/vitest"
import { Cause, Effect, Exit, Fiber, Option } from "effect"
import { JobId } from "../../src/JobRecord.js"
import type { Enqueued, NewJob } from "../../src/JobStore.js"
import * as SharedInsert from "../../src/mysql/SharedInsert.js"
import { type StoreError, StoreRejected, StoreUnavailable } from "../../src/QueueError.js"

const jobOf = (payload: string): NewJob => ({
  queue: "default",
  type: "t",
  priority: 5,
  payload,
  payloadVersion: 1,
  maxAttempts: Option.none(),
  due: Option.none(),
  idempotency: Option.none(),
  traceContext: Option.none()
})

const answersOf = (jobs: ReadonlyArray<NewJob>): ReadonlyArray<Enqueued> =>
  jobs.map(({ payload }) => ({ id: JobId.make(String(payload)), created: true }))

/** What each call carried. A call takes a few milliseconds, in which whoever comes waits; then `judge` decides. */
const setUp = (judge: (payloads: ReadonlyArray<string>) => Effect.Effect<void, StoreError> = () => Effect.void) => {
  const calls: Array<string> = []
  const insert = SharedInsert.make((jobs) => {
    const payloads = jobs.map(({ payload }) => String(payload))
    calls.push(payloads.join())
    return Effect.as(Effect.zipRight(Effect.sleep("5 millis"), judge(payloads)), answersOf(jobs))
  })
  const together = (payloads: ReadonlyArray<string>) =>
    Effect.forEach(payloads, (payload) => Effect.exit(insert(jobOf(payload))), { concurrency: "unbounded" })
  return { calls, insert, together }
}

const idsOf = (exits: ReadonlyArray<Exit.Exit<Enqueued, StoreError>>) =>
  exits.map((exit) => (Exit.isSuccess(exit) ? exit.value.id : exit))

describe("single enqueues at the same time", () => {
  it.live("go at once while a call is free, and share the next one otherwise; each has its own answer", () =>
    Effect.gen(function* () {
      const { calls, together } = setUp()
      expect(idsOf(yield* together(["1", "2", "3", "4", "5"]))).toEqual(["1", "2", "3", "4", "5"])
      expect(calls).toEqual(["1", "2", "3,4,5"])
      expect(idsOf(yield* together(["6"]))).toEqual(["6"])
      expect(calls[3]).toBe("6")
    })
  )

  it.live("speak for themselves where the database refuses what is in one of them", () =>
    Effect.gen(function* () {
      const refused = new StoreRejected({ verb: "enqueue", code: "1406", hint: "" })
      const { calls, together } = setUp((payloads) => (payloads.includes("4") ? Effect.fail(refused) : Effect.void))
      expect(idsOf(yield* together(["1", "2", "3", "4", "5"]))).toEqual(["1", "2", "3", Exit.fail(refused), "5"])
      expect(calls.slice(0, 3)).toEqual(["1", "2", "3,4,5"])
      expect(calls.slice(3).sort()).toEqual(["3", "4", "5"])
    })
  )

  it.live("fail together where nothing was written, and the calls go on after it", () =>
    Effect.gen(function* () {
      const down = new StoreUnavailable({ verb: "enqueue", reason: "connection", code: "ECONNRESET" })
      const { calls, together } = setUp((payloads) => (payloads.length > 1 ? Effect.fail(down) : Effect.void))
      expect(idsOf(yield* together(["1", "2", "3", "4"]))).toEqual(["1", "2", Exit.fail(down), Exit.fail(down)])
      expect(idsOf(yield* together(["5", "6"]))).toEqual(["5", "6"])
      expect(calls.slice(3)).toEqual(["5", "6"])
    })
  )

  it.live("hand the call on where one dies, and where a caller has gone", () =>
    Effect.gen(function* () {
      const { calls, insert, together } = setUp((payloads) =>
        payloads.includes("1") ? Effect.die("a mistake") : Effect.void
      )
      const others = yield* Effect.fork(together(["1", "2", "3", "4"]))
      yield* Effect.sleep("1 millis")
      const gone = yield* Effect.fork(insert(jobOf("5")))
      yield* Effect.sleep("1 millis")
      // A verb can not be interrupted: its job is written all the same.
      yield* Fiber.interrupt(gone)
      const [first, ...rest] = yield* Fiber.join(others)
      expect(first !== undefined && Exit.isFailure(first) && Cause.isDie(first.cause)).toBe(true)
      expect(idsOf(rest)).toEqual(["2", "3", "4"])
      expect(calls).toEqual(["1", "2", "3,4,5"])
      expect(idsOf(yield* together(["6", "7"]))).toEqual(["6", "7"])
    })
  )
})
