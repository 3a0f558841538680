/**
 * The enqueue: look a key up first, insert what is missing, and look again where somebody was faster (law 7). The statements
 * are in `statements/enqueue`.
 */
import { type Duration, Effect, Option } from "effect"
import { JobId } from "../JobRecord.js"
import type { Enqueued, NewJob } from "../JobStore.js"
import { IdempotencyConflict, type StoreError, type TransactionAborted } from "../QueueError.js"
import type { Connections } from "./Connections.js"
import * as Inserting from "./Inserting.js"
import { breaksSession, type MysqlFault } from "./MysqlFault.js"
import type { Session } from "./Session.js"
import * as SharedInsert from "./SharedInsert.js"
import * as Statements from "./statements/enqueue.js"
import type { Tables } from "./Tables.js"
import * as Transaction from "./Transaction.js"

/** The job that holds a key. */
interface Holder {
  readonly id: JobId
  readonly fingerprint: string
}

type Holders = ReadonlyMap<string, Holder>

/** How often an insert is tried when its key comes and goes under it. */
const tries = 3

/**
 * `packet`: bytes that one packet may have, the server's `max_allowed_packet`. `committed` hears of jobs that are durable on
 * return, and when they were asked for, by `performance.now()`.
 */
export const make = (
  tables: Tables,
  connections: Connections,
  timeout: Duration.Duration,
  packet: number,
  committed: (jobs: ReadonlyArray<NewJob>, enqueued: ReadonlyArray<Enqueued>, since: number) => void
) => {
  // One INSERT is its own transaction: a lone job without a key is one statement and one round trip.
  const together = SharedInsert.make((jobs) =>
    Transaction.run(connections, "enqueue", "unknown", (session) => Inserting.insertTogether(tables, session, jobs))
  )
  return (
    jobs: ReadonlyArray<NewJob>
  ): Effect.Effect<ReadonlyArray<Enqueued>, IdempotencyConflict | TransactionAborted | StoreError> => {
    const [first] = jobs
    if (first === undefined) return Effect.succeed([])
    const keyed = jobs.some(({ idempotency }) => Option.isSome(idempotency))
    return Effect.flatMap(Transaction.isOpen, (inCaller) => {
      const since = performance.now()
      const simple = !inCaller && !keyed && jobs.length === 1 && Option.isNone(first.due)
      if (simple && SharedInsert.isShareable(first)) {
        return Effect.map(together(first), (enqueued) => {
          committed(jobs, [enqueued], since)
          return [enqueued]
        })
      }
      const secondLook =
        inCaller && keyed ? lookElsewhere(tables, connections, jobs) : Effect.succeed<Holders>(new Map())
      return Transaction.joined(connections, "enqueue", { whenLost: keyed ? "again" : "unknown", timeout }, (session) =>
        enqueue({ tables, session, packet, own: !inCaller, progress: { begun: false } }, jobs, secondLook, inCaller)
      ).pipe(
        Effect.tap((enqueued) =>
          Effect.sync(() => {
            if (!inCaller) committed(jobs, enqueued, since)
          })
        )
      )
    })
  }
}

/** Adds jobs in a transaction that is open on the session, which belongs to a client of another library. */
export const inTransaction = (
  tables: Tables,
  session: Session,
  packet: number,
  jobs: ReadonlyArray<NewJob>,
  elsewhere: Option.Option<Session>
): Effect.Effect<ReadonlyArray<Enqueued>, IdempotencyConflict | MysqlFault> =>
  enqueue(
    { tables, session, packet, own: false, progress: { begun: false } },
    jobs,
    lookOn(tables, elsewhere, keysOf(jobs)),
    true
  )

/**
 * In the caller's transaction the jobs come in as a whole or not at all by a savepoint, since the caller may go on after a
 * failure (ruling 22). After a deadlock or a lock wait the whole transaction is given up, and nothing is to be saved.
 */
const enqueue = (
  target: Inserting.Target,
  jobs: ReadonlyArray<NewJob>,
  secondLook: Effect.Effect<Holders>,
  inCaller: boolean
): Effect.Effect<ReadonlyArray<Enqueued>, IdempotencyConflict | MysqlFault> => {
  const { session } = target
  const whole = enqueueKeyed(target, jobs, secondLook)
  if (!inCaller || jobs.length === 1) return whole
  if (session.commands === false) {
    // There is no savepoint to go back to: what is half done must not commit.
    return Effect.tapError(whole, () => Effect.when(Transaction.refuseWrites(session), () => target.progress.begun))
  }
  return Effect.gen(function* () {
    yield* session.command(`SAVEPOINT ${savepoint}`)
    const enqueued = yield* Effect.tapError(whole, (error) =>
      Effect.unless(
        session.command(`ROLLBACK TO SAVEPOINT ${savepoint}`),
        () =>
          error._tag === "MysqlFault"
          && (error.kind === "deadlock" || error.kind === "lock_wait" || breaksSession(error.kind))
      )
    )
    yield* session.command(`RELEASE SAVEPOINT ${savepoint}`)
    return enqueued
  })
}

// A name of its own: savepoints of the same name replace each other, and those of @effect/sql are numbered (T3).
const savepoint = "leasehold_enqueue"

const enqueueKeyed = (
  target: Inserting.Target,
  jobs: ReadonlyArray<NewJob>,
  secondLook: Effect.Effect<Holders>
): Effect.Effect<ReadonlyArray<Enqueued>, IdempotencyConflict | MysqlFault> =>
  Effect.gen(function* () {
    const keys = keysOf(jobs)
    if (keys.length === 0) {
      const inserted: Array<Enqueued> = []
      yield* Inserting.insertAll(target, jobs, inserted)
      return inserted
    }
    const seen = yield* findKeys(target.tables, target.session, keys, "")
    // A plain INSERT that ends in 1062 leaves a lock under REPEATABLE READ which blocks every other enqueue, so a caller's
    // old snapshot is not trusted: a second connection looks at what is committed now (ruling 4).
    const holders = keys.every((key) => seen.has(Statements.keyName(key)))
      ? seen
      : new Map([...(yield* secondLook), ...seen])
    return yield* insertMissing(target, jobs, holders, tries, new Map())
  })

const keysOf = (jobs: ReadonlyArray<NewJob>): ReadonlyArray<Statements.Key> =>
  jobs.flatMap(({ idempotency }) => Option.toArray(idempotency))

const lookElsewhere = (tables: Tables, connections: Connections, jobs: ReadonlyArray<NewJob>): Effect.Effect<Holders> =>
  // The look saves a lock, no more: without it the INSERT decides.
  unlessFound(connections.use((session) => findKeys(tables, session, keysOf(jobs), ""), Statements.secondLookTimeout))

const lookOn = (
  tables: Tables,
  elsewhere: Option.Option<Session>,
  keys: ReadonlyArray<Statements.Key>
): Effect.Effect<Holders> =>
  Option.match(elsewhere, {
    onNone: () => Effect.succeed<Holders>(new Map()),
    onSome: (session) => unlessFound(findKeys(tables, session, keys, ""))
  })

const unlessFound = (look: Effect.Effect<Holders, MysqlFault>): Effect.Effect<Holders> =>
  Effect.catchAll(look, () => Effect.succeed<Holders>(new Map()))

const findKeys = (
  tables: Tables,
  session: Session,
  keys: ReadonlyArray<Statements.Key>,
  mode: "" | "FOR SHARE"
): Effect.Effect<Holders, MysqlFault> =>
  Effect.map(
    Effect.forEach(padded(keys, Statements.keySizes), ([size, part]) =>
      session.execute(Statements.findKeys(tables, size, mode), Statements.keyValues(part, size))
    ),
    (answers) =>
      new Map(
        answers
          .flatMap(({ rows }) => rows)
          .map((row) => [
            `${row["scope"]}:${row["idempotency_key"]}`,
            { id: JobId.make(String(row["id"])), fingerprint: String(row["request_hash"]) }
          ])
      )
  )

/**
 * Inserts the jobs whose keys nobody holds, in the order of the keys; answers all, in the order given. Where somebody takes a key
 * meanwhile, that undoes one statement only: what the ones before it have inserted is `created`, and stays.
 */
const insertMissing = (
  target: Inserting.Target,
  jobs: ReadonlyArray<NewJob>,
  holders: Holders,
  triesLeft: number,
  created: Map<number, Enqueued>
): Effect.Effect<ReadonlyArray<Enqueued>, IdempotencyConflict | MysqlFault> =>
  Effect.gen(function* () {
    const first = new Map<string, { readonly job: NewJob; readonly index: number }>()
    const missing: Array<{ readonly job: NewJob; readonly index: number; readonly name: string }> = []
    for (const [index, job] of jobs.entries()) {
      const name = nameOf(job)
      if (created.has(index) || (name !== "" && (holders.has(name) || first.has(name)))) continue
      if (name !== "") first.set(name, { job, index })
      missing.push({ job, index, name })
    }
    // Two transactions that insert the same keys in opposite orders would wait for each other; jobs without one keep theirs.
    missing.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.index - b.index))
    yield* refuseConflicts(jobs, holders, first)
    const inserted: Array<Enqueued> = []
    const isTaken = yield* Inserting.insertAll(
      target,
      missing.map(({ job }) => job),
      inserted
    ).pipe(
      Effect.as(false),
      Effect.catchIf(
        (fault) => fault.kind === "duplicate" && triesLeft > 0,
        () => Effect.succeed(true)
      )
    )
    for (const [position, { index }] of missing.entries()) {
      const enqueued = inserted[position]
      if (enqueued !== undefined) created.set(index, enqueued)
    }
    if (isTaken) {
      const now = yield* findKeys(target.tables, target.session, keysOf(jobs), "FOR SHARE")
      return yield* insertMissing(target, jobs, now, triesLeft - 1, created)
    }
    const firstIds = new Map([...first].map(([name, { index }]) => [name, created.get(index)?.id]))
    return jobs.map((job, index): Enqueued => {
      const name = nameOf(job)
      return created.get(index) ?? { id: holders.get(name)?.id ?? firstIds.get(name) ?? unanswered(), created: false }
    })
  })

const unanswered = (): never => {
  throw new Error("An enqueued job has neither been inserted nor found")
}

const nameOf = (job: NewJob): string => Option.match(job.idempotency, { onNone: () => "", onSome: Statements.keyName })

/** Every keyed job asks for the same as the holder of its key, or as the first of its key in this very call. */
const refuseConflicts = (
  jobs: ReadonlyArray<NewJob>,
  holders: Holders,
  first: ReadonlyMap<string, { readonly job: NewJob }>
): Effect.Effect<void, IdempotencyConflict> =>
  Effect.forEach(
    jobs,
    (job) => {
      if (Option.isNone(job.idempotency)) return Effect.void
      const name = Statements.keyName(job.idempotency.value)
      const holder = holders.get(name)
      const held =
        holder?.fingerprint ?? Option.getOrUndefined(first.get(name)?.job.idempotency ?? Option.none())?.fingerprint
      return held === undefined || held === job.idempotency.value.fingerprint
        ? Effect.void
        : Effect.fail(
            new IdempotencyConflict({
              jobId: Option.map(Option.fromNullable(holder), ({ id }) => id),
              jobType: job.type
            })
          )
    },
    { discard: true }
  )

/** Cuts a list into parts of at most the largest size; each is given the smallest size that holds it. */
const padded = <A>(
  items: ReadonlyArray<A>,
  sizes: ReadonlyArray<number>
): ReadonlyArray<readonly [size: number, part: ReadonlyArray<A>]> => {
  const largest = Math.max(...sizes)
  return Array.from({ length: Math.ceil(items.length / largest) }, (_, index) => {
    const part = items.slice(index * largest, (index + 1) * largest)
    return [Math.min(...sizes.filter((size) => size >= part.length)), part] as const
  })
}
