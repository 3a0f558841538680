/**
 * The worker processes of a torture: each with a place, a proxy of its own, and a new process whenever one has ended.
 */
import { Clock, Duration, Effect, Random, Ref, type Scope } from "effect"
import * as Proxy from "../support/Proxy.js"
import * as WorkerProcess from "../support/WorkerProcess.js"
import type { Server } from "./Server.js"
import type { Orders } from "./Work.js"

export interface Member {
  readonly proxy: Proxy.Proxy
  /** The process that is at this place now; none between two lives. */
  readonly process: Ref.Ref<
    { readonly worker: string; readonly running: WorkerProcess.WorkerProcess; readonly life: Life } | undefined
  >
}

export interface Life {
  readonly worker: string
  readonly startedAt: number
  /** When it began to claim. */
  readyAt: number | undefined
  /** When it was told to stop. */
  stoppedAt: number | undefined
  endedAt: number | undefined
  /** An exit code or a signal. */
  end: number | string | undefined
}

export interface Crew {
  readonly members: ReadonlyArray<Member>
  /** Stops all processes gently; none is started any more. Answers once all have ended. */
  readonly dismiss: Effect.Effect<void>
  /** Every process there was, in the order in which they came. */
  readonly lives: Effect.Effect<ReadonlyArray<Life>>
  /** Ends that nobody had caused: how, and the last words. */
  readonly crashes: Effect.Effect<ReadonlyArray<string>>
}

/** Ends that are as they should be: a stop, also before the process listened to it; a kill; no database at the start. */
const expected: ReadonlyArray<number | string> = [0, 75, "SIGKILL", "SIGTERM"]

const entry = "test/torture/workerMain.ts"

/** How long the last stop of a process may take before it is a finding. */
const stopTime = Duration.seconds(30)

export const hire = (server: Server, size: number): Effect.Effect<Crew, never, Scope.Scope> =>
  Effect.gen(function* () {
    const dismissed = yield* Ref.make(false)
    const lives: Array<Life> = []
    const crashes = yield* Ref.make<ReadonlyArray<string>>([])
    const members = yield* Effect.replicateEffect(
      Effect.gen(function* () {
        const proxy = yield* Proxy.make(server.url)
        const current: Member["process"] = yield* Ref.make<Effect.Effect.Success<Member["process"]>>(undefined)
        return { proxy, process: current }
      }),
      size
    )
    const life = (place: number, number: number, { process, proxy }: Member) =>
      Effect.scoped(
        Effect.gen(function* () {
          const worker = `worker-${place}.${number}`
          const orders: Orders = { url: proxy.url, historyUrl: server.url, workerId: worker }
          const running = yield* WorkerProcess.run(entry, orders)
          const life: Life = {
            worker,
            startedAt: yield* Clock.currentTimeMillis,
            readyAt: undefined,
            stoppedAt: undefined,
            endedAt: undefined,
            end: undefined
          }
          lives.push(life)
          // One that is never ready is not missed: it ends by itself, or is killed or stopped before.
          yield* Effect.forkScoped(
            Effect.map(running.says("ready"), () => {
              life.readyAt = Date.now()
            })
          )
          yield* Ref.set(process, { worker, running, life })
          if (yield* Ref.get(dismissed)) yield* running.signal("SIGTERM")
          const end = yield* running.ended
          life.endedAt = yield* Clock.currentTimeMillis
          life.end = end
          yield* Ref.set(process, undefined)
          if (expected.includes(end)) return
          const words = yield* running.lastWords
          yield* Ref.update(crashes, (all) => [...all, `${worker} ended with ${end}: ${words.slice(-10).join(" | ")}`])
        })
      )
    const place = (index: number, member: Member) =>
      Effect.gen(function* () {
        for (let number = 1; !(yield* Ref.get(dismissed)); number++) {
          yield* life(index, number, member)
          yield* Effect.sleep(Duration.millis(yield* Random.nextIntBetween(100, 1_500)))
        }
      })
    const places = yield* Effect.forkScoped(
      Effect.forEach(members, (member, index) => place(index + 1, member), { concurrency: "unbounded", discard: true })
    )
    // One that is not ready is killed. The layer of @effect/sql-mysql2 asks `SELECT 1` first, and where a fault has swallowed the
    // answer, it waits for ever for the pool to close: neither its own timeout nor an interruption ends that (seen 2026-11-30).
    const stop = ({ process }: Member) =>
      Effect.flatMap(Ref.get(process), (now) =>
        now === undefined ? Effect.void : now.running.signal(now.life.readyAt === undefined ? "SIGKILL" : "SIGTERM")
      )
    return {
      members,
      lives: Effect.sync(() => lives),
      crashes: Ref.get(crashes),
      dismiss: Ref.set(dismissed, true).pipe(
        Effect.zipRight(Effect.forEach(members, stop, { discard: true })),
        Effect.zipRight(places.await),
        Effect.timeoutTo({
          duration: stopTime,
          onSuccess: () => [],
          onTimeout: () => ["a process had not ended 30 seconds after SIGTERM"]
        }),
        Effect.flatMap((late) => Ref.update(crashes, (all) => [...all, ...late]))
      )
    }
  })
