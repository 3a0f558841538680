/**
 * `npm run torture -- --minutes 5 --seed N`: breaks everything around the library for a while, and proves from what is left
 * that nothing was lost and nothing was done twice.
 */
import { Command, Options } from "@effect/cli"
import { NodeContext, NodeRuntime } from "@effect/platform-node"
import { Console, Duration, Effect, Option } from "effect"
import { callerFaults, memberFaults, serverFaults } from "./Faults.js"
import * as Summary from "./Summary.js"
import * as Torture from "./Torture.js"

const minutes = Options.float("minutes").pipe(
  Options.withDefault(5),
  Options.withDescription("For how long faults are done; the drain and the audit come after it.")
)
const seed = Options.integer("seed").pipe(
  Options.optional,
  Options.withDescription("Decides what is done and which faults come when. Default: a new one, which is printed.")
)
const workers = Options.integer("workers").pipe(Options.withDefault(4), Options.withDescription("Worker processes."))
const only = Options.choice("only", Array.from(new Set([...memberFaults, ...serverFaults, ...callerFaults]))).pipe(
  Options.repeated,
  Options.withDescription("Does this fault and no other; may be given several times.")
)

const evidence = Options.directory("evidence").pipe(
  Options.optional,
  Options.withDescription(
    "Keeps all records in this folder as JSON. Default: only where something was found, in a folder that is printed."
  )
)

const torture = Command.make("torture", { evidence, minutes, only, seed, workers }, (given) =>
  Effect.gen(function* () {
    const options: Torture.Options = {
      seed: Option.getOrElse(given.seed, () => Math.floor(Math.random() * 1_000_000_000)),
      duration: Duration.minutes(given.minutes),
      ...(given.workers === 4 ? {} : { workers: given.workers }),
      ...(given.only.length === 0 ? {} : { only: given.only }),
      ...Option.match(given.evidence, { onNone: () => ({}), onSome: (folder) => ({ evidence: folder }) }),
      progress: (line) => Console.error(line)
    }
    const report = yield* Torture.run(options)
    yield* Console.log(Summary.table(report))
    if (!report.isGood) yield* Console.log(`\nRepeat it: ${Torture.command(options)}`)
    yield* Console.log(Summary.line(report))
    // The exit code is the verdict; whoever reads the output has it all by then.
    if (!report.isGood) process.exitCode = 1
  })
)

Command.run(torture, { name: "torture", version: "1" })(process.argv).pipe(
  Effect.provide(NodeContext.layer),
  NodeRuntime.runMain
)
