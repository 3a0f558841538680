/**
 * `npm run soak`: a few hundred thousand jobs and polls, a thousand cuts, a thousand starts and stops; and what they leave.
 */
import { Command, Options } from "@effect/cli"
import { NodeContext, NodeRuntime } from "@effect/platform-node"
import { Console, Effect } from "effect"
import * as Mysql from "mysql2/promise"
import { launch } from "../../scripts/mysql/MysqlServer.js"
import * as Soak from "./Soak.js"

const count = (name: string, fallback: number, description: string) =>
  Options.integer(name).pipe(Options.withDefault(fallback), Options.withDescription(description))

const options = {
  jobs: count("jobs", 300_000, "Jobs that are enqueued, run and deleted."),
  polls: count("polls", 200_000, "Polls that find nothing."),
  cuts: count("cuts", 1_000, "Connections that are killed in the middle of the work."),
  starts: count("starts", 1_000, "Applications that start, run a job and stop.")
}

const database = `leasehold_soak_${process.pid}`

const soak = Command.make("soak", options, (given) =>
  Effect.gen(function* () {
    const server = yield* launch()
    const url = new URL(server.url)
    url.pathname = "/"
    const admin = yield* Effect.acquireRelease(
      Effect.promise(() => Mysql.createConnection(url.href)),
      (connection) => Effect.sync(() => connection.destroy())
    )
    yield* Effect.acquireRelease(
      Effect.promise(() => admin.query(`CREATE DATABASE ${database}`)),
      () => Effect.promise(() => admin.query(`DROP DATABASE ${database}`))
    )
    url.pathname = `/${database}`
    const report = yield* Soak.run({ url: url.href, ...given })
    yield* Console.log(`MySQL ${server.version}, Node ${process.version}\n\n${Soak.table(report)}`)
    yield* Console.log(Soak.line(report))
    // The exit code is the verdict; whoever reads the output has it all by then.
    if (Soak.grown(report).length > 0) process.exitCode = 1
  }).pipe(Effect.scoped)
)

Command.run(soak, { name: "soak", version: "1" })(process.argv).pipe(
  Effect.provide(NodeContext.layer),
  NodeRuntime.runMain
)
