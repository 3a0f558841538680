/**
 * A worker in a process of its own, for tests that stop, suspend or kill it. Its one argument is a JSON of {@link Setup}.
 *
 * Each line that it prints is one event. What its handler does, it also writes into the table `history` with the database's
 * time, through a connection of its own: `start` before and `end` after its work.
 */
import { SqlClient } from "@effect/sql"
import { MysqlClient } from "@effect/sql-mysql2"
import { Effect, Fiber, Logger, Redacted, Schema } from "effect"
import { Job, MysqlQueue, RetryPolicy, Worker } from "../../src/index.js"
import * as SkewedClock from "../torture/SkewedClock.js"

export interface Setup {
  readonly url: string
  readonly queue: string
  readonly concurrency: number
  readonly lease: string
  readonly poll: string
  readonly grace?: string
  readonly workerId: string
  /** `sleep`: waits so many milliseconds. `spin`: blocks the event loop so long. `die`: kills its own process. */
  readonly work: "sleep" | "spin" | "die"
  readonly millis: number
  /** Milliseconds by which its wall clock is off. Default: it is not touched. */
  readonly clock?: number
}

/** The job that these workers know. */
export const makeJob = (queue: string) =>
  Job.make("fault.work", {
    payload: {},
    success: Schema.String,
    queue,
    retry: RetryPolicy.fixed({ delay: "10 millis", jitter: 0, maxAttempts: 3 })
  })

const main = (setup: Setup) => {
  const job = makeJob(setup.queue)
  const handler = job.toLayer(
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      return (_payload, lease) => {
        const note = (event: string) =>
          Effect.orDie(sql`INSERT INTO history (job_id, token, worker, event, at)
          VALUES (${lease.jobId}, ${lease.token}, ${setup.workerId}, ${event}, UTC_TIMESTAMP(6))`)
        const work = {
          sleep: Effect.sleep(setup.millis),
          spin: Effect.sync(() => {
            const end = performance.now() + setup.millis
            while (performance.now() < end);
          }),
          die: Effect.sync(() => process.kill(process.pid, "SIGKILL"))
        }[setup.work]
        return note("start").pipe(Effect.zipRight(work), Effect.zipRight(note("end")), Effect.as(setup.workerId))
      }
    })
  )
  const options = {
    jobs: [job],
    queues: { [setup.queue]: { concurrency: setup.concurrency, prefetch: 0 } },
    lease: setup.lease as "1 second",
    poll: setup.poll as "1 second",
    workerId: setup.workerId,
    shutdown: { grace: (setup.grace ?? "10 seconds") as "1 second" }
  } as const
  const program = Worker.run(options).pipe(
    Effect.provide(handler),
    Effect.provide(MysqlQueue.layer({ migrate: "off" })),
    Effect.provide(MysqlClient.layer({ url: Redacted.make(setup.url), maxConnections: setup.concurrency + 2 })),
    Effect.provide(
      Logger.replace(
        Logger.defaultLogger,
        Logger.make(({ message }) => process.stdout.write(`${String(message)}\n`))
      )
    )
  )
  const fiber = Effect.runFork(program)
  fiber.addObserver((exit) => {
    process.stdout.write(`exit ${exit._tag}\n`)
    process.exit(0)
  })
  for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => Effect.runFork(Fiber.interrupt(fiber)))
}

const setup = process.argv[2]
const start = (parsed: Setup) => {
  if (parsed.clock !== undefined) SkewedClock.set(parsed.clock)
  main(parsed)
}

if (setup?.startsWith("{") === true) start(JSON.parse(setup) as Setup)
