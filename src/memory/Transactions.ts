/**
 * Transactions of the memory store. Nothing isolates them: what is written in one is seen at once. But one that does not commit
 * undoes what was written in it, newest first, and so does the end of the process that had it open.
 */
import { Context, Effect, Exit, Option } from "effect"

interface Transaction {
  readonly undos: Array<Effect.Effect<void>>
}

/** The transaction that the caller is in. */
class Current extends Context.Reference<Current>()("leasehold/memory/Transaction", {
  defaultValue: (): Option.Option<Transaction> => Option.none()
}) {}

/** Whether the caller is inside of a transaction. */
export const isOpen: Effect.Effect<boolean> = Effect.map(Current, Option.isSome)

const within =
  (transaction: Option.Option<Transaction>) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.mapInputContext(effect, (context: Context.Context<R>) => Context.add(context, Current, transaction))

/** Runs an effect outside of any transaction. */
export const detached = within(Option.none())

/** Remembers how to undo what is written, where the caller is in a transaction; else nothing is remembered. */
export const undoing: Effect.Effect<(undo: Effect.Effect<void>) => void> = Effect.map(
  Current,
  Option.match({
    onNone: () => () => undefined,
    onSome:
      ({ undos }) =>
      (undo) =>
        void undos.push(undo)
  })
)

/** All transactions of one store. */
export class Transactions {
  private readonly open = new Set<Transaction>()

  /**
   * Runs an effect in a transaction. `end` is its last step: it is told whether the effect succeeded, and gets the commit, which
   * it runs in the same step as what belongs to it, so that no crash can come between.
   */
  run<A, E, R, R2>(
    effect: Effect.Effect<A, E, R>,
    end: (exit: Exit.Exit<A, E>, commit: () => void) => Effect.Effect<unknown, never, R2>
  ): Effect.Effect<A, E, R | R2> {
    return Effect.acquireUseRelease(
      Effect.sync(() => {
        const transaction: Transaction = { undos: [] }
        this.open.add(transaction)
        return transaction
      }),
      (transaction) => within(Option.some(transaction))(effect),
      (transaction, exit) => {
        const close = () => void this.open.delete(transaction)
        const ended = end(exit, close)
        return Exit.isSuccess(exit)
          ? ended
          : Effect.zipRight(rollBack(transaction), Effect.zipRight(Effect.sync(close), ended))
      }
    )
  }

  /** Undoes what is open, as a database does when the connections of a dead process end. */
  readonly rollBackAll: Effect.Effect<void> = Effect.suspend(() => {
    const abandoned = Array.from(this.open)
    this.open.clear()
    return Effect.forEach(abandoned, rollBack, { discard: true })
  })
}

const rollBack = ({ undos }: Transaction): Effect.Effect<void> =>
  Effect.suspend(() => Effect.forEach(undos.splice(0).reverse(), (undo) => undo, { discard: true }))
