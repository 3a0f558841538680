import { describe, expect, it } from "@effect/vitest"
import { type Clock, Effect, Fiber, Layer, Option, Schema, TestClock } from "effect"
import * as Job from "../../src/Job.js"
import { JobId } from "../../src/JobRecord.js"
import type { EndedJob } from "../../src/JobStore.js"
import * as Maintenance from "../../src/Maintenance.js"
import * as Queue from "../../src/Queue.js"
import { StoreUnavailable } from "../../src/QueueError.js"
import { services } from "../support/Services.js"

const Task = Job.make("task", { payload: Schema.Void })

const maintain = (options: Maintenance.Options) => Layer.build(Maintenance.layer(options))

describe("the reaper", () => {
  it.scoped("ends the job of a vanished holder that was canceled, though nobody claims its queue", () =>
    Effect.gen(function* () {
      const { id } = yield* Queue.enqueue(Task, undefined)
      yield* Effect.scoped(Queue.claim(Task, { lease: "1 second" }))
      yield* Queue.cancel(id)
      yield* maintain({ reap: "10 seconds", clean: false })
      yield* TestClock.adjust("20 seconds")
      expect((yield* Queue.get(id)).state).toBe("canceled")
    }).pipe(Effect.provide(services()))
  )

  it.scoped("leaves a job alone that a claim may take over", () =>
    Effect.gen(function* () {
      const { id } = yield* Queue.enqueue(Task, undefined)
      yield* Effect.scoped(Queue.claim(Task, { lease: "1 second" }))
      yield* maintain({ reap: "10 seconds", clean: false })
      yield* TestClock.adjust("1 minute")
      expect((yield* Queue.get(id)).state).toBe("running")
    }).pipe(Effect.provide(services()))
  )
})

describe("the cleaner", () => {
  it.scoped("deletes ended jobs by the retention of their state, counted from their end, and no others", () =>
    Effect.gen(function* () {
      const [succeeded, canceled, pending] = yield* Queue.enqueueAll(Task, [undefined, undefined, undefined])
      yield* Effect.scoped(Effect.flatMap(Queue.claim(Task), (lease) => lease.complete(undefined)))
      yield* Queue.cancel(canceled?.id ?? "")
      yield* maintain({ reap: false, clean: "1 hour", retention: { succeeded: "1 day", canceled: false, dead: 0 } })
      const exists = (job: { readonly id: string } | undefined) => Effect.isSuccess(Queue.get(job?.id ?? ""))
      yield* TestClock.adjust("23 hours")
      expect(yield* exists(succeeded)).toBe(true)
      yield* TestClock.adjust("4 hours")
      expect(yield* Effect.all([exists(succeeded), exists(canceled), exists(pending)])).toEqual([false, true, true])
    }).pipe(Effect.provide(services()))
  )

  it.scoped(
    "walks in batches, at a quarter of the time where it deletes, a twentieth where not, and goes on after a fault",
    () =>
      Effect.gen(function* () {
        const batches: Array<readonly [after: string, limit: number, at: number]> = []
        let faults = 1
        yield* maintain({ reap: false, clean: "10 minutes" }).pipe(
          Effect.provide(
            services(() => ({
              clean: (_retention, after, limit) =>
                Effect.gen(function* () {
                  batches.push([after, limit, yield* Effect.clockWith((clock) => clock.currentTimeMillis)])
                  yield* Effect.sleep("2 seconds")
                  if (faults-- > 0) yield* new StoreUnavailable({ verb: "clean", reason: "timeout", code: "x" })
                  if (after === "") return { next: Option.some("200"), cleaned: 1 }
                  return { next: after === "200" ? Option.some("400") : Option.none(), cleaned: 0 }
                })
            }))
          )
        )
        yield* TestClock.adjust("31 minutes")
        const [failed, first, second, third] = batches
        expect([failed, first, second, third].map((batch) => batch?.[0])).toEqual(["", "", "200", "400"])
        expect(batches.every(([, limit]) => limit === 200)).toBe(true)
        expect((second?.[2] ?? 0) - (first?.[2] ?? 0)).toBe(8_000)
        expect((third?.[2] ?? 0) - (second?.[2] ?? 0)).toBe(40_000)
      })
  )

  it.scoped("begins anew soon after a fault, however long that took to show", () =>
    Effect.gen(function* () {
      const starts: Array<number> = []
      yield* maintain({ reap: false, clean: "1 second" }).pipe(
        Effect.provide(
          services(() => ({
            clean: () =>
              Effect.gen(function* () {
                starts.push(yield* Effect.clockWith((clock) => clock.currentTimeMillis))
                yield* Effect.sleep("30 seconds")
                return yield* new StoreUnavailable({ verb: "clean", reason: "timeout", code: "x" })
              })
          }))
        )
      )
      yield* TestClock.adjust("3 minutes")
      const [first = 0, second = 0] = starts
      expect(second - first).toBeGreaterThanOrEqual(120_000)
      expect(second - first).toBeLessThanOrEqual(122_000)
    })
  )

  it.scoped("the reaper walks at a quarter of the time where it ends jobs, at a twentieth where it finds none", () =>
    Effect.gen(function* () {
      const starts: Array<number> = []
      const ended: EndedJob = { id: JobId.make("1"), queue: "default", type: "task", state: "dead" }
      yield* maintain({ reap: "1 minute", clean: false }).pipe(
        Effect.provide(
          services(() => ({
            reap: (after) =>
              Effect.gen(function* () {
                starts.push(yield* Effect.clockWith((clock) => clock.currentTimeMillis))
                yield* Effect.sleep("1 second")
                return { next: Option.some(`${after}1`), ended: after === "" ? [ended] : [] }
              })
          }))
        )
      )
      yield* TestClock.adjust("3 minutes")
      const [first = 0, second = 0, third = 0] = starts
      expect([second - first, third - second]).toEqual([4_000, 20_000])
    })
  )

  it.effect("goes on at once where the machine's clock is set ahead within a batch", () =>
    Effect.gen(function* () {
      let ahead = 0
      let batches = 0
      const clock = yield* Effect.clock
      const wall: Clock.Clock = Object.create(clock, {
        currentTimeMillis: { value: Effect.map(clock.currentTimeMillis, (now) => now + ahead) },
        unsafeCurrentTimeMillis: { value: () => clock.unsafeCurrentTimeMillis() + ahead }
      })
      const fiber = yield* Maintenance.make({ reap: false, clean: "10 seconds" }).pipe(
        Effect.flatten,
        Effect.provide(
          services(() => ({
            clean: () =>
              Effect.sync(() => {
                ahead += 86_400_000
                return { next: Option.some(String(++batches)), cleaned: 1 }
              }).pipe(Effect.zipLeft(Effect.sleep("1 second")))
          }))
        ),
        Effect.withClock(wall),
        Effect.fork
      )
      yield* TestClock.adjust("1 minute")
      expect(batches).toBeGreaterThan(10)
      const stopping = yield* Effect.fork(Fiber.interrupt(fiber))
      yield* TestClock.adjust("2 seconds")
      yield* Fiber.join(stopping)
    })
  )

  it.effect("stops within a batch", () =>
    Effect.gen(function* () {
      let batches = 0
      const fiber = yield* Maintenance.make({ reap: false, clean: "1 second" }).pipe(
        Effect.flatten,
        Effect.provide(
          services(() => ({
            clean: () => Effect.as(Effect.sleep("3 seconds"), { next: Option.some(String(++batches)), cleaned: 500 })
          }))
        ),
        Effect.fork
      )
      yield* TestClock.adjust("3 seconds")
      const stopping = yield* Effect.fork(Fiber.interrupt(fiber))
      yield* TestClock.adjust("3 seconds")
      expect(Option.isSome(yield* Fiber.poll(stopping))).toBe(true)
      expect(batches).toBe(1)
    })
  )
})

it.effect("maintenance does nothing that was switched off", () =>
  Effect.gen(function* () {
    const kept = { succeeded: false, canceled: false, dead: false } as const
    const fiber = yield* Maintenance.make({ reap: false, clean: "1 minute", retention: kept }).pipe(
      Effect.flatten,
      Effect.provide(services(() => ({ clean: () => Effect.die("called"), reap: () => Effect.die("called") }))),
      Effect.fork
    )
    yield* TestClock.adjust("1 hour")
    expect(yield* Fiber.poll(fiber)).toEqual(Option.none())
    yield* Fiber.interrupt(fiber)
  })
)
