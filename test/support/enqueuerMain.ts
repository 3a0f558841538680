/**
 * A process that enqueues the same keys as others at the same instants. Its one argument is a JSON of {@link Setup}. It says
 * `ready`, and is told by a line of its standard input when the first round begins, in milliseconds of the wall clock. What it
 * was answered it writes into the table `answers` at the end.
 */
import { createInterface } from "node:readline"
import { SqlClient } from "@effect/sql"
import { MysqlClient } from "@effect/sql-mysql2"
import { Cause, Effect, Exit, Redacted, Schema } from "effect"
import { Job, MysqlQueue, Queue } from "../../src/index.js"

export interface Setup {
  readonly url: string
  readonly process: number
  readonly rounds: number
  /** How many callers of this process give the same key in a round. */
  readonly callers: number
  /** How many milliseconds rounds are apart. */
  readonly apart: number
}

const Keyed = Job.make("processes.keyed", { payload: { round: Schema.Number }, queue: "processes" })

/** Says that it is ready, and waits until it is told when to begin. */
const begin = Effect.async<number>((resume) => {
  const lines = createInterface({ input: process.stdin })
  lines.once("line", (line) => resume(Effect.succeed(Number(line))))
  // It does not outlive whoever started it.
  lines.once("close", () => process.exit(1))
  process.stdout.write("ready\n")
})

const main = ({ apart, callers, process: own, rounds, url }: Setup) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const from = yield* begin
    const all: Array<Record<string, unknown>> = []
    for (let round = 0; round < rounds; round++) {
      yield* Effect.sleep(Math.max(0, from + round * apart - Date.now()))
      const answers = yield* Effect.all(
        Array.from({ length: callers }, () =>
          Effect.either(Queue.enqueue(Keyed, { round }, { idempotency: { scope: "processes", key: `${round}` } }))
        ),
        { concurrency: "unbounded" }
      )
      all.push(
        ...answers.map((answer) =>
          answer._tag === "Right"
            ? { round, process: own, id: answer.right.id, created: Number(answer.right.created), error: "" }
            : { round, process: own, id: "", created: 0, error: answer.left._tag }
        )
      )
    }
    yield* sql`INSERT INTO answers ${sql.insert(all)}`
  }).pipe(
    Effect.provide(MysqlQueue.layer({ migrate: "off" })),
    Effect.provide(MysqlClient.layer({ url: Redacted.make(url), maxConnections: 2 }))
  )

Effect.runCallback(main(JSON.parse(process.argv[2] ?? "{}") as Setup), {
  onExit: (exit) => {
    if (Exit.isFailure(exit)) process.stderr.write(`${Cause.pretty(exit.cause)}\n`)
    process.exit(Exit.isSuccess(exit) ? 0 : 1)
  }
})
