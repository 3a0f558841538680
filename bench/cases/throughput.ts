/**
 * Cases that count jobs per second of one process: drain, lifecycle, enqueue, bulk.
 */
import { Effect, Option } from "effect"
import { type Case, type Settings, type Variant, warmupOf } from "../Case.js"
import * as Child from "../Child.js"
import * as Database from "../Database.js"
import { handled, race, repeated } from "../Meter.js"
import * as Peers from "../Peers.js"
import type { Act } from "../process/Lines.js"
import * as Verify from "../Verify.js"

const leasehold = "leasehold"

/** One process does one act on a database of its own, after another has filled it where there is something to drain. */
const act = (
  settings: Settings,
  name: Act,
  defaults: { readonly jobs: number; readonly concurrency: number }
): Variant => {
  const jobs = Option.getOrElse(settings.jobs, () => defaults.jobs)
  const concurrency = Option.getOrElse(settings.concurrency, () => defaults.concurrency)
  const warmup = warmupOf(settings, jobs)
  const setup = { jobs, warmup, concurrency, payload: settings.payload }
  return {
    name,
    peer: leasehold,
    jobs,
    concurrency,
    settings: { warmup },
    sample: Effect.gen(function* () {
      const { url, ...session } = yield* Database.migrated
      if (name === "drain") {
        const filler = yield* Child.start({ ...setup, jobs: warmup + jobs, warmup: 0, act: "fill", url })
        yield* filler.go
        yield* filler.done
      }
      const child = yield* Child.start({ ...setup, act: name, url })
      const { done, figures } = yield* race([child], () => jobs, warmup)
      const runs = name === "drain" || name === "lifecycle"
      const all = warmup + jobs
      const rows = yield* Verify.rows(session, runs ? { succeeded: all } : { succeeded: 0, pending: all })
      return { figures, verified: rows && repeated(done) === 0 && handled(done) === (runs ? all : 0) }
    })
  }
}

/** The same of this library and of each peer that was asked for. */
const besidePeers = (
  settings: Settings,
  name: "drain" | "enqueue" | "bulk",
  defaults: { readonly jobs: number; readonly concurrency: number }
): ReadonlyArray<Variant> => {
  const own = act(settings, name, defaults)
  const { concurrency, jobs } = own
  return [own, ...Peers.variants(settings, { act: name, jobs, concurrency, payload: settings.payload })]
}

export const drain: Case = {
  name: "drain",
  about: "a worker runs jobs that were enqueued before",
  variants: (settings) => besidePeers(settings, "drain", { jobs: 20_000, concurrency: 32 })
}

export const lifecycle: Case = {
  name: "lifecycle",
  about: "one process enqueues jobs in bulk, then runs them",
  variants: (settings) => [act(settings, "lifecycle", { jobs: 20_000, concurrency: 32 })]
}

export const enqueue: Case = {
  name: "enqueue",
  about: "fibers enqueue one job at a time, each durable on return",
  variants: (settings) => besidePeers(settings, "enqueue", { jobs: 20_000, concurrency: 16 })
}

export const bulk: Case = {
  name: "bulk",
  about: "enqueueAll of 10,000 jobs at a time",
  variants: (settings) => besidePeers(settings, "bulk", { jobs: 10_000, concurrency: 1 })
}
