/**
 * Peers in the cases that they can do, too, in turn with this library: the same payload, a handler that does nothing, at most as
 * many handlers at once, a durable server on the same machine. Their programs are in `bench/peers/`.
 */
import { Duration, Effect, type Scope } from "effect"
import { BenchError } from "./BenchError.js"
import { type Sample, type Settings, type Variant, warmupOf } from "./Case.js"
import * as Child from "./Child.js"
import * as Database from "./Database.js"
import { handled, race, repeated } from "./Meter.js"
import { launch, type Peer } from "./Peer.js"
import type { Act } from "./process/Lines.js"
import type { Server } from "./Server.js"

const patience = Duration.minutes(3)

interface Asked {
  readonly act: "drain" | "enqueue" | "bulk"
  readonly jobs: number
  readonly warmup: number
  readonly concurrency: number
  readonly payload: number
}

/** What a peer does in a case, in its best settings and beside these in its default ones; nothing where it has no such thing. */
export const variants = (chosen: Settings, asked: Omit<Asked, "warmup">): ReadonlyArray<Variant> =>
  chosen.peers
    .filter(({ hasBulk }) => hasBulk || asked.act !== "bulk")
    .flatMap((peer) => {
      const upTo = (limit: number) => {
        const jobs = Math.min(asked.jobs, limit)
        return { ...asked, jobs, warmup: Math.min(jobs, warmupOf(chosen, jobs)) }
      }
      if (asked.act !== "drain") return [variant(peer, upTo(asked.jobs), "best")]
      const { most, mostByDefault } = peer
      const best = variant(peer, upTo(most), "best")
      return mostByDefault === undefined ? [best] : [best, variant(peer, upTo(mostByDefault), "default")]
    })

const variant = (peer: Peer, asked: Asked, settings: "best" | "default"): Variant => ({
  name: settings === "best" ? asked.act : "default settings",
  peer: peer.name,
  jobs: asked.jobs,
  concurrency: asked.concurrency,
  settings: { settings, warmup: asked.warmup },
  sample: Effect.timeoutFail(sample(peer, { ...asked, settings }), {
    duration: patience,
    onTimeout: () => new BenchError({ message: `it was not done within ${Duration.format(patience)}` })
  })
})

const sample = (
  peer: Peer,
  { act, ...rest }: Asked & { readonly settings: "best" | "default" }
): Effect.Effect<Sample, BenchError, Server | Scope.Scope> =>
  Effect.gen(function* () {
    const url = yield* peer.server === "mysql" ? Effect.map(Database.empty, (made) => made.url) : peer.server.start
    const all = rest.jobs + rest.warmup
    const finish = (what: Act) =>
      Effect.scoped(
        Effect.flatMap(Child.start({ ...rest, jobs: all, warmup: 0, act: what, url }, launch(peer)), (child) =>
          Effect.zipRight(child.go, child.done)
        )
      )
    if (act === "drain") yield* finish("fill")
    const { done, figures } = yield* race(
      [yield* Child.start({ ...rest, act, url }, launch(peer))],
      () => rest.jobs,
      rest.warmup
    )
    const [left, completed] = (yield* finish("count")).samples
    const runs = act === "drain" ? all : 0
    const { mysqld_cpu_us_per_job, statements_per_job, ...elsewhere } = figures
    return {
      // What MySQL was asked says nothing of a peer that asked another server.
      figures: peer.server === "mysql" ? figures : elsewhere,
      verified:
        handled(done) === runs
        && repeated(done) === 0
        && left === all - runs
        && (completed === runs || !peer.keepsCompleted)
    }
  })
