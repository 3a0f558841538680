/**
 * The process that is watched. Its one argument is a JSON of {@link Setup}; its last line of output is one of {@link Report}.
 */
import { Cause, Effect, Exit, Logger, LogLevel } from "effect"
import * as Mysql from "mysql2/promise"
import * as Counts from "./Counts.js"
import { leaksOn } from "./Leaks.js"
import * as Phases from "./Phases.js"

/** How often each phase does what it does; one that is not named, or named with 0, is left out. */
export interface Sizes {
  readonly jobs?: number
  readonly polls?: number
  readonly cuts?: number
  readonly starts?: number
  /** Leaks of each kind, one phase for each: none of the library, but what the meter is tried on. */
  readonly leaks?: number
  /** How often each count is taken, for the least of them; default 4. */
  readonly counts?: number
}

export interface Setup extends Sizes {
  /** With a database that exists and is empty. */
  readonly url: string
}

/** One phase: what was there before it and after it. */
export interface Phase {
  readonly phase: string
  readonly times: number
  readonly seconds: number
  /** Sent meanwhile by the sessions that were open at its end. */
  readonly statements: number
  readonly before: Counts.Counts
  readonly after: Counts.Counts
  readonly grown: ReadonlyArray<Counts.Counted>
}

export type Report = ReadonlyArray<Phase>

const main = (setup: Setup) =>
  Effect.gen(function* () {
    const server = new URL(setup.url)
    const database = server.pathname.slice(1)
    server.pathname = "/"
    const observer = yield* Effect.promise(() => Mysql.createConnection(server.href))
    yield* Counts.checkServer(observer, setup.url, database)
    const take = Counts.take(observer, database, setup.counts ?? 4)
    const phases: Array<Phase> = []
    type Act<E, R> = (count: number) => Effect.Effect<unknown, E, R>
    const measure = <E, R>(name: string, times: number, act: Act<E, R>, before: Counts.Counts) =>
      Effect.gen(function* () {
        const sent = yield* Counts.statements(observer, database)
        const from = performance.now()
        yield* act(times)
        const seconds = Math.round((performance.now() - from) / 100) / 10
        let statements = 0
        for (const [id, all] of yield* Counts.statements(observer, database)) statements += all - (sent.get(id) ?? 0)
        const after = yield* take
        phases.push({ phase: name, times, seconds, statements, before, after, grown: Counts.grown(before, after) })
        yield* Effect.sync(() => process.stderr.write(`${name}: ${times} in ${seconds} s\n`))
        return after
      })
    const phase = <E, R>(name: string, times: number, act: Act<E, R>) =>
      Effect.gen(function* () {
        // What is made once, such as pools, statements and compiled code, is made before the first count.
        yield* act(Math.min(Math.ceil(times / 10), 2_000))
        yield* measure(name, times, act, yield* take)
      })
    const { cuts = 0, jobs = 0, leaks = 0, polls = 0, starts = 0 } = setup

    const inOneApplication = Effect.gen(function* () {
      if (jobs > 0) yield* phase("jobs", jobs, Phases.jobs).pipe(Effect.provide(Phases.busyWorker))
      if (polls > 0) yield* phase("empty polls", polls, Phases.emptyPolls).pipe(Effect.provide(Phases.idleWorker))
      if (cuts > 0) {
        const cut = Phases.cuts(observer, database)
        yield* phase("connection cuts", cuts, cut).pipe(Effect.provide(Phases.busyWorker))
      }
    })
    if (jobs + polls + cuts > 0) yield* Effect.provide(inOneApplication, Phases.queueOn(setup.url, "auto"))
    if (starts > 0) {
      // The tables are there from the first one on.
      yield* Effect.scoped(Effect.provide(Effect.void, Phases.queueOn(setup.url, "auto")))
      yield* phase("starts and stops", starts, Phases.starts(setup.url))
    }
    if (leaks > 0) {
      const leak = yield* leaksOn(setup.url)
      let before = yield* take
      for (const kind of Counts.kinds) {
        const act = (count: number) => Effect.replicateEffect(leak[kind], count, { discard: true })
        before = yield* measure(`leaks of ${kind}`, leaks, act, before)
      }
    }
    return phases
  }).pipe(Effect.provide(Logger.minimumLogLevel(LogLevel.None)))

Counts.watchEmitters()
Effect.runCallback(main(JSON.parse(process.argv[2] ?? "{}") as Setup), {
  onExit: (exit) => {
    if (Exit.isFailure(exit)) process.stderr.write(`${Cause.pretty(exit.cause)}\n`)
    const report = Exit.isSuccess(exit) ? `${JSON.stringify(exit.value)}\n` : ""
    process.stdout.write(report, () => process.exit(Exit.isSuccess(exit) ? 0 : 1))
  }
})
