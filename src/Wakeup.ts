/**
 * Signals within one process that a queue has got work, so that a worker need not wait for its next poll.
 *
 * They are hints: a poll finds every job without them. Of what other processes commit only a tailer of the binary log tells.
 */
import { Context, type Duration, Effect, FiberSet, Layer, Queue as Mailbox, type Scope } from "effect"
import * as Timer from "./Timer.js"

/** The ear of one claim loop. */
export interface Signal {
  /** Returns as soon as there was a signal since the last `clear` or `wait`. */
  readonly wait: Effect.Effect<void>
  /** Forgets what came so far. Called before a claim is sent, which sees all that was signalled before. */
  readonly clear: Effect.Effect<void>
  /** Ends the wait of its owner as a signal would. */
  readonly wake: Effect.Effect<void>
}

/** The signals of one process. */
export class Wakeup extends Context.Tag("leasehold/Wakeup")<
  Wakeup,
  {
    /** A job of this queue is due and visible to others now. */
    readonly notify: (queue: string) => Effect.Effect<void>
    /**
     * A job of this queue was written in a transaction whose end nobody will report: signals after 10, 20, 40, … 640
     * milliseconds. So a worker hears of it late, never early (ruling 14); after that its poll finds it.
     */
    readonly notifyLater: (queue: string) => Effect.Effect<void>
    /**
     * Some process has committed jobs of these queues, or of any. Signals each once within `spread`, at random, so that the
     * workers of many processes do not all ask at the same instant, and once more 100 ms later: the binary log may show a
     * transaction a moment before others can read it. What comes within that time is one signal, and so is what comes within
     * 20 ms after one.
     */
    readonly notifyCommitted: (
      queues: Iterable<string> | "every queue",
      spread: Duration.Duration
    ) => Effect.Effect<void>
    /** An ear for the signals of a queue, until the scope closes. */
    readonly subscribe: (queue: string) => Effect.Effect<Signal, never, Scope.Scope>
  }
>() {}

const firstDelay = 10
const lastDelay = 640

/** Milliseconds from a signal of `notifyCommitted` to the next one of the same queue at the earliest, and to its repetition. */
const leastGap = 20
const repetition = 100

/** Signals for as long as the scope is open. */
export const make: Effect.Effect<Wakeup["Type"], never, Scope.Scope> = Effect.gen(function* () {
  const ears = new Map<string, Set<Mailbox.Queue<void>>>()
  const backOffs = new Map<string, BackOff>()
  const committed = new Map<string, Effect.Latch>()
  const fibers = yield* FiberSet.make<void>()

  const notify = (queue: string) =>
    Effect.sync(() => {
      // Where one waits already, that is enough.
      for (const ear of ears.get(queue) ?? []) Mailbox.unsafeOffer(ear, void 0)
    })

  const backOff = (queue: string, state: BackOff) =>
    Effect.gen(function* () {
      while (true) {
        const slept = state.delay
        state.delay = slept * 2
        // Only the first sleep may not be cut short: else a steady stream of transactions would signal at its own rate.
        yield* slept === firstDelay ? Effect.sleep(slept) : Effect.raceFirst(Effect.sleep(slept), state.restart.await)
        yield* state.restart.close
        if (slept === firstDelay || state.delay !== firstDelay) yield* notify(queue)
        if (state.delay > lastDelay) {
          backOffs.delete(queue)
          return
        }
      }
    })

  const gather = (queue: string, more: Effect.Latch, spread: Duration.Duration) =>
    Effect.gen(function* () {
      do {
        yield* Timer.sleepSome(spread, 0)
        yield* more.close
        yield* notify(queue)
        yield* Effect.sleep(leastGap)
      } while (
        yield* Effect.raceFirst(Effect.as(more.await, true), Effect.as(Effect.sleep(repetition - leastGap), false))
      )
      // Before the signal: what comes from now on begins anew, and what came just before is told by this one.
      committed.delete(queue)
      yield* notify(queue)
    })

  return {
    notify,
    notifyCommitted: (queues, spread) =>
      Effect.suspend(() =>
        Effect.forEach(
          queues === "every queue" ? Array.from(ears.keys()) : queues,
          (queue) => {
            if ((ears.get(queue)?.size ?? 0) === 0) return Effect.void
            const gathering = committed.get(queue)
            if (gathering !== undefined) return gathering.open
            const more = Effect.unsafeMakeLatch(false)
            committed.set(queue, more)
            return FiberSet.run(fibers, Effect.interruptible(gather(queue, more, spread)))
          },
          { discard: true }
        )
      ),
    notifyLater: (queue) =>
      Effect.suspend(() => {
        const running = backOffs.get(queue)
        if (running !== undefined) {
          running.delay = firstDelay
          return running.restart.open
        }
        const state = { delay: firstDelay, restart: Effect.unsafeMakeLatch(false) }
        backOffs.set(queue, state)
        return FiberSet.run(fibers, Effect.interruptible(backOff(queue, state)))
      }),
    subscribe: (queue) =>
      Effect.gen(function* () {
        // One place, the newest signal wins: what came between a claim and the wait after it is kept, once.
        const ear = yield* Effect.acquireRelease(Mailbox.sliding<void>(1), Mailbox.shutdown)
        yield* Effect.acquireRelease(
          Effect.sync(() => ears.set(queue, (ears.get(queue) ?? new Set()).add(ear))),
          () => Effect.sync(() => ears.get(queue)?.delete(ear))
        )
        return {
          wait: Mailbox.take(ear),
          clear: Effect.asVoid(Mailbox.takeAll(ear)),
          wake: Effect.asVoid(Mailbox.offer(ear, undefined))
        }
      })
  }
})

interface BackOff {
  delay: number
  readonly restart: Effect.Latch
}

/** The signals of a process; `MysqlQueue.layer` contains them. */
export const layer: Layer.Layer<Wakeup> = Layer.scoped(Wakeup, make)
