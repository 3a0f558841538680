import { describe, expect, it } from "@effect/vitest"
import { Data, Option, Schema } from "effect"
import { LeaseLost, Permanent, Retryable, Snooze, toOutcome, type Verdict } from "../../src/JobFailure.js"
import { JobId } from "../../src/JobRecord.js"
import { Outcome } from "../../src/Outcome.js"

class UpstreamDown extends Schema.TaggedError<UpstreamDown>()("UpstreamDown", { status: Schema.Number }) {}
class OrderMissing extends Data.TaggedError("OrderMissing")<{ readonly orderId: number }> {}

const down = new UpstreamDown({ status: 503 })
const table = (verdict: unknown) => ({ UpstreamDown: verdict as Verdict<never> })

describe("a failure of a job's own", () => {
  it("that the table calls retry is retried under its tag, by the policy", () => {
    expect(toOutcome(down, { UpstreamDown: "retry" })).toMatchObject(
      Option.some({ _tag: "Retry", code: "UpstreamDown", retryAfter: Option.none() })
    )
  })

  it("that the table calls permanent is dead under its tag", () => {
    expect(toOutcome(new OrderMissing({ orderId: 7 }), { OrderMissing: "permanent" })).toMatchObject(
      Option.some({ _tag: "Dead", code: "OrderMissing" })
    )
  })

  it("that the table judges by a function is what the function says of it", () => {
    const judge: Verdict<UpstreamDown> = ({ status }) =>
      status === 503
        ? new Retryable({ code: "busy", message: "503", retryAfter: "5 seconds" })
        : status === 404
          ? new Permanent({ code: "gone", message: "404" })
          : new Snooze({ for: "1 hour" })
    expect(toOutcome(down, { UpstreamDown: judge })).toEqual(
      Option.some(Outcome.Retry({ code: "busy", message: "503", retryAfter: Option.some("5 seconds") }))
    )
    expect(toOutcome(new UpstreamDown({ status: 404 }), { UpstreamDown: judge })).toEqual(
      Option.some(Outcome.Dead({ code: "gone", message: "404" }))
    )
    expect(toOutcome(new UpstreamDown({ status: 200 }), { UpstreamDown: judge })).toEqual(
      Option.some(Outcome.Snooze({ delay: "1 hour" }))
    )
  })

  it.each<readonly [string, unknown]>([
    [
      "throws",
      () => {
        throw new Error("table")
      }
    ],
    ["answers undefined", () => undefined],
    ["answers null", () => null],
    ["answers a word", () => "retry"],
    ["answers something with another tag", () => ({ _tag: "Later" })],
    ["answers the failure itself", (error: unknown) => error]
  ])("that the table judges by a function which %s counts as a defect", (_name, verdict) => {
    expect(toOutcome(down, table(verdict))).toMatchObject(Option.some({ _tag: "Retry", code: "defect" }))
  })

  it("that is in no table is retried under its tag", () => {
    expect(toOutcome(down, {})).toMatchObject(Option.some({ _tag: "Retry", code: "UpstreamDown" }))
    expect(toOutcome(down, table("sometimes"))).toMatchObject(Option.some({ _tag: "Retry", code: "UpstreamDown" }))
  })

  it("whose tag is a name that every object knows is not looked up there", () => {
    for (const tag of ["constructor", "toString", "__proto__", "hasOwnProperty"]) {
      expect(toOutcome({ _tag: tag }, {})).toMatchObject(Option.some({ _tag: "Retry", code: tag }))
    }
  })

  it("that has no tag, as only a caller without types can make, counts as a defect", () => {
    for (const error of ["text", 5, null, undefined, {}, new Error("plain"), { _tag: 5 }]) {
      expect(toOutcome(error as never, {})).toMatchObject(Option.some({ _tag: "Retry", code: "defect" }))
    }
  })
})

describe("the library's own failures", () => {
  it("say what they mean, whatever the table says", () => {
    const retryable = new Retryable({ code: "c", message: "m" })
    expect(toOutcome(retryable, { Retryable: "permanent" })).toEqual(
      Option.some(Outcome.Retry({ code: "c", message: "m", retryAfter: Option.none() }))
    )
    expect(toOutcome(new Permanent({ code: "c", message: "m" }), {})).toEqual(
      Option.some(Outcome.Dead({ code: "c", message: "m" }))
    )
    expect(toOutcome(new Snooze({ for: "3 minutes" }), {})).toEqual(Option.some(Outcome.Snooze({ delay: "3 minutes" })))
  })

  it("have no outcome where the lease was lost", () => {
    const lost = new LeaseLost({ jobId: JobId.make("12"), token: 3, during: "complete", reason: "expired" })
    expect(toOutcome(lost, { LeaseLost: "retry" })).toEqual(Option.none())
    expect(lost.message).toMatch(/^Lease 3 on job 12 was lost during complete: .* Nothing was written\.$/)
  })
})
