/**
 * A small measurement of this server, from this machine, on tables of its own that are dropped afterwards.
 *
 * It is no comparison with anything: it answers what a deployment may expect, of the order of magnitude.
 */
import { randomBytes } from "node:crypto"
import * as Options from "@effect/cli/Options"
import { Effect, Layer, Schema } from "effect"
import * as Job from "../../Job.js"
import * as MysqlQueue from "../../MysqlQueue.js"
import { dropAll } from "../../mysql/statements/migrate.js"
import * as Tables from "../../mysql/Tables.js"
import * as Transaction from "../../mysql/Transaction.js"
import * as Queue from "../../Queue.js"
import * as Worker from "../../Worker.js"
import * as Connection from "../Connection.js"
import { ExitCode } from "../ExitCode.js"
import { CommandFailed, usage } from "../Failure.js"
import * as Output from "../Output.js"
import * as Values from "../Values.js"
import * as Verb from "../Verb.js"
import { json } from "./Read.js"

/** Jobs of one call of `enqueueAll`. */
const bulk = 500
/** Jobs that are enqueued one by one, sixteen at a time. */
const singles = 500

const Noop = Job.make("bench.noop", { payload: { number: Schema.Number, padding: Schema.String }, queue: "bench" })

const payload = (number: number) => ({ number, padding: "x".repeat(80) })

export const bench = Verb.make(
  "bench",
  {
    summary: "A small measurement of this server, on tables of its own that it drops again",
    about: [
      "It enqueues jobs of about 100 bytes, one by one and in bulk, and drains them through a worker whose handler does "
        + "nothing. It loads the server while it runs, so it wants --yes. The user needs CREATE and DROP on the database. One "
        + "that is killed leaves tables leasehold_bench_… behind."
    ],
    examples: ["leasehold bench --yes", "leasehold bench --yes --jobs 20000 --concurrency 32 --json"]
  },
  {
    url: Connection.url,
    timeout: Connection.timeout,
    jobs: Values.wholeNumber("jobs", 100, 1_000_000).pipe(
      Options.withDescription("Jobs that are enqueued in bulk and drained, 100 to 1000000. Default: 5000"),
      Options.withDefault(5_000)
    ),
    concurrency: Values.wholeNumber("concurrency", 1, 1_000).pipe(
      Options.withDescription("Handlers at once, 1 to 1000. Default: 16"),
      Options.withDefault(16)
    ),
    yes: Options.boolean("yes").pipe(Options.withDescription("Agree to the load and to the tables")),
    json
  },
  (given) =>
    Effect.gen(function* () {
      const prefix = `leasehold_bench_${randomBytes(4).toString("hex")}_`
      const connected = yield* Connection.connect({ ...given, prefix })
      if (!given.yes) {
        return yield* usage(
          `bench makes tables ${prefix}* in database "${connected.place.database}", writes ${given.jobs + singles} jobs, and drops `
            + "them again. Add --yes to agree."
        )
      }
      const tables = yield* Tables.make(prefix)
      const drop = Transaction.run(connected.connections, "bench", "again", (session) =>
        session.script([dropAll(tables)])
      )
      const live = MysqlQueue.layer({ tablePrefix: prefix }).pipe(Layer.provide(Connection.client(connected.place, 2)))
      const rates = yield* measure(given.jobs, given.concurrency).pipe(
        Effect.provide(live),
        // Whatever happens, and after the queue's own connections are closed.
        Effect.ensuring(
          Effect.catchAll(drop, (error) =>
            Output.progress(`leasehold: drop the tables ${prefix}* by hand: ${error.message}`)
          )
        )
      )
      yield* Output.either(
        given.json,
        () => ({ server: connected.server.version, jobs: given.jobs, concurrency: given.concurrency, ...rates }),
        () => [
          ...Output.table(
            ["measured", "per second"],
            [
              ["enqueue, one by one, 16 at a time", rates.enqueue],
              [`enqueue in bulk, ${bulk} to a call`, rates.enqueueAll],
              [`drain, ${given.concurrency} handlers at once`, rates.drain]
            ]
          ),
          "",
          `MySQL ${connected.server.version}, from this machine, ${given.jobs} jobs. The tables are gone.`
        ]
      )
    }).pipe(Effect.scoped)
)

const measure = (jobs: number, concurrency: number) =>
  Effect.gen(function* () {
    yield* Output.progress(`enqueueing ${singles} jobs one by one`)
    const enqueue = yield* rateOf(
      singles,
      Effect.forEach(Array.from({ length: singles }), (_, number) => Queue.enqueue(Noop, payload(number)), {
        concurrency: 16,
        discard: true
      })
    )
    yield* Output.progress(`enqueueing ${jobs} jobs in bulk`)
    const starts = Array.from({ length: Math.ceil(jobs / bulk) }, (_, index) => index * bulk)
    const enqueueAll = yield* rateOf(
      jobs,
      Effect.forEach(
        starts,
        (start) =>
          Queue.enqueueAll(
            Noop,
            Array.from({ length: Math.min(bulk, jobs - start) }, (_, index) => payload(start + index))
          ),
        { discard: true }
      )
    )
    yield* Output.progress(`draining ${jobs + singles} jobs`)
    const drain = yield* rateOf(jobs + singles, drained(jobs + singles, concurrency))
    return { enqueue, enqueueAll, drain }
  })

const rateOf = <A, E, R>(count: number, effect: Effect.Effect<A, E, R>): Effect.Effect<number, E, R> =>
  Effect.suspend(() => {
    const startedAt = performance.now()
    return Effect.map(effect, () => Math.round(count / ((performance.now() - startedAt) / 1_000)))
  })

/** Works until so many jobs are recorded as succeeded. */
const drained = (jobs: number, concurrency: number) => {
  const worker = Worker.run({
    jobs: [Noop],
    queues: { bench: { concurrency } },
    maintenance: false
  }).pipe(
    Effect.provide(Noop.toLayer(() => Effect.void)),
    Effect.catchTag("ShutdownTimeout", (error) =>
      Effect.fail(new CommandFailed({ code: ExitCode.unexpected, message: error.message }))
    )
  )
  return Effect.raceFirst(worker, recorded(jobs))
}

/** Looks ten times a second: the count reads all jobs, and is to cost the drain little. */
const recorded = (jobs: number) =>
  Effect.gen(function* () {
    for (let looks = 1; ; looks++) {
      const counts = yield* Queue.counts
      const done = counts.find(({ state }) => state === "succeeded")?.count ?? 0
      if (done >= jobs) return
      if (looks % 20 === 0) yield* Output.progress(`${done} of ${jobs} drained`)
      yield* Effect.sleep("100 millis")
    }
  })
