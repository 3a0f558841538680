/**
 * A worker of the torture in a process of its own. Its one argument is a JSON of `Orders`.
 *
 * It stops gracefully on SIGTERM, sets its wall clock on a line `clock <milliseconds>` of its standard input and says so in the
 * same words, and does not outlive whoever started it. It ends with 0 after a stop, and with 75 where the database was not to be had at its start.
 */
import { createInterface } from "node:readline"
import { SqlClient } from "@effect/sql"
import { MysqlClient } from "@effect/sql-mysql2"
import { Cause, Effect, Exit, Fiber, Layer, Logger, LogLevel, Redacted } from "effect"
import * as Mysql from "mysql2"
import { JobFailure, type Lease, MysqlQueue, Worker } from "../../src/index.js"
import { heldUnder } from "./Records.js"
import * as SkewedClock from "./SkewedClock.js"
import { Exact, lease, type Orders, type Payload, Plain, poll, Watched } from "./Work.js"

type Held = Lease.HandlerLease<{ readonly token: number; readonly worker: string }>

const program = (orders: Orders) =>
  Effect.gen(function* () {
    const history = yield* Effect.acquireRelease(
      Effect.sync(() => Mysql.createPool({ uri: orders.historyUrl, connectionLimit: 4, connectTimeout: 2_000 })),
      (pool) => Effect.sync(() => pool.end(() => {}))
    )
    /** One row in a commit of its own. Where it can not be written the attempt fails: nothing happens unseen. */
    const note = ({ jobId, token, worker }: Held, event: string) =>
      Effect.async<void>((resume) => {
        history.execute(
          {
            sql: "INSERT INTO audit_history (job_id, token, worker, event, at) VALUES (?, ?, ?, ?, UTC_TIMESTAMP(6))",
            timeout: 5_000
          },
          [jobId, token, worker, event],
          (error) => resume(error === null ? Effect.void : Effect.die(error))
        )
      })

    const begin = (held: Held, ending: string, millis: number) =>
      Effect.gen(function* () {
        yield* note(held, "start")
        const first = held.attempt === 1
        if (ending === "spin" && first) {
          const end = performance.now() + millis
          while (performance.now() < end);
        } else yield* Effect.sleep(millis)
        if (ending === "bury") {
          return yield* new JobFailure.Permanent({ code: "buried", message: heldUnder(held.token) })
        }
        if (!first) return
        if (ending === "retry") {
          return yield* new JobFailure.Retryable({ code: "again", message: heldUnder(held.token) })
        }
        if (ending === "snooze") return yield* new JobFailure.Snooze({ for: "200 millis" })
        if (ending === "die") return yield* Effect.die(heldUnder(held.token))
      })

    const inItsOwnCommit = ({ ending, millis }: Payload, held: Held) =>
      Effect.gen(function* () {
        yield* begin(held, ending, millis)
        yield* note(held, "effect")
        yield* note(held, "end")
        return { token: held.token, worker: held.worker }
      })
    const plain = Plain.toLayer(inItsOwnCommit)
    const watched = Watched.toLayer(inItsOwnCommit)
    const exact = Exact.toLayer(
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        return ({ ending, millis }, held) =>
          Effect.gen(function* () {
            yield* begin(held, ending, millis)
            const answer = yield* held
              .completeWith(
                Effect.as(sql`INSERT INTO audit_effects (job_id, token) VALUES (${held.jobId}, ${held.token})`, {
                  token: held.token,
                  worker: held.worker
                })
              )
              .pipe(
                Effect.mapError((error) =>
                  error._tag === "LeaseLost"
                    ? error
                    : new JobFailure.Retryable({ code: error._tag, message: heldUnder(held.token) })
                )
              )
            yield* note(held, "end")
            return answer
          })
      })
    )

    yield* Effect.sync(() => process.stdout.write("ready\n"))
    return yield* Worker.run({
      jobs: [Plain, Exact, Watched],
      queues: {
        [Plain.queue]: { concurrency: 10 },
        [Exact.queue]: { concurrency: 6 },
        [Watched.queue]: { concurrency: 10 }
      },
      lease,
      poll,
      workerId: orders.workerId,
      interruptGrace: "1 second",
      shutdown: { grace: "1 second" },
      maintenance: {
        reap: "1 second",
        clean: "2 seconds",
        retention: { succeeded: "10 seconds", canceled: "10 seconds", dead: "20 seconds" }
      }
    }).pipe(Effect.provide(Layer.mergeAll(plain, exact, watched)))
  }).pipe(
    Effect.provide(
      MysqlQueue.layer({ migrate: "auto", statementTimeout: "1500 millis" }).pipe(
        Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(orders.url), maxConnections: 6 }))
      )
    ),
    Effect.scoped,
    Effect.provide(
      Layer.merge(
        Logger.minimumLogLevel(LogLevel.Warning),
        Logger.replace(
          Logger.defaultLogger,
          Logger.make(({ cause, message }) =>
            process.stdout.write(`${String(message)}${Cause.isEmpty(cause) ? "" : ` ${Cause.pretty(cause)}`}\n`)
          )
        )
      )
    )
  )

const main = (orders: Orders) => {
  const fiber = Effect.runFork(program(orders))
  fiber.addObserver((exit) => {
    if (Exit.isSuccess(exit) || Cause.isInterruptedOnly(exit.cause)) process.exit(0)
    process.stdout.write(`ended: ${Cause.pretty(exit.cause)}\n`)
    const failures = Array.from(Cause.failures(exit.cause))
    if (failures.some(({ _tag }) => _tag === "ShutdownTimeout")) process.exit(0)
    process.exit(failures.length > 0 ? 75 : 70)
  })
  process.on("SIGTERM", () => Effect.runFork(Fiber.interrupt(fiber)))
  const lines = createInterface({ input: process.stdin })
  lines.on("line", (line) => {
    const [word, value] = line.split(" ")
    if (word !== "clock") return
    SkewedClock.set(Number(value))
    process.stdout.write(`${line}\n`)
  })
  lines.on("close", () => process.exit(1))
}

main(JSON.parse(process.argv[2] ?? "") as Orders)
