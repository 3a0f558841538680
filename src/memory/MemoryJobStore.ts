/**
 * The whole contract of `JobStore` in memory, for tests and for programs without a database: the same verbs, the same
 * fences and the same answers as in MySQL, by the `Clock` of the calling fiber, so that `TestClock` moves its time.
 *
 * Two things it can not do. Nothing outlives the layer. And transactions are not isolated: what is written in one is seen
 * at once, and undone where it does not commit.
 */
import { Context, DateTime, Deferred, Duration, Effect, Either, Exit, HashMap, Layer, Option, Ref } from "effect"
import { LeaseLost } from "../JobFailure.js"
import type { JobId } from "../JobRecord.js"
import { JobStore } from "../JobStore.js"
import type { Lease, SettleError } from "../Lease.js"
import { AlreadySettled, InTransaction, NotInTransaction, OutcomeUnknown, StoreUnavailable } from "../QueueError.js"
import * as Acts from "./Acts.js"
import * as Table from "./Table.js"
import * as Transactions from "./Transactions.js"
import * as Verbs from "./Verbs.js"

type Service = typeof JobStore.Service

/** How long a verb waits for a row that a `completeWith` has locked. */
const lockWait = Duration.seconds(3)

/** What is behind the memory store: for tools that test programs, which may look and do what no program may. */
export class MemoryTable extends Context.Tag("leasehold/memory/MemoryTable")<
  MemoryTable,
  {
    readonly read: Effect.Effect<Table.Table>
    /** One transaction, past all fences. */
    readonly change: <A>(transact: (table: Table.Table, now: DateTime.Utc) => Verbs.Change<A>) => Effect.Effect<A>
    /** What a database does when the process of its callers dies: open transactions are undone, their locks are gone. */
    readonly dropConnections: Effect.Effect<void>
  }
>() {}

const refuseTransaction = (verb: string): Effect.Effect<void, InTransaction> =>
  Effect.flatMap(Transactions.isOpen, (open) => (open ? Effect.fail(new InTransaction({ verb })) : Effect.void))

const make = Effect.map(Ref.make(Table.empty), (ref) => {
  const transactions = new Transactions.Transactions()
  /** One transaction. */
  const change = <A>(transact: (table: Table.Table, now: DateTime.Utc) => Verbs.Change<A>): Effect.Effect<A> =>
    Effect.flatMap(DateTime.now, (now) => Ref.modify(ref, (table) => transact(table, now)))

  const read = <A>(look: (table: Table.Table) => A): Effect.Effect<A> => Effect.map(Ref.get(ref), look)

  /** One transaction that waits for a lock on the row before. */
  const changeUnlocked = <A>(
    verb: string,
    id: JobId,
    transact: (table: Table.Table, now: DateTime.Utc) => Verbs.Change<A>
  ): Effect.Effect<A, StoreUnavailable> => {
    const attempt = change((table, now): Verbs.Change<Either.Either<A, Deferred.Deferred<void>>> => {
      const lock = HashMap.get(table.locks, id)
      if (Option.isSome(lock)) return [Either.left(lock.value), table]
      const [answer, changed] = transact(table, now)
      return [Either.right(answer), changed]
    })
    const tryAgainAfter = (lock: Deferred.Deferred<void>): Effect.Effect<A, StoreUnavailable> =>
      Deferred.await(lock).pipe(
        // Only the wait: a lock that was taken must come to whoever gives it back.
        Effect.interruptible,
        Effect.timeoutFail({
          duration: lockWait,
          onTimeout: () => new StoreUnavailable({ verb, reason: "lock_wait", code: "the row is locked" })
        }),
        Effect.zipRight(changeUnlocked(verb, id, transact))
      )
    return Effect.flatMap(attempt, Either.match({ onLeft: tryAgainAfter, onRight: Effect.succeed }))
  }

  const lockRow = (lease: Lease): Effect.Effect<Deferred.Deferred<void>, SettleError> =>
    Effect.flatMap(Deferred.make<void>(), (lock) =>
      Effect.flatten(
        changeUnlocked("completeWith", lease.jobId, (table) => {
          const locked = Either.map(checkFence(table, lease), () => lock)
          return [
            locked,
            Either.isRight(locked) ? { ...table, locks: HashMap.set(table.locks, lease.jobId, lock) } : table
          ]
        })
      )
    )

  const unlockRow = (
    lease: Lease,
    lock: Deferred.Deferred<void>,
    output: Option.Option<string | null>,
    commit: () => void
  ) =>
    Effect.zipRight(
      change((table, now): Verbs.Change<unknown> => {
        commit()
        const unlocked = { ...table, locks: HashMap.remove(table.locks, lease.jobId) }
        // The lock kept everybody else away: the fence that held before the effect ran holds still.
        return Option.match(output, {
          onNone: () => [undefined, unlocked],
          onSome: (text) => Verbs.settle(unlocked, [[lease, { _tag: "Complete", output: text }]], now)
        })
      }),
      Deferred.succeed(lock, undefined)
    )

  /** A change that is undone with the transaction which the caller is in: what undoes it is remembered in the same step. */
  const joined = <A>(
    transact: (table: Table.Table, now: DateTime.Utc) => Verbs.Change<A>,
    undo: (answer: A, before: Table.Table) => (table: Table.Table) => Table.Table
  ): Effect.Effect<(table: Table.Table, now: DateTime.Utc) => Verbs.Change<A>> =>
    Effect.map(Transactions.undoing, (onRollback) => (before, now) => {
      const [answer, after] = transact(before, now)
      const undone = undo(answer, before)
      if (after !== before) onRollback(change((table) => [undefined, undone(table)]))
      return [answer, after]
    })

  /** As the job was before. */
  const restore = (id: JobId) => (_: unknown, before: Table.Table) => (table: Table.Table) =>
    Table.update(table, Option.toArray(Table.find(before, id)))

  const store: Service = {
    enqueue: (jobs) =>
      joined(
        (table, now) => Verbs.enqueue(table, jobs, now),
        (enqueued) => (table) =>
          Table.removeAll(
            table,
            Either.getOrElse(enqueued, () => []).flatMap((job) => (job.created ? [job.id] : []))
          )
      ).pipe(Effect.flatMap(change), Effect.flatten),
    requireTransaction: (verb) =>
      Effect.flatMap(Transactions.isOpen, (open) => (open ? Effect.void : Effect.fail(new NotInTransaction({ verb })))),
    refuseTransaction,
    detached: Transactions.detached,
    transaction: (effect) =>
      Effect.zipRight(
        refuseTransaction("withTransaction"),
        transactions.run(effect, (_, commit) => Effect.sync(commit))
      ),
    claim: (request) => change((table, now) => Verbs.claim(table, request, now)),
    renew: (leases, duration) => change((table, now) => Verbs.renew(table, leases, duration, now)),
    settle: (settlements) => change((table, now) => Verbs.settle(table, settlements, now)),
    completeWith: (lease, effect) =>
      Effect.uninterruptibleMask((restore) =>
        refuseTransaction("completeWith").pipe(
          Effect.zipRight(lockRow(lease)),
          Effect.flatMap((lock) =>
            transactions.run(restore(effect), (exit, commit) =>
              unlockRow(lease, lock, Exit.isSuccess(exit) ? Option.some(exit.value[0]) : Option.none(), commit)
            )
          ),
          Effect.map(([, value]) => value)
        )
      ),
    get: (id) => read((table) => Table.find(table, id)),
    find: (scope, key) =>
      read((table) => Option.flatMap(HashMap.get(table.keys, Table.keyOf(scope, key)), (id) => Table.find(table, id))),
    list: (filter, after, limit) =>
      read((table) =>
        Table.above(table, after)
          .map(({ record }) => record)
          .filter(Verbs.matches(filter))
          .slice(0, limit)
      ),
    counts: read(Table.counts),
    cancel: (id) =>
      joined((table, now) => Verbs.cancel(table, id, now), restore(id)).pipe(
        Effect.flatMap((transact) => changeUnlocked("cancel", id, transact)),
        Effect.flatten
      ),
    retry: (id) =>
      joined((table, now) => Verbs.retry(table, id, now), restore(id)).pipe(
        Effect.flatMap((transact) => changeUnlocked("retry", id, transact)),
        Effect.flatten
      ),
    retryAll: (filter, after, limit) => change((table, now) => Verbs.retryAll(table, filter, after, limit, now)),
    setPaused: (queue, paused) => change((table) => Verbs.setPaused(table, queue, paused)),
    paused: read((table) => Array.from(table.paused).sort()),
    reap: (after, limit) => change((table, now) => Verbs.reap(table, after, limit, now)),
    clean: (retention, after, limit) => change((table, now) => Verbs.clean(table, retention, after, limit, now)),
    recordRefusals: (refusals) => change((table, now) => Verbs.recordRefusals(table, refusals, now)),
    refusals: (id) => read((table) => Option.getOrElse(HashMap.get(table.refusals, id), () => []))
  }
  const table: MemoryTable["Type"] = {
    read: Ref.get(ref),
    change,
    dropConnections: Effect.zipRight(
      transactions.rollBackAll,
      Effect.flatMap(
        change((before): Verbs.Change<Table.Table["locks"]> => [before.locks, { ...before, locks: HashMap.empty() }]),
        (locks) => Effect.forEach(HashMap.values(locks), (lock) => Deferred.succeed(lock, undefined), { discard: true })
      )
    )
  }
  return Context.make(JobStore, store).pipe(Context.add(MemoryTable, table))
})

/** Whether a lease may complete its job now. One that is to be canceled can not be completed (ruling 1). */
const checkFence = (
  table: Table.Table,
  lease: Lease
): Either.Either<void, LeaseLost | AlreadySettled | OutcomeUnknown> => {
  const { jobId, token } = lease
  const lost = (reason: LeaseLost["reason"]) =>
    Either.left(new LeaseLost({ jobId, token, during: "completeWith", reason }))
  const unknown = Either.left(new OutcomeUnknown({ verb: "completeWith", jobId }))
  const record = Table.find(table, jobId)
  if (Option.isNone(record)) return unknown
  if (Acts.holds(record.value, lease)) return record.value.cancelRequested ? lost("canceled") : Either.void
  const verdict = Acts.readBack(record.value, lease, { _tag: "Complete", output: null })
  switch (verdict._tag) {
    case "Lost":
      return lost(verdict.reason)
    case "Unknown":
      return unknown
    default:
      // Also where the ledger says `completed`: the effect belongs to its settlement, and this one would not run.
      return Either.left(new AlreadySettled({ jobId, token }))
  }
}

/** A store of its own for each build of the layer. */
export const layer: Layer.Layer<JobStore | MemoryTable> = Layer.effectContext(make)
