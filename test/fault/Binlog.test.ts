/**
 * Wake-ups by the binary log: from commits of anybody, and polls wherever the log can not be read.
 */
import { randomUUID } from "node:crypto"
import { SqlClient } from "@effect/sql"
import { MysqlClient } from "@effect/sql-mysql2"
import { describe, expect, layer } from "@effect/vitest"
import type { AnyBinlogEvent, ZongJiDsn } from "@vlasky/zongji"
import {
  Context,
  Duration,
  Effect,
  Exit,
  Fiber,
  Layer,
  Logger,
  LogLevel,
  Queue as Mailbox,
  Redacted,
  Schema,
  Scope
} from "effect"
import { vi } from "vitest"
import { Job, JobFailure, MysqlQueue, Queue, Wakeup, Worker } from "../../src/index.js"
import * as Stream from "../../src/mysql/binlog/Stream.js"
import * as Tables from "../../src/mysql/Tables.js"
import { BinlogServer, crash, database, dumps } from "../support/BinlogServer.js"
import { emptyDatabase, type Outside, outside } from "../support/Mysql.js"
import * as Proxy from "../support/Proxy.js"
import { until } from "../support/Until.js"

/** So long that whatever starts soon was woken, also on a busy machine: the earliest poll comes after 48 seconds. */
const poll = "1 minute"
const soon = 10_000

interface Said {
  readonly level: string
  readonly text: string
}

const client = (url: string) => MysqlClient.layer({ url: Redacted.make(url), maxConnections: 3 })

/** One process: a queue, and what it logs. */
const producerAt = (url: string) => Layer.build(Layer.provideMerge(MysqlQueue.layer(), client(url)))

/** Another process: it shares nothing with the producer but the database. */
const workerAt = (url: string, options: Wakeup.BinlogOptions & { readonly poll?: Duration.DurationInput } = {}) =>
  Effect.gen(function* () {
    const starts = yield* Mailbox.unbounded<number>()
    const said: Array<Said> = []
    const listening = Logger.replace(
      Logger.defaultLogger,
      Logger.make(({ annotations, logLevel, message }) => {
        const details = JSON.stringify(Object.fromEntries(annotations))
        said.push({ level: logLevel.label, text: `${JSON.stringify(message)} ${details}` })
      })
    )
    const job = Job.make("binlog.work", {
      payload: { n: Schema.Number, text: Schema.String },
      queue: `binlog.${randomUUID().slice(0, 8)}`
    })
    const live = Worker.layer({
      jobs: [job],
      // What is claimed ahead and waits for a slot for a second is given back, and that is a signal, too.
      queues: { [job.queue]: { prefetch: 0 } },
      poll: options.poll ?? poll,
      maintenance: false
    }).pipe(
      Layer.provide(
        job.toLayer(({ n }) =>
          n < 0 ? Effect.fail(new JobFailure.Permanent({ code: "no", message: "" })) : starts.offer(n)
        )
      ),
      Layer.provideMerge(Wakeup.layerBinlog({ heartbeat: "1 second", ...options })),
      Layer.provideMerge(MysqlQueue.layer()),
      Layer.provide(client(url)),
      Layer.provide(listening),
      Layer.provide(Logger.minimumLogLevel(LogLevel.All))
    )
    const context = yield* Layer.build(Layer.fresh(live))
    const lines = Effect.sync(() => said.filter(({ level }) => level !== "DEBUG").map(({ text }) => text))
    const says = (text: string, times: number) =>
      until(lines, (seen) => seen.filter((line) => line.includes(text)).length >= times)
    return {
      job,
      context,
      said,
      warnings: () => said.filter(({ level }) => level === "WARN" || level === "ERROR" || level === "FATAL"),
      /** Waits until it has begun to read the log so many times. */
      on: (times = 1) => says("by the binary log are on", times),
      off: (reason: string) => says(`"reason":"${reason}"`, 1),
      starts,
      next: Mailbox.take(starts)
    }
  })

const scene = Effect.gen(function* () {
  const own = yield* database
  const producer = yield* producerAt(own.url)
  const worker = yield* workerAt(own.url)
  yield* worker.on()
  const enqueue = (n: number, text = "") => Effect.provide(Queue.enqueue(worker.job, { n, text }), producer)
  return { ...worker, own, producer, enqueue }
})

/** Milliseconds until the worker starts a job because of `act`. */
const woken = (next: Effect.Effect<number>, act: Effect.Effect<unknown, unknown>) =>
  Effect.map(Effect.timed(Effect.zipRight(act, next)), ([time]) => Duration.toMillis(time))

/** A user of this database with all rights on its tables, and some on the server. */
const userOf = ({ query, url }: Outside, ...rights: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const own = new URL(url)
    own.username = `user_${randomUUID().slice(0, 8)}`
    own.password = `secret-${randomUUID()}`
    yield* query(`CREATE USER ${own.username} IDENTIFIED BY '${own.password}'`)
    yield* query(`GRANT ALL ON ${own.pathname.slice(1)}.* TO ${own.username}`)
    for (const right of rights) yield* query(`GRANT ${right} ON *.* TO ${own.username}`)
    return own
  })

/** Sets a global variable of the suite's server for the rest of the test. */
const withGlobal = (variable: string, value: string | number) =>
  Effect.gen(function* () {
    const { query } = yield* outside((yield* BinlogServer).url)
    const [before] = yield* query(`SELECT @@GLOBAL.${variable} AS value`)
    yield* Effect.acquireRelease(query(`SET GLOBAL ${variable} = ?`, [value]), () =>
      query(`SET GLOBAL ${variable} = ?`, [before?.["value"]])
    )
  })

/** Says so in one warning, and works by its polls. */
const expectPolling = (url: string, reason: string, options: Wakeup.BinlogOptions = {}) =>
  Effect.gen(function* () {
    const producer = yield* producerAt(url)
    const { job, next, off, warnings } = yield* workerAt(url, { ...options, poll: "200 millis" })
    yield* off(reason)
    yield* Effect.provide(Queue.enqueue(job, { n: 1, text: "" }), producer)
    expect(yield* next).toBe(1)
    expect(warnings()).toHaveLength(1)
    expect(warnings()[0]?.text).toContain("found by polls")
    return warnings()[0]?.text ?? ""
  })

layer(BinlogServer.layer, { excludeTestServices: true, timeout: "2 minutes" })((it) => {
  describe("wake-ups by the binary log", () => {
    it.scoped("start a job that another process enqueues long before the next poll", () =>
      Effect.gen(function* () {
        const { enqueue, next } = yield* scene
        const times = yield* Effect.forEach(
          Array.from({ length: 11 }, (_, n) => n),
          (n) => Effect.zipRight(Effect.sleep("150 millis"), woken(next, enqueue(n)))
        )
        expect(Math.max(...times)).toBeLessThan(soon)
        // What is slow by itself is so each time; what a busy machine adds is not.
        expect(Math.min(...times)).toBeLessThan(200)
      })
    )

    it.scoped("come once, and once more, for ten thousand jobs in one transaction, and not for jobs of later", () =>
      Effect.gen(function* () {
        const { context, enqueue, job, producer } = yield* scene
        let signals = 0
        const { subscribe } = Context.get(context, Wakeup.Wakeup)
        const { wait } = yield* subscribe(job.queue)
        yield* Effect.forkScoped(Effect.forever(Effect.tap(wait, () => Effect.sync(() => signals++))))
        /** Pauses one after the other, so that a machine which stands still does not swallow all of them at once. */
        const quiet = Effect.gen(function* () {
          let before = -1
          while (before !== signals) {
            before = signals
            yield* Effect.repeatN(Effect.sleep("100 millis"), 4)
          }
        })
        // The start of the tailer signals too, for what came before it, and repeats that.
        yield* quiet
        signals = 0
        yield* Effect.provide(Queue.enqueue(job, { n: 0, text: "" }, { delay: "1 hour" }), producer)
        yield* Effect.sleep("500 millis")
        expect(signals).toBe(0)
        const payloads = Array.from({ length: 10_000 }, (_, n) => ({ n, text: "x".repeat(200) }))
        yield* Effect.provide(Queue.enqueueAll(job, payloads), producer)
        yield* until(
          Effect.sync(() => signals),
          (seen) => seen > 1
        )
        yield* quiet
        expect(signals).toBe(2)
        yield* enqueue(1)
        yield* until(
          Effect.sync(() => signals),
          (seen) => seen > 2
        )
      })
    )

    // Side by side, since each has a database of its own.
    describe("side by side", { concurrent: true }, () => {
      it.scoped("start what is enqueued in a transaction of anybody, when it has committed", () =>
        Effect.gen(function* () {
          const { enqueue, next, producer } = yield* scene
          const open = yield* Effect.makeLatch()
          const transaction = Effect.flatMap(SqlClient.SqlClient, (sql) =>
            sql.withTransaction(Effect.zipRight(enqueue(1), open.await))
          )
          const running = yield* Effect.fork(Effect.provide(transaction, producer))
          yield* Effect.sleep("500 millis")
          expect(yield* woken(next, Effect.zipRight(open.open, Fiber.join(running)))).toBeLessThan(soon)
        })
      )

      it.scoped("start what an operator brings back, and what a pause held up", () =>
        Effect.gen(function* () {
          const { enqueue, job, next, producer, starts } = yield* scene
          // Its handler refuses negative numbers.
          const { id } = yield* enqueue(-1)
          yield* Effect.provide(
            until(Queue.get(id), ({ state }) => state === "dead"),
            producer
          )
          expect(yield* starts.size).toBe(0)
          yield* Effect.provide(
            Effect.flatMap(SqlClient.SqlClient, (sql) => sql`UPDATE leasehold_jobs SET payload = '{"n":2,"text":""}'`),
            producer
          )
          expect(yield* woken(next, Effect.provide(Queue.retry(id), producer))).toBeLessThan(soon)
          yield* Effect.provide(Queue.pause(job.queue), producer)
          yield* enqueue(3)
          yield* Effect.sleep("1 second")
          expect(yield* starts.size).toBe(0)
          expect(yield* woken(next, Effect.provide(Queue.resume(job.queue), producer))).toBeLessThan(soon)
        })
      )

      it.scoped("come again when the stream was killed, also for what was enqueued meanwhile", () =>
        Effect.gen(function* () {
          const { enqueue, next, on, own, warnings } = yield* scene
          const [before] = yield* dumps(own)
          yield* own.query(`KILL ${before}`)
          const meanwhile = woken(next, enqueue(1))
          const [, time] = yield* Effect.all([on(2), meanwhile], { concurrency: 2 })
          expect(time).toBeLessThan(soon)
          expect(warnings().map(({ text }) => text)).toEqual([expect.stringContaining('"reason":"connection"')])
          const after = yield* until(dumps(own), ({ length }) => length === 1)
          expect(after).not.toEqual([before])
          expect(yield* woken(next, enqueue(2))).toBeLessThan(soon)
        })
      )

      it.scoped("come again after the network was a black hole", () =>
        Effect.gen(function* () {
          const own = yield* database
          const proxy = yield* Proxy.make(own.url)
          const producer = yield* producerAt(own.url)
          const { context, job, off, on } = yield* workerAt(proxy.url)
          yield* on()
          yield* proxy.blackHole(true)
          yield* off("silent")
          yield* proxy.blackHole(false)
          yield* on(2)
          const { wait, clear } = yield* Context.get(context, Wakeup.Wakeup).subscribe(job.queue)
          yield* Effect.sleep("500 millis")
          yield* clear
          yield* Effect.provide(Queue.enqueue(job, { n: 1, text: "" }), producer)
          yield* Effect.timeout(wait, soon)
        })
      )

      it.scoped("leave nothing at the server when their layer closes", () =>
        Effect.gen(function* () {
          const own = yield* database
          const scope = yield* Scope.make()
          const { on } = yield* Scope.extend(workerAt(own.url), scope)
          yield* on()
          expect(yield* dumps(own)).toHaveLength(1)
          yield* Scope.close(scope, Exit.void)
          const left = "SELECT COUNT(*) AS sessions FROM performance_schema.processlist WHERE db = DATABASE()"
          // The session of the test itself.
          yield* until(own.query(left), ([row]) => Number(row?.["sessions"]) === 1, "5 seconds")
        })
      )

      it.scoped("reach two processes that chose the same id", () =>
        Effect.gen(function* () {
          const own = yield* database
          const producer = yield* producerAt(own.url)
          const workers = yield* Effect.replicateEffect(workerAt(own.url, { serverId: 77 }), 2)
          yield* Effect.forEach(workers, ({ on }) => on())
          yield* Effect.sleep("2 seconds")
          for (const { job, next, warnings } of workers) {
            const enqueue = Effect.provide(Queue.enqueue(job, { n: 1, text: "" }), producer)
            expect(yield* woken(next, enqueue)).toBeLessThan(soon)
            expect(warnings()).toEqual([])
          }
          expect(yield* dumps(own)).toHaveLength(2)
        })
      )
    })

    it.scoped("go on when the log is rotated and purged, and when the table is altered, rebuilt or made anew", () =>
      Effect.gen(function* () {
        const { enqueue, next, own, warnings } = yield* scene
        const acts = [
          "FLUSH BINARY LOGS; PURGE BINARY LOGS BEFORE NOW()",
          "ALTER TABLE leasehold_jobs ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'x' FIRST",
          "ALTER TABLE leasehold_jobs DROP COLUMN note, ENGINE = InnoDB",
          // One RENAME, so that no poll finds the table missing.
          "CREATE TABLE new_jobs LIKE leasehold_jobs; RENAME TABLE leasehold_jobs TO old_jobs, new_jobs TO leasehold_jobs",
          "DROP TABLE old_jobs; TRUNCATE TABLE leasehold_jobs",
          "SET GLOBAL binlog_checksum = NONE",
          "SET GLOBAL binlog_checksum = CRC32"
        ]
        for (const [index, act] of acts.entries()) {
          yield* own.query(act)
          expect(yield* woken(next, enqueue(index)), act).toBeLessThan(soon)
          // Else the next act would take the table from under its settlement.
          yield* until(own.query("SELECT 1 FROM leasehold_jobs WHERE state <> 2"), (open) => open.length === 0)
        }
        expect(warnings()).toEqual([])
      })
    )

    it.scoped("come again after a restart of the server", () =>
      Effect.gen(function* () {
        const { enqueue, next, on } = yield* scene
        yield* crash
        yield* on(2)
        expect(yield* woken(next, Effect.retry(enqueue(1), { times: 5 }))).toBeLessThan(soon)
      })
    )

    it.scoped("never bring a payload into a log", () =>
      Effect.gen(function* () {
        const { enqueue, next, said } = yield* scene
        yield* woken(next, enqueue(1, "marked-payload"))
        yield* Effect.sleep("300 millis")
        expect(said.length).toBeGreaterThan(2)
        expect(said.filter(({ text }) => text.includes("marked-payload"))).toEqual([])
      })
    )

    it.scoped("cut payloads, results and ledgers out of the rows without reading them", () =>
      Effect.gen(function* () {
        const { enqueue, next, own } = yield* scene
        const Zongji = yield* Stream.load
        const events: Array<AnyBinlogEvent> = []
        class Watched extends Zongji {
          constructor(dsn: ZongJiDsn) {
            super(dsn)
            this.on("binlog", (event) => events.push(event))
          }
        }
        const tables = yield* Tables.make(Tables.defaultPrefix)
        const [end] = yield* own.query("SHOW BINARY LOG STATUS")
        const position = {
          file: String(end?.["File"]),
          offset: Number(end?.["Position"]),
          database: own.url.slice(-15)
        }
        expect(position.database).toMatch(/^binlog_/)
        const stream = yield* Stream.open(Watched, {
          driver: { uri: own.url },
          tables,
          position,
          serverId: 5,
          uuid: randomUUID(),
          heartbeat: Duration.seconds(5),
          onDue: () => {},
          onSkipped: () => {}
        })
        yield* stream.live
        yield* own.query("CREATE TABLE others (n INT)")
        yield* own.query("INSERT INTO others VALUES (1)")
        yield* woken(next, enqueue(1, "marked-payload"))
        yield* until(
          Effect.sync(() => events.filter((event) => event.getTypeName() === "UpdateRows").length),
          (updates) => updates >= 2
        )
        const rows = events.flatMap((event): ReadonlyArray<unknown> => ("rows" in event ? event.rows : []))
        const bytes = { payload: expect.any(Buffer), attempts: expect.any(Buffer), type: expect.any(Buffer) }
        // One insert, one claim, one completion; and nothing of other tables.
        expect(rows).toMatchObject([
          { ...bytes, state: 0, due_at: expect.stringMatching(/^20\d\d-.*\.\d{6}$/) },
          { before: { state: 0 }, after: { state: 1 } },
          { before: { ...bytes, state: 1 }, after: { ...bytes, state: 2, due_at: null } }
        ])
      })
    )

    it.scoped("come from rows that the server writes in part", () =>
      Effect.gen(function* () {
        for (const image of ["NOBLOB", "MINIMAL"]) {
          yield* Effect.scoped(
            Effect.gen(function* () {
              yield* withGlobal("binlog_row_image", image)
              const { enqueue, next } = yield* scene
              expect(yield* woken(next, enqueue(1))).toBeLessThan(soon)
            })
          )
        }
      })
    )

    it.scoped("go on beside transactions that the client can not read", () =>
      Effect.gen(function* () {
        const { enqueue, job, next, own, producer, warnings } = yield* scene
        yield* enqueue(1)
        yield* next
        yield* own.query("SET SESSION binlog_transaction_compression = ON")
        yield* own.query(
          "INSERT INTO leasehold_jobs (queue, type, enqueued_at, first_due_at, due_at, payload) SELECT ?, type,"
            + " UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), payload FROM leasehold_jobs",
          [job.queue]
        )
        yield* until(
          Effect.sync(() => warnings()),
          ({ length }) => length > 0
        )
        expect(warnings()[0]?.text).toContain("events that the client can not read")
        // The signal of this one brings the other as well.
        yield* Effect.provide(Queue.enqueue(job, { n: 2, text: "" }), producer)
        expect([yield* next, yield* next].sort()).toEqual([1, 2])
        expect(warnings()).toHaveLength(1)
      })
    )
  })

  describe("without wake-ups by it", () => {
    it.scoped("a user without REPLICATION CLIENT, or without REPLICATION SLAVE, has one warning and polls", () =>
      Effect.gen(function* () {
        const own = yield* database
        for (const rights of [[], ["REPLICATION CLIENT"], ["REPLICATION SLAVE"]]) {
          const { href, password } = yield* userOf(own, ...rights)
          const warning = yield* expectPolling(href, "denied")
          expect(warning).toContain("GRANT REPLICATION SLAVE, REPLICATION CLIENT")
          expect(warning).not.toContain(password)
        }
        const { href } = yield* userOf(own, "REPLICATION CLIENT", "REPLICATION SLAVE")
        yield* (yield* workerAt(href)).on()
      })
    )

    it.scoped("a server without a binary log leads to one warning and polls", () =>
      Effect.gen(function* () {
        const { query, url } = yield* emptyDatabase()
        const [setting] = yield* query("SELECT @@log_bin AS on_")
        // Where the tests were given a server that has one, there is nothing to see.
        if (Number(setting?.["on_"]) === 0) yield* expectPolling(url, "binlog_off")
      })
    )

    it.scoped(
      "other formats, compression, another prefix and filters lead to one warning that names them, and polls",
      () =>
        Effect.gen(function* () {
          const { url } = yield* database
          expect(yield* expectPolling(url, "table_missing", { tablePrefix: "other_" })).toContain("other_jobs")
          yield* Effect.scoped(
            Effect.zipRight(withGlobal("binlog_format", "MIXED"), expectPolling(url, "binlog_format"))
          )
          yield* Effect.scoped(
            Effect.zipRight(withGlobal("binlog_transaction_compression", 1), expectPolling(url, "binlog_compressed"))
          )
        })
    )

    it.scoped("a program without the client has one warning that says how to install it, and polls", () =>
      Effect.gen(function* () {
        const { url } = yield* database
        yield* Effect.acquireRelease(
          Effect.sync(() =>
            vi.doMock("@vlasky/zongji", () => {
              throw new Error("Cannot find package")
            })
          ),
          () => Effect.sync(() => vi.doUnmock("@vlasky/zongji"))
        )
        expect(yield* expectPolling(url, "client_missing")).toContain("npm install @vlasky/zongji@0.9.0")
      })
    )

    it.scoped("options out of their range are refused before anything starts", () =>
      Effect.gen(function* () {
        const { url } = yield* database
        const refused = (options: Wakeup.BinlogOptions) =>
          Effect.flip(
            Layer.build(Wakeup.layerBinlog(options).pipe(Layer.provide(MysqlQueue.layer()), Layer.provide(client(url))))
          )
        expect(yield* refused({ serverId: 0 })).toMatchObject({ accepted: "a whole number from 1 to 4294967295" })
        expect(yield* refused({ serverId: 2 ** 32 })).toMatchObject({ option: "serverId" })
        expect(yield* refused({ spread: "2 seconds" })).toMatchObject({ accepted: "0 millis to 1 second" })
        expect(yield* refused({ heartbeat: "500 millis" })).toMatchObject({ option: "heartbeat" })
        expect(yield* refused({ tablePrefix: "Not" })).toMatchObject({ _tag: "InvalidName" })
      })
    )
  })
})
