import { expect, it } from "@effect/vitest"
import * as JobRecord from "../../src/JobRecord.js"
import { OutcomeUnknown } from "../../src/QueueError.js"

it("an unknown outcome says what to do about the very verb whose answer was lost", () => {
  const jobId = JobRecord.JobId.make("7")
  expect(new OutcomeUnknown({ verb: "enqueue" }).message).toContain("With an idempotency key it can be repeated")
  const settled = new OutcomeUnknown({ verb: "complete", jobId }).message
  expect(settled).toContain("complete of job 7")
  expect(settled).toContain("Queue.why")
  expect(settled).not.toContain("idempotency")
  expect(new OutcomeUnknown({ verb: "withTransaction" }).message).toContain("before you repeat it")
})
