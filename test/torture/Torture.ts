/**
 * One torture, from the start of its server to the audit.
 */
import { tmpdir } from "node:os"
import { join } from "node:path"
import { MysqlClient } from "@effect/sql-mysql2"
import { Clock, Duration, Effect, Fiber, Layer, Random, Redacted, Ref } from "effect"
import { MysqlQueue } from "../../src/index.js"
import * as Proxy from "../support/Proxy.js"
import { type Audit, audit } from "./Auditor.js"
import * as Crew from "./Crew.js"
import * as Evidence from "./Evidence.js"
import { callerFaults, type Fault, memberFaults, mend, serverFaults, toCallers, toMember, toServer } from "./Faults.js"
import { operate } from "./Operators.js"
import { type Answer, Book, produce, produceWatched } from "./Producers.js"
import * as Records from "./Records.js"
import * as Rolls from "./Rolls.js"
import * as Server from "./Server.js"
import * as Tally from "./Tally.js"
import { Watched } from "./Work.js"

export interface Options {
  /** Decides who does what, and which faults come when. What that leads to depends on the machine too. */
  readonly seed: number
  /** How long faults are done. */
  readonly duration: Duration.Duration
  /** The faults go on until callers know of so many jobs, also on a machine that is slow; default 0. */
  readonly leastJobs?: number
  /** And until so many different ones have happened; default 0. */
  readonly leastFaults?: number
  /** Worker processes; default 4. */
  readonly workers?: number
  /** Which faults; default all. */
  readonly only?: ReadonlyArray<Fault>
  /** Keeps all records in this folder. Default: only where something was found, in a new one among the temporary files. */
  readonly evidence?: string
  readonly progress?: (line: string) => Effect.Effect<void>
}

export interface Report extends Audit {
  readonly seed: number
  readonly version: string
  readonly seconds: number
  /** How often each fault was armed, and how often it happened. */
  readonly armed: Tally.Counts<Fault>
  readonly happened: Tally.Counts<Fault>
  readonly answers: ReadonlyArray<Answer>
  /** Processes that ended as nobody had told them to. */
  readonly crashes: ReadonlyArray<string>
  /** Whether the library has kept all its promises. */
  readonly isGood: boolean
  /** The folder with all records, where they were asked for or something was found. */
  readonly evidence: string | undefined
}

/** No more is enqueued while so many jobs have not ended. */
const backlog = 400

/** How many of the watched jobs are there at once; each worker has slots for all of them. */
const watchedJobs = 6

/** How long it may take until every job has ended, once all is mended. */
const drainTime = Duration.seconds(90)

/** What comes before and after the faults: the start of the server, the drain, the audit. */
const overhead = Duration.minutes(6)

/** The command that repeats a torture. */
export const command = ({ duration, only, seed, workers }: Options): string =>
  [
    "npm run torture --",
    `--minutes ${Duration.toMinutes(duration)}`,
    `--seed ${seed}`,
    ...(workers === undefined ? [] : [`--workers ${workers}`]),
    ...(only ?? []).map((fault) => `--only ${fault}`)
  ].join(" ")

export const run = (options: Options): Effect.Effect<Report> =>
  Effect.scoped(onServer(options)).pipe(
    Effect.timeout(Duration.sum(options.duration, overhead)),
    Effect.tapErrorCause(() => Effect.sync(() => process.stderr.write(`Repeat it: ${command(options)}\n`))),
    Effect.orDie
  )

const onServer = (options: Options) =>
  Effect.gen(function* () {
    const say = options.progress ?? (() => Effect.void)
    yield* say(`seed ${options.seed}; ${command(options)}`)
    const server = yield* Server.start
    // Callers go through a proxy too; their network fails by cuts.
    const proxy = yield* Proxy.make(server.url)
    const callers = yield* Layer.build(
      MysqlQueue.layer({ statementTimeout: "1500 millis" }).pipe(
        Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(proxy.url), maxConnections: 10 }))
      )
    )
    yield* Effect.forEach([...Records.tables, ...Records.triggers], server.query, { discard: true })
    const crew = yield* Crew.hire(server, options.workers ?? 4).pipe(Rolls.seeded(options.seed, "lives"))
    const book = new Book()
    const open = yield* Ref.make(0)
    const tally = new Tally.Tally<Fault>()

    const parts = [
      ...[1, 2, 3].map((part) => repeat(options.seed, `producer ${part}`, [5, 60], producing(book, open))),
      repeat(options.seed, "watched jobs", [100, 500], watch(server, book)),
      repeat(options.seed, "operator", [50, 250], operate(book)),
      ...crew.members.map((member, index) =>
        repeat(
          options.seed,
          `faults of worker ${index + 1}`,
          [200, 4_000],
          fault(options, memberFaults, tally, `worker-${index + 1}`, (name, entry) =>
            toMember(name, server, member, entry)
          )
        )
      ),
      repeat(
        options.seed,
        "faults of the server",
        [1_000, 12_000],
        fault(options, serverFaults, tally, "server", (name, entry) => toServer(name, server, entry))
      ),
      repeat(
        options.seed,
        "faults of callers",
        [1_000, 6_000],
        fault(options, callerFaults, tally, "callers", (name, entry) => toCallers(name, proxy, entry))
      )
    ]
    const counting = yield* Effect.forkScoped(count(server, open, book, say))
    const acting = yield* Effect.forkScoped(
      Effect.all(parts, { concurrency: "unbounded", discard: true }).pipe(Effect.provide(callers))
    )
    const isEnough = () =>
      book.known.length >= (options.leastJobs ?? 0) && Object.keys(tally.happened).length >= (options.leastFaults ?? 0)
    const enough = Effect.sync(isEnough).pipe(
      Effect.zipLeft(Effect.sleep("100 millis")),
      Effect.repeat({ until: (enough) => enough })
    )
    yield* Effect.raceFirst(Effect.zipRight(Effect.sleep(options.duration), enough), Fiber.join(acting))
    // What a server or a proxy is in the middle of is done to its end: a suspended process would stay so.
    yield* Fiber.interrupt(acting)

    yield* say("mending, and waiting until every job has ended")
    yield* mend(server, crew.members)
    yield* drain(server)
    yield* crew.dismiss
    yield* Fiber.interrupt(counting)
    yield* keep(server, book, yield* crew.lives, tally)
    const audited = yield* audit(server.query)
    const crashes = yield* crew.crashes
    const isGood = audited.findings.length === 0 && crashes.length === 0
    const folder =
      options.evidence ?? join(tmpdir(), `leasehold-torture-${options.seed}-${yield* Clock.currentTimeMillis}`)
    const wantsEvidence = options.evidence !== undefined || !isGood
    if (wantsEvidence) yield* Evidence.write(server.query, folder)
    const report: Report = {
      ...audited,
      seed: options.seed,
      version: server.version,
      seconds: Duration.toSeconds(options.duration),
      armed: tally.armed,
      happened: tally.happened,
      answers: book.answers,
      crashes,
      isGood,
      evidence: wantsEvidence ? folder : undefined
    }
    return report
  })

/** Again and again, with dice of its own and a pause from a range of milliseconds in front. */
const repeat = <A, E, R>(
  seed: number,
  part: string,
  [least, most]: readonly [number, number],
  act: Effect.Effect<A, E, R>
): Effect.Effect<never, E, R> =>
  Random.nextIntBetween(least, most).pipe(
    Effect.flatMap((pause) => Effect.sleep(Duration.millis(pause))),
    Effect.zipRight(act),
    Effect.forever,
    Rolls.seeded(seed, part)
  )

/** Some watched jobs are always there, and fewer than one worker can run. */
const watch = (server: Server.Server, book: Book) =>
  Effect.flatMap(
    server.query(`SELECT COUNT(*) AS jobs FROM leasehold_jobs WHERE queue = '${Watched.queue}' AND state IN (0, 1)`),
    ([row]) => (Number(row?.["jobs"] ?? 0) < watchedJobs ? produceWatched(book) : Effect.void)
  )

const producing = (book: Book, open: Ref.Ref<number>) =>
  Effect.flatMap(Ref.get(open), (jobs) => (jobs > backlog ? Effect.void : produce(book)))

/** Does one of the faults that are wanted, at a place, and keeps when. */
const fault = <Name extends Fault, E, R>(
  { only }: Options,
  names: ReadonlyArray<Name>,
  tally: Tally.Tally<Fault>,
  place: string,
  act: (name: Name, entry: Tally.Entry<Fault>) => Effect.Effect<unknown, E, R>
) =>
  Effect.gen(function* () {
    const [first, ...others] = names.filter((name) => only === undefined || only.includes(name))
    if (first === undefined) return
    const name = yield* Rolls.pick([first, ...others])
    const entry = yield* tally.arm(name, place)
    const isOver = Effect.map(Clock.currentTimeMillis, (now) => {
      entry.overAt = now
    })
    yield* Effect.ensuring(act(name, entry), isOver)
  })

const openJobs = (server: Server.Server) =>
  Effect.map(server.query("SELECT COUNT(*) AS jobs FROM leasehold_jobs WHERE state IN (0, 1)"), ([row]) =>
    Number(row?.["jobs"] ?? 0)
  )

/** Keeps the count of jobs that have not ended, and tells of it every five seconds. */
const count = (
  server: Server.Server,
  open: Ref.Ref<number>,
  book: Book,
  say: (line: string) => Effect.Effect<void>
): Effect.Effect<never> =>
  Effect.gen(function* () {
    const look = Effect.tap(openJobs(server), (jobs) => Ref.set(open, jobs)).pipe(
      Effect.zipLeft(Effect.sleep("500 millis"))
    )
    const jobs = yield* Effect.repeatN(look, 9)
    yield* say(`${book.answers.length} answers to callers, ${jobs} jobs open`)
  }).pipe(Effect.forever)

/** Until every job has ended; those which have not in time are the auditor's findings. */
const drain = (server: Server.Server): Effect.Effect<void> =>
  openJobs(server).pipe(
    Effect.zipLeft(Effect.sleep("200 millis")),
    Effect.repeat({ until: (jobs) => jobs === 0 }),
    Effect.timeout(drainTime),
    Effect.ignore
  )

/** Puts what callers were told, and what was done to processes and networks, beside the other records. */
const keep = (
  server: Server.Server,
  book: Book,
  lives: ReadonlyArray<Crew.Life>,
  { entries }: Tally.Tally<Fault>
): Effect.Effect<void> => {
  const time = Records.timeOf
  const insert = (into: string, rows: ReadonlyArray<string>) =>
    Effect.forEach(
      chunksOf(rows, 500),
      (chunk) => server.query(`INSERT INTO ${into} VALUES ${chunk.map((row) => `(${row})`).join(", ")}`),
      { discard: true }
    )
  return Effect.all(
    [
      insert(
        "audit_answers (act, answer, ref, job_id)",
        book.answers.map(({ act, answer, jobId, ref }) => `'${act}', '${answer}', ${ref ?? "NULL"}, ${jobId ?? "NULL"}`)
      ),
      insert(
        "audit_lives (worker, started_at, ready_at, stopped_at, ended_at, end)",
        lives.map(
          ({ end, endedAt, readyAt, startedAt, stoppedAt, worker }) =>
            `'${worker}', ${time(startedAt)}, ${time(readyAt)}, ${time(stoppedAt)}, ${time(endedAt)}, '${end ?? ""}'`
        )
      ),
      insert(
        "audit_faults (fault, place, armed_at, happened_at, over_at)",
        entries.map(
          ({ armedAt, fault, happenedAt, overAt, place }) =>
            `'${fault}', '${place}', ${time(armedAt)}, ${time(happenedAt)}, ${time(overAt)}`
        )
      )
    ],
    { discard: true }
  )
}

const chunksOf = <A>(items: ReadonlyArray<A>, size: number): ReadonlyArray<ReadonlyArray<A>> =>
  Array.from({ length: Math.ceil(items.length / size) }, (_, index) => items.slice(index * size, (index + 1) * size))
