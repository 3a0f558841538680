/**
 * The whole contract of `JobStore` in memory, for tests and for programs without a database: the same verbs, the same
 * fences and the same answers as in MySQL, by the `Clock` of the calling fiber, so that `TestClock` moves its time.
 *
 * Two things it can not do. Nothing outlives the layer. And no transaction can be rolled back: what the effect of a failed `completeWith` or `transaction` wrote stays.
 */
import { Context, DateTime, Deferred, Duration, Effect, Either, Exit, HashMap, Layer, Option, Ref } from "effect"
import { LeaseLost } from "../JobFailure.js"
import type { JobId } from "../JobRecord.js"
import { JobStore } from "../JobStore.js"
import type { Lease, SettleError } from "../Lease.js"
import { AlreadySettled, InTransaction, NotInTransaction, OutcomeUnknown, StoreUnavailable } from "../QueueError.js"
import * as Acts from "./Acts.js"
import * as Table from "./Table.js"
import * as Verbs from "./Verbs.js"

type Service = typeof JobStore.Service

/** How long a verb waits for a row that a `completeWith` has locked. */
const lockWait = Duration.seconds(3)

/** Whether the caller is inside of a `transaction`. */
class Open extends Context.Reference<Open>()("leasehold/memory/Open", { defaultValue: () => false }) {}

const setOpen =
  (open: boolean) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.mapInputContext(effect, (context: Context.Context<R>) => Context.add(context, Open, open))

const refuseTransaction = (verb: string): Effect.Effect<void, InTransaction> =>
  Effect.flatMap(Open, (open) => (open ? Effect.fail(new InTransaction({ verb })) : Effect.void))

const make: Effect.Effect<Service> = Effect.map(Ref.make(Table.empty), (ref) => {
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

  const unlockRow = (lease: Lease, lock: Deferred.Deferred<void>, output: Option.Option<string | null>) =>
    Effect.zipRight(
      change((table, now): Verbs.Change<unknown> => {
        const unlocked = { ...table, locks: HashMap.remove(table.locks, lease.jobId) }
        // The lock kept everybody else away: the fence that held before the effect ran holds still.
        return Option.match(output, {
          onNone: () => [undefined, unlocked],
          onSome: (text) => Verbs.settle(unlocked, [[lease, { _tag: "Complete", output: text }]], now)
        })
      }),
      Deferred.succeed(lock, undefined)
    )

  return {
    enqueue: (jobs) => Effect.flatten(change((table, now) => Verbs.enqueue(table, jobs, now))),
    requireTransaction: (verb) =>
      Effect.flatMap(Open, (open) => (open ? Effect.void : Effect.fail(new NotInTransaction({ verb })))),
    refuseTransaction,
    detached: setOpen(false),
    transaction: (effect) => Effect.zipRight(refuseTransaction("withTransaction"), setOpen(true)(effect)),
    claim: (request) => change((table, now) => Verbs.claim(table, request, now)),
    renew: (leases, duration) => change((table, now) => Verbs.renew(table, leases, duration, now)),
    settle: (settlements) => change((table, now) => Verbs.settle(table, settlements, now)),
    completeWith: (lease, effect) =>
      Effect.acquireUseRelease(
        lockRow(lease),
        () => effect,
        (lock, exit) => unlockRow(lease, lock, Exit.isSuccess(exit) ? Option.some(exit.value[0]) : Option.none())
      ).pipe(Effect.map(([, value]) => value)),
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
    cancel: (id) => Effect.flatten(changeUnlocked("cancel", id, (table, now) => Verbs.cancel(table, id, now))),
    retry: (id) => Effect.flatten(changeUnlocked("retry", id, (table, now) => Verbs.retry(table, id, now))),
    retryAll: (filter, after, limit) => change((table, now) => Verbs.retryAll(table, filter, after, limit, now)),
    setPaused: (queue, paused) => change((table) => Verbs.setPaused(table, queue, paused)),
    paused: read((table) => Array.from(table.paused).sort()),
    reap: (after, limit) => change((table, now) => Verbs.reap(table, after, limit, now)),
    clean: (retention, after, limit) => change((table, now) => Verbs.clean(table, retention, after, limit, now)),
    recordRefusals: (refusals) => change((table, now) => Verbs.recordRefusals(table, refusals, now)),
    refusals: (id) => read((table) => Option.getOrElse(HashMap.get(table.refusals, id), () => []))
  }
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
export const layer: Layer.Layer<JobStore> = Layer.effect(JobStore, make)
