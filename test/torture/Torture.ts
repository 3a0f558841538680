/**
 * One torture, from the start of its server to the audit.
 */
import { MysqlClient } from "@effect/sql-mysql2"
import { Duration, Effect, Fiber, Layer, Random, Redacted, Ref } from "effect"
import { MysqlQueue } from "../../src/index.js"
import * as Proxy from "../support/Proxy.js"
import { type Audit, audit } from "./Auditor.js"
import * as Crew from "./Crew.js"
import { type Fault, memberFaults, mend, serverFaults, toMember, toServer } from "./Faults.js"
import { operate } from "./Operators.js"
import { type Answer, Book, produce } from "./Producers.js"
import * as Records from "./Records.js"
import * as Rolls from "./Rolls.js"
import * as Server from "./Server.js"

export interface Options {
  /** Decides who does what, and which faults come when. What that leads to depends on the machine too. */
  readonly seed: number
  /** How long faults are done. */
  readonly duration: Duration.Duration
  /** The faults go on until callers know of so many jobs, also on a machine that is slow; default 0. */
  readonly leastJobs?: number
  /** Worker processes; default 4. */
  readonly workers?: number
  /** Which faults; default all. */
  readonly only?: ReadonlyArray<Fault>
  readonly progress?: (line: string) => Effect.Effect<void>
}

export interface Report extends Audit {
  readonly seed: number
  readonly version: string
  readonly seconds: number
  /** How often each fault was done. */
  readonly faults: { readonly [Name in Fault]?: number }
  readonly answers: ReadonlyArray<Answer>
  /** Processes that ended as nobody had told them to. */
  readonly crashes: ReadonlyArray<string>
}

/** No more is enqueued while so many jobs have not ended. */
const backlog = 400

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
    const faults = yield* Ref.make<{ [Name in Fault]?: number }>({})

    const parts = [
      ...[1, 2, 3].map((part) => repeat(options.seed, `producer ${part}`, [5, 60], producing(book, open))),
      repeat(options.seed, "operator", [50, 250], operate(book)),
      ...crew.members.map((member, index) =>
        repeat(
          options.seed,
          `faults of worker ${index + 1}`,
          [200, 4_000],
          memberFault(options, server, member, faults)
        )
      ),
      repeat(options.seed, "faults of the server", [1_000, 12_000], serverFault(options, server, faults)),
      repeat(options.seed, "faults of callers", [1_000, 6_000], proxy.cut)
    ]
    const counting = yield* Effect.forkScoped(count(server, open, book, say))
    const acting = yield* Effect.forkScoped(
      Effect.all(parts, { concurrency: "unbounded", discard: true }).pipe(Effect.provide(callers))
    )
    const enough = Effect.sync(() => book.known.length >= (options.leastJobs ?? 0)).pipe(
      Effect.zipLeft(Effect.sleep("100 millis")),
      Effect.repeat({ until: (isEnough) => isEnough })
    )
    yield* Effect.raceFirst(Effect.zipRight(Effect.sleep(options.duration), enough), Fiber.join(acting))
    // What a server or a proxy is in the middle of is done to its end: a suspended process would stay so.
    yield* Fiber.interrupt(acting)

    yield* say("mending, and waiting until every job has ended")
    yield* mend(server, crew.members)
    yield* drain(server)
    yield* crew.dismiss
    yield* Fiber.interrupt(counting)
    yield* keep(server, book)
    const audited = yield* audit(server.query)
    const report: Report = {
      ...audited,
      seed: options.seed,
      version: server.version,
      seconds: Duration.toSeconds(options.duration),
      faults: yield* Ref.get(faults),
      answers: book.answers,
      crashes: yield* crew.crashes
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

const producing = (book: Book, open: Ref.Ref<number>) =>
  Effect.flatMap(Ref.get(open), (jobs) => (jobs > backlog ? Effect.void : produce(book)))

const note = (faults: Ref.Ref<{ [Name in Fault]?: number }>, fault: Fault) =>
  Ref.update(faults, (all) => ({ ...all, [fault]: (all[fault] ?? 0) + 1 }))

/** Those of the choices that are wanted. */
const wanted = <A extends Fault>(options: Options, choices: ReadonlyArray<A>): ReadonlyArray<A> =>
  choices.filter((fault) => options.only === undefined || options.only.includes(fault))

const memberFault = (
  options: Options,
  server: Server.Server,
  member: Crew.Member,
  faults: Ref.Ref<{ [Name in Fault]?: number }>
) =>
  Effect.gen(function* () {
    const [first, ...others] = wanted(options, memberFaults)
    if (first === undefined) return
    const fault = yield* Rolls.pick([first, ...others])
    yield* note(faults, fault)
    yield* toMember(fault, server, member)
  })

const serverFault = (options: Options, server: Server.Server, faults: Ref.Ref<{ [Name in Fault]?: number }>) =>
  Effect.gen(function* () {
    const [first, ...others] = wanted(options, serverFaults)
    if (first === undefined) return
    const fault = yield* Rolls.pick([first, ...others])
    yield* note(faults, fault)
    yield* toServer(fault, server)
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

/** Puts what callers were told beside the other records. */
const keep = (server: Server.Server, book: Book): Effect.Effect<void> =>
  Effect.forEach(
    chunksOf(book.answers, 500),
    (chunk) =>
      server.query(
        `INSERT INTO audit_answers (act, answer, ref, job_id) VALUES ${chunk
          .map(({ act, answer, jobId, ref }) => `('${act}', '${answer}', ${ref ?? "NULL"}, ${jobId ?? "NULL"})`)
          .join(", ")}`
      ),
    { discard: true }
  )

const chunksOf = <A>(items: ReadonlyArray<A>, size: number): ReadonlyArray<ReadonlyArray<A>> =>
  Array.from({ length: Math.ceil(items.length / size) }, (_, index) => items.slice(index * size, (index + 1) * size))
