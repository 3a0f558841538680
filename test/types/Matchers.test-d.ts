import { DateTime, Effect, Schema } from "effect"
import { describe, expect, test } from "vitest"
import * as Job from "../../src/Job.js"
import type { Rehearsal, TestQueue } from "../../src/testing/index.js"
import "../../src/testing/vitest.js"

const Export = Job.make("export", {
  payload: { orderId: Schema.Number },
  success: Schema.Struct({ url: Schema.String })
})

declare const queue: TestQueue.Snapshot
declare const report: Rehearsal.Report<ReadonlyArray<string>>

describe("the matchers", () => {
  test("take payload, options and result as the job and the enqueue have them", () => {
    expect(queue).toHaveEnqueued(Export, { orderId: 7 }, { delay: "10 seconds", priority: 1 })
    expect(queue).not.toHaveEnqueued(Export, { orderId: expect.any(Number) })
    expect(queue).toHaveSucceeded(Export, { url: "u" })
    expect(queue).toHaveDied(Export, "code")
    expect(report).toBeIdempotent({ showObserved: true })
  })

  test("another payload or result does not compile", () => {
    // @ts-expect-error a number
    expect(queue).toHaveEnqueued(Export, { orderId: "7" })
    // @ts-expect-error url is missing
    expect(queue).toHaveSucceeded(Export, {})
  })

  test("a delay beside a time does not compile, as in the enqueue", () => {
    // @ts-expect-error either of them
    expect(queue).toHaveEnqueued(Export, undefined, { delay: 1, runAt: DateTime.unsafeNow() })
  })

  test("on something else they do not compile", () => {
    // @ts-expect-error a forgotten yield*
    expect(Effect.succeed(queue)).toHaveEnqueued(Export)
    // @ts-expect-error a report is no snapshot
    expect(report).toHaveSucceeded(Export)
    // @ts-expect-error a snapshot is no report
    expect(queue).toBeIdempotent()
  })
})
