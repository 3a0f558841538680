/**
 * From the call of `enqueue` to the start of the handler, on an idle queue.
 */
import { Effect, Option } from "effect"
import { type Case, type Settings, type Variant, warmupOf } from "../Case.js"
import * as Child from "../Child.js"
import * as Database from "../Database.js"
import { percentile } from "../Figure.js"
import * as Verify from "../Verify.js"

const spread = (samples: ReadonlyArray<number>) => ({
  p50_ms: percentile(samples, 0.5),
  p99_ms: percentile(samples, 0.99)
})

const sameProcess = (settings: Settings): Variant => {
  const { concurrency, jobs, setup, warmup } = read(settings, 200)
  return {
    name: "same process",
    peer: "leasehold",
    jobs,
    concurrency,
    settings: { warmup },
    sample: Effect.gen(function* () {
      const { url, ...session } = yield* Database.migrated
      const child = yield* Child.start({ ...setup, act: "latency", url })
      yield* child.go
      const { samples } = yield* child.done
      const rows = yield* Verify.rows(session, { succeeded: warmup + jobs })
      return { figures: spread(samples), verified: rows && samples.length === jobs }
    })
  }
}

const otherProcess = (settings: Settings, poll: number, binlog = false): Variant => {
  const { concurrency, jobs, setup, warmup } = read(settings, 100)
  return {
    name: binlog ? "another process, binary log" : `another process, poll ${poll} ms`,
    peer: "leasehold",
    jobs,
    concurrency,
    settings: { poll_ms: poll, warmup },
    sample: Effect.gen(function* () {
      const { url, ...session } = yield* Database.migrated
      const worker = yield* Child.start({ ...setup, act: "serve", url, poll, binlog })
      yield* worker.go
      // The log is read a moment after the worker has started.
      if (binlog) yield* Effect.sleep("2 seconds")
      const client = yield* Child.start({ ...setup, act: "ask", url })
      yield* client.go
      const asked = yield* Effect.replicateEffect(client.mark, warmup + jobs)
      const started = new Map((yield* Effect.replicateEffect(worker.mark, warmup + jobs)).map(({ at, n }) => [n, at]))
      yield* worker.stop
      yield* worker.done
      const samples = asked.slice(warmup).flatMap(({ at, n }) => {
        const end = started.get(n)
        return end === undefined ? [] : [end - at]
      })
      const rows = yield* Verify.rows(session, { succeeded: warmup + jobs })
      return { figures: spread(samples), verified: rows && samples.length === jobs }
    })
  }
}

const read = (settings: Settings, fallback: number) => {
  const jobs = Option.getOrElse(settings.jobs, () => fallback)
  const concurrency = Option.getOrElse(settings.concurrency, () => 16)
  const warmup = warmupOf(settings, jobs)
  return { jobs, concurrency, warmup, setup: { jobs, warmup, concurrency, payload: settings.payload } }
}

export const latency: Case = {
  name: "latency",
  about: "from the call of enqueue to the start of the handler, on an idle queue",
  variants: (settings) => [
    sameProcess(settings),
    otherProcess(settings, 1_000),
    otherProcess(settings, 100),
    ...(settings.binlog ? [otherProcess(settings, 1_000, true)] : [])
  ]
}
