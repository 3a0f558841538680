/**
 * A measured process of this library: a program as its users write it. Its one argument is a {@link Setup} as JSON.
 */
import { MysqlClient } from "@effect/sql-mysql2"
import { Effect, Fiber, Layer, Logger, LogLevel, Redacted, Schema } from "effect"
import { MysqlQueue, Queue, Wakeup, Worker } from "../../src/index.js"
import { onQueue, payload, Work } from "../Work.js"
import { Done, Mark, Ready, Setup } from "./Lines.js"
import { monotonic } from "./Monotonic.js"
import { begin, elapsed, listen, type Parent, say, usage } from "./Parent.js"
import * as Tally from "./Tally.js"

/** Jobs for one call of `enqueueAll`: a program with more to enqueue would not keep all of them in memory either. */
const chunk = 10_000

const jobsOf = ({ queues }: Setup) => Array.from({ length: queues }, (_, index) => onQueue(index + 1))

const workerOptions = (setup: Setup) =>
  ({
    jobs: jobsOf(setup),
    queues: Object.fromEntries(jobsOf(setup).map(({ queue }) => [queue, { concurrency: setup.concurrency }])),
    lease: setup.lease,
    poll: setup.poll
  }) satisfies Worker.Options

const handlers = (setup: Setup, tally: Tally.Tally) => {
  const handle = ({ n }: { readonly n: number }) => {
    tally.count(n)
    if (setup.act !== "serve") return Effect.void
    const said = setup.sayStarts ? say(new Mark({ n, at: monotonic() })) : Effect.void
    return setup.handler === "hang" ? Effect.zipRight(said, Effect.never) : said
  }
  return jobsOf(setup)
    .map((job) => job.toLayer(handle))
    .reduce((layers, layer) => Layer.merge(layers, layer))
}

/** Runs the worker until so many handlers have run, then stops it, which ends when all they answered is written. */
const drain = (setup: Setup, tally: Tally.Tally, wanted: number) =>
  Effect.gen(function* () {
    const working = yield* Effect.fork(Worker.run(workerOptions(setup)))
    yield* Effect.raceFirst(tally.reached(wanted), Fiber.join(working))
    yield* Fiber.interrupt(working)
  })

/** A part of the jobs, by their numbers. */
interface Part {
  readonly from: number
  readonly count: number
}

/** First with the jobs that warm the process, then with those that count. */
const warmed = <E, R>({ jobs, warmup }: Setup, run: (part: Part) => Effect.Effect<unknown, E, R>) =>
  Effect.gen(function* () {
    if (warmup > 0) {
      yield* run({ from: 0, count: warmup })
      begin()
    }
    yield* run({ from: warmup, count: jobs })
  })

const fill = (setup: Setup, { count, from }: Part) =>
  Effect.forEach(
    Array.from({ length: Math.ceil(count / chunk) }, (_, index) => index * chunk),
    (start) =>
      Queue.enqueueAll(
        Work,
        Array.from({ length: Math.min(chunk, count - start) }, (_, index) =>
          payload(from + start + index, setup.payload)
        )
      ),
    { discard: true }
  )

const enqueueSingly = (setup: Setup, { count, from }: Part) =>
  Effect.forEach(
    Array.from({ length: count }, (_, index) => from + index),
    (n) => Queue.enqueue(Work, payload(n, setup.payload)),
    { concurrency: setup.concurrency, discard: true }
  )

/** Between two jobs of a latency measurement: long enough that the first has ended, and never in step with the polls. */
const pause = Effect.suspend(() => Effect.sleep(30 + 40 * Math.random()))

/** Milliseconds from before the call of `enqueue` to the start of the handler, in this process. */
const latency = (setup: Setup) =>
  Effect.gen(function* () {
    let started = (_at: number) => {}
    const noted = Work.toLayer(() => {
      started(monotonic())
      return Effect.void
    })
    return yield* Effect.gen(function* () {
      const working = yield* Effect.fork(Worker.run(workerOptions(setup)))
      yield* Effect.sleep("500 millis")
      const samples = yield* Effect.forEach(
        Array.from({ length: setup.warmup + setup.jobs }, (_, n) => n),
        (n) =>
          Effect.gen(function* () {
            yield* pause
            const start = yield* Effect.makeLatch()
            let end = 0
            started = (at) => {
              end = at
              start.unsafeOpen()
            }
            const begin = monotonic()
            yield* Queue.enqueue(Work, payload(n, setup.payload))
            yield* start.await
            return end - begin
          })
      )
      yield* Fiber.interrupt(working)
      return samples.slice(setup.warmup)
    }).pipe(Effect.provide(noted))
  })

/** Enqueues one job now and then, and says when. */
const ask = (setup: Setup) =>
  Effect.forEach(
    Array.from({ length: setup.warmup + setup.jobs }, (_, n) => n),
    (n) =>
      Effect.gen(function* () {
        yield* pause
        yield* say(new Mark({ n, at: monotonic() }))
        yield* Queue.enqueue(Work, payload(n, setup.payload))
      }),
    { discard: true }
  )

const serve = (setup: Setup, parent: Parent) =>
  Effect.gen(function* () {
    const working = yield* Effect.fork(Worker.run({ ...workerOptions(setup), shutdown: { grace: "100 millis" } }))
    yield* Effect.raceFirst(parent.stop, Fiber.join(working))
    yield* Fiber.interrupt(working)
  })

const nothing: ReadonlyArray<number> = []

const perform = (setup: Setup, tally: Tally.Tally, parent: Parent) => {
  switch (setup.act) {
    case "drain":
      return Effect.as(drain(setup, tally, setup.warmup + setup.jobs), nothing)
    case "lifecycle":
      return Effect.as(
        warmed(setup, (part) => Effect.zipRight(fill(setup, part), drain(setup, tally, part.from + part.count))),
        nothing
      )
    case "fill":
      return Effect.as(fill(setup, { from: 0, count: setup.jobs }), nothing)
    case "bulk":
      return Effect.as(
        warmed(setup, (part) => fill(setup, part)),
        nothing
      )
    case "enqueue":
      return Effect.as(
        warmed(setup, (part) => enqueueSingly(setup, part)),
        nothing
      )
    case "latency":
      return latency(setup)
    case "ask":
      return Effect.as(ask(setup), nothing)
    case "serve":
      return Effect.as(serve(setup, parent), nothing)
    case "count":
      return Effect.dieMessage("Rows of this library are counted by the benchmark itself")
  }
}

const program = (setup: Setup) =>
  Effect.gen(function* () {
    // A drain is warm once so many handlers have run, while it goes on.
    const tally = Tally.make(setup.act === "drain" ? setup.warmup : 0, begin)
    const parent = yield* listen(tally)
    const wakeups = setup.binlog ? Wakeup.layerBinlog() : Layer.effect(Wakeup.Wakeup, Wakeup.Wakeup)
    const live = Layer.merge(handlers(setup, tally), wakeups).pipe(
      Layer.provideMerge(
        MysqlQueue.layer({ migrate: "off", connections: { client: Math.max(8, Math.min(100, setup.concurrency)) } })
      ),
      Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(setup.url), maxConnections: 10 })),
      Layer.provide(Logger.minimumLogLevel(LogLevel.Warning))
    )
    yield* Effect.gen(function* () {
      yield* say(new Ready())
      yield* parent.go
      const samples = yield* perform(setup, tally, parent)
      yield* say(new Done({ ...usage(tally), elapsed: elapsed(), samples }))
    }).pipe(Effect.provide(live))
  })

Effect.runPromiseExit(
  Effect.flatMap(Schema.decodeUnknown(Schema.parseJson(Setup))(process.argv[2]), program).pipe(
    Effect.tapErrorCause((cause) => Effect.logError(cause)),
    Effect.provide(Logger.add(Logger.prettyLogger({ stderr: true, colors: false })))
  )
).then((exit) => process.exit(exit._tag === "Success" ? 0 : 1))
