/**
 * The command behind `npm run bench`.
 */
import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Command, Options } from "@effect/cli"
import { NodeContext, NodeRuntime } from "@effect/platform-node"
import { Effect, Option } from "effect"
import * as Baseline from "./Baseline.js"
import { BenchError } from "./BenchError.js"
import type { Case } from "./Case.js"
import * as Chart from "./Chart.js"
import { cases } from "./cases/all.js"
import { choose } from "./Peer.js"
import * as Report from "./Report.js"
import { root } from "./Root.js"
import * as Runner from "./Runner.js"
import * as Server from "./Server.js"

const whole = (name: string, about: string) => Options.integer(name).pipe(Options.withDescription(about))

const options = {
  jobs: Options.optional(whole("jobs", "how many jobs; each case has its own default")),
  concurrency: Options.optional(whole("concurrency", "handlers at once, or fibers that enqueue")),
  warmup: Options.optional(
    whole(
      "warmup",
      "jobs before those that count, in drain, lifecycle, enqueue, bulk and latency; by default half as many as these"
    )
  ),
  payload: whole("payload", "bytes of an encoded payload").pipe(Options.withDefault(256)),
  runs: whole("runs", "how often each variant is measured; medians are shown").pipe(Options.withDefault(3)),
  url: Options.optional(
    Options.text("url").pipe(Options.withDescription("a running MySQL; without it a durable one is started"))
  ),
  binlog: Options.boolean("binlog").pipe(
    Options.withDescription("start the server with a row-based binary log, flushed at each commit")
  ),
  peers: Options.optional(
    Options.text("peers").pipe(
      Options.withDescription(
        "other queues to measure in turn, in drain, enqueue and bulk: all, or names like serenis,bullmq"
      )
    )
  ),
  json: Options.boolean("json").pipe(Options.withDescription("JSON lines instead of a table")),
  keep: Options.boolean("keep").pipe(Options.withDescription("keep the result in bench/results"))
}

type Wish = Command.Command.ParseConfig<typeof options>

const run = (bench: Case, wish: Wish) =>
  Effect.gen(function* () {
    const peers = yield* Option.match(wish.peers, { onNone: () => Effect.succeed([]), onSome: choose })
    const results = yield* Runner.run(bench, { ...wish, peers }, Math.max(1, wish.runs))
    const lines = results.map(Report.toJson)
    const circumstances = yield* Report.circumstances
    yield* Effect.sync(() => {
      if (wish.json) for (const line of lines) process.stdout.write(`${JSON.stringify(line)}\n`)
      else process.stdout.write(`${Report.table(results)}\n`)
      if (wish.keep) keep(bench.name, circumstances, lines)
    })
    if (!results.every(({ variant, verified }) => verified || variant.peer !== Runner.own)) {
      return yield* new BenchError({ message: "Some rows were not what they had to be: see the column verified" })
    }
  })

const keep = (name: string, circumstances: Report.JsonLine, lines: ReadonlyArray<Report.JsonLine>) => {
  const folder = join(root, "bench", "results")
  mkdirSync(folder, { recursive: true })
  const file = join(folder, `${String(circumstances["date"]).slice(0, 10)}-${name}.jsonl`)
  writeFileSync(file, `${[circumstances, ...lines].map((line) => JSON.stringify(line)).join("\n")}\n`)
  process.stderr.write(`Kept in ${file}\n`)
}

const withServer = <A, E>(wish: Wish, effect: Effect.Effect<A, E, Server.Server>) =>
  Effect.provide(effect, Server.layer({ url: wish.url, binlog: wish.binlog }))

const caseCommand = (bench: Case) =>
  Command.make(bench.name, options, (wish) => withServer(wish, run(bench, wish))).pipe(
    Command.withDescription(bench.about)
  )

const baseline = Command.make("baseline", options, (wish) =>
  withServer(
    wish,
    Effect.gen(function* () {
      for (let turn = 1; turn <= Math.max(1, wish.runs); turn++) {
        const rate = Math.round(yield* Baseline.measure(5_000))
        const line = {
          case: "baseline",
          peer: "one-row UPDATE",
          concurrency: 16,
          baseline_per_second: rate,
          verified: true
        }
        yield* Effect.sync(
          () => void process.stdout.write(wish.json ? `${JSON.stringify(line)}\n` : `${rate} updates per second\n`)
        )
      }
    })
  )
).pipe(
  Command.withDescription(
    "one-row updates at 16 connections, each durable by itself: what every figure is compared with"
  )
)

const everything = Command.make("all", options, (wish) =>
  withServer(
    wish,
    Effect.forEach(cases, (bench) => run(bench, { ...wish, jobs: Option.none(), concurrency: Option.none() }), {
      discard: true
    })
  )
).pipe(Command.withDescription("all cases, one after the other, with their own numbers of jobs"))

const chart = Command.make("chart", {}, () =>
  Effect.sync(() => {
    const file = join(root, "docs", "benchmarks.svg")
    writeFileSync(file, Chart.draw(Chart.latest(join(root, "bench", "results"))))
    process.stderr.write(`Drawn to ${file}\n`)
  })
).pipe(Command.withDescription("draws the latest results that were kept"))

const [first, ...rest] = cases.map(caseCommand)

const command = Command.make("bench").pipe(
  Command.withDescription("Measures the queue through its public API, on a durable MySQL that is started for it"),
  Command.withSubcommands(
    first === undefined ? [baseline, everything, chart] : [first, ...rest, baseline, everything, chart]
  )
)

const cli = Command.run(command, { name: "npm run bench --", version: "1" })

NodeRuntime.runMain(Effect.provide(cli(process.argv), NodeContext.layer))
