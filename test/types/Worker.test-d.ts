import { Effect, type Layer, Schema } from "effect"
import { describe, expectTypeOf, test } from "vitest"
import * as Job from "../../src/Job.js"
import type { JobStore } from "../../src/JobStore.js"
import type { InvalidName, InvalidOption, ShutdownTimeout } from "../../src/QueueError.js"
import type { Wakeup } from "../../src/Wakeup.js"
import * as Worker from "../../src/Worker.js"

class NoPaper extends Schema.TaggedError<NoPaper>()("NoPaper", {}) {}

const Plain = Job.make("plain", { payload: Schema.Void })
const Print = Job.make("print", {
  payload: { page: Schema.Number },
  success: Schema.String,
  error: NoPaper,
  failures: { NoPaper: "retry" },
  queue: "printer"
})

type Started = InvalidName | InvalidOption

describe("a worker", () => {
  test("needs the handler of each of its jobs", () => {
    const run = Worker.run({ jobs: [Plain, Print] })
    expectTypeOf(run).toEqualTypeOf<
      Effect.Effect<
        never,
        Started | ShutdownTimeout,
        Job.JobHandler<"plain"> | Job.JobHandler<"print"> | JobStore | Wakeup
      >
    >()
    const layer = Worker.layer({ jobs: [Print] })
    expectTypeOf(layer).toEqualTypeOf<
      Layer.Layer<Worker.Worker, Started, Job.JobHandler<"print"> | JobStore | Wakeup>
    >()
  })

  // Both ways round: a job whose error is `Schema.Never` once slipped through an inference that looked natural.
  test("without one of the handlers still needs it", () => {
    const withPrint = Effect.provide(
      Worker.run({ jobs: [Plain, Print] }),
      Print.toLayer(() => Effect.succeed("page"))
    )
    expectTypeOf<Effect.Effect.Context<typeof withPrint>>().toEqualTypeOf<Job.JobHandler<"plain"> | JobStore | Wakeup>()
    const withPlain = Effect.provide(
      Worker.run({ jobs: [Plain, Print] }),
      Plain.toLayer(() => Effect.void)
    )
    expectTypeOf<Effect.Effect.Context<typeof withPlain>>().toEqualTypeOf<Job.JobHandler<"print"> | JobStore | Wakeup>()
  })

  test("that is run without a handler does not compile", () => {
    const needsPlain = Effect.provide(
      Worker.run({ jobs: [Plain, Print] }),
      Print.toLayer(() => Effect.succeed("page"))
    )
    const needsStore = (effect: Effect.Effect<never, unknown, JobStore | Wakeup>) => effect
    // @ts-expect-error the handler of Plain is missing
    needsStore(needsPlain)
    needsStore(
      Effect.provide(
        needsPlain,
        Plain.toLayer(() => Effect.void)
      )
    )
  })

  test("takes options that were written apart with satisfies", () => {
    const options = {
      jobs: [Plain, Print],
      queues: { printer: { concurrency: 2 } },
      shutdown: { grace: "5 seconds", unfinished: "expire" }
    } satisfies Worker.Options
    const run = Worker.run(options)
    expectTypeOf<Effect.Effect.Context<typeof run>>().toEqualTypeOf<
      Job.JobHandler<"plain"> | Job.JobHandler<"print"> | JobStore | Wakeup
    >()
  })

  test("does not take words or options that it does not know", () => {
    // @ts-expect-error no such word
    Worker.run({ jobs: [Plain], shutdown: { unfinished: "keep" } })
    // @ts-expect-error misspelt
    Worker.run({ jobs: [Plain], pol: "1 second" })
  })
})
