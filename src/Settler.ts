/**
 * Writes the ends of attempts, several in one statement, each behind its own fence.
 *
 * Group commit: whatever waits goes together, and a lone settlement goes at once. A settlement is tried again through
 * everything that can pass, for as long as its lease is trusted, and is never sent after (ruling 17).
 */
import { Duration, Effect, Exit, FiberId, FiberSet, Option, Scope } from "effect"
import * as Attempt from "./Attempt.js"
import * as FaultLog from "./FaultLog.js"
import { LeaseLost } from "./JobFailure.js"
import type { JobState } from "./JobRecord.js"
import type { JobStore, Settlement, SettleVerdict } from "./JobStore.js"
import * as Lease from "./Lease.js"
import type { Held, LossReason } from "./LeaseKeeper.js"
import type { Outcome } from "./Outcome.js"
import { AlreadySettled, OutcomeUnknown, type StoreError } from "./QueueError.js"
import * as RetryPolicy from "./RetryPolicy.js"
import { type Place, Roster } from "./Roster.js"
import * as Timer from "./Timer.js"
import * as TraceContext from "./TraceContext.js"

/** Why a settlement is not known to be written: all that is left is to let go of the lease. */
export type SettlementLost = LeaseLost | AlreadySettled | OutcomeUnknown

export interface Settler {
  /**
   * Writes one settlement; answers the state that it led to, durable on return.
   *
   * - `LeaseLost`: nothing was written; the refusal is remembered for `Queue.why`.
   * - `AlreadySettled`: this lease was settled before, with another outcome.
   * - `OutcomeUnknown`: the trust in the lease ended before the store could tell.
   *
   * A settlement that the database refuses twice for itself alone, with a pause between, is tried as dead with code
   * `settlement_rejected`: the work is done, so running it again would only be refused again.
   */
  readonly settle: (held: Held, settlement: Settlement, verb: string) => Effect.Effect<JobState, SettlementLost>
  /** As `settle`, and calls `answer` once with what it comes to. An interruption: the settler is gone. */
  readonly send: (held: Held, settlement: Settlement, verb: string, answer: Answer) => void
  /** The faults that the settlements which wait have met since one was written. */
  readonly faults: () => FaultLog.Row | undefined
}

/** Who waits for a settlement. Called in a fiber of the settler, so it is short and never throws. */
export type Answer = (exit: Exit.Exit<JobState, SettlementLost>) => void

/** Settlements that one call carries, and the text in them. */
const batchSize = 100
const batchLength = 1024 * 1024
/** Outputs longer than this travel alone: in a batch they would hold up the others. */
const aloneLength = 64 * 1024
/** A call that hangs must not hold up all that come after it. */
const mostCalls = 2
/**
 * Settlements gather while a call is under way and travel together when it has ended, since each call costs a round trip and a
 * flush to disk whatever its size. They wait no longer than this for it.
 */
const longestGathering = Duration.millis(20)

class Item {
  tries = 0
  rejections = 0
  /** An answer was lost and not found again, so whether it is written is not known. */
  unknown = false
  private readonly place: Place<Item>

  constructor(
    readonly held: Held,
    public settlement: Settlement,
    readonly verb: string,
    private readonly waiter: Answer,
    private readonly open: Roster<Item>
  ) {
    this.place = open.add(this)
  }

  /** Answers whoever waits. At most once. */
  answer(exit: Exit.Exit<JobState, SettlementLost>): void {
    if (this.open.remove(this.place)) this.waiter(exit)
  }
}

/** A settler for as long as the scope is open. */
export const make = (store: JobStore["Type"]): Effect.Effect<Settler, never, Scope.Scope> =>
  Effect.gen(function* () {
    const open = new Roster<Item>()
    // Last of all: nobody waits for a settler that is gone.
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        for (const item of open) item.answer(Exit.interrupt(FiberId.none))
      })
    )
    const calls = yield* Scope.make()
    const fibers = yield* Scope.extend(FiberSet.make<void>(), calls)
    // A call that hangs must not hold up the end of the scope.
    yield* Effect.addFinalizer(() => Effect.forkDaemon(Scope.close(calls, Exit.void)))
    const fork = yield* store.detached(Effect.interruptible(FiberSet.runtime(fibers)<never>()))
    const sender = new Sender(store, yield* TraceContext.isCollected, (effect) => void fork(effect))
    const send: Settler["send"] = (held, settlement, verb, answer) => {
      // What nobody waits for any more tells nothing about this one.
      if (open.size === 0) sender.faults.forget()
      held.conclude()
      sender.add(new Item(held, settlement, verb, answer, open))
    }
    return {
      send,
      settle: (held, settlement, verb) => Effect.async((resume) => send(held, settlement, verb, resume)),
      faults: () => (open.size === 0 ? undefined : sender.faults.current())
    }
  })

class Sender {
  readonly faults = FaultLog.make("settle")
  private readonly waiting: Array<Item> = []
  /** Calls to the store whose answers are not dealt with yet. */
  private calls = 0
  /** A fiber will send what waits: after a turn of the scheduler, or when the calls under way take too long. */
  private readonly awaited = { turn: false, delay: false }

  constructor(
    private readonly store: JobStore["Type"],
    private readonly traced: boolean,
    private readonly fork: (effect: Effect.Effect<void>) => void
  ) {}

  add(item: Item): void {
    this.waiting.push(item)
    // One turn, so that handlers which end together are written together.
    if (this.calls === 0) this.sendAllAfter("turn", Effect.yieldNow())
    else this.sendAllAfter("delay", Effect.sleep(longestGathering))
  }

  /** A delay that is left from a call which has ended holds up nothing: a turn is awaited beside it. */
  private sendAllAfter(reason: "turn" | "delay", pause: Effect.Effect<void>): void {
    if (this.awaited[reason]) return
    this.awaited[reason] = true
    this.fork(
      Effect.flatMap(pause, () => {
        this.awaited[reason] = false
        return this.sendAll
      })
    )
  }

  /** Sends what waits, batch after batch, as far as there are calls left for it. */
  private readonly sendAll: Effect.Effect<void> = Effect.suspend(() => {
    if (this.waiting.length === 0 || this.calls >= mostCalls) return Effect.void
    const [batch = [], ...others] = batches(this.waiting.splice(0, batchSize))
    for (const other of others) this.fork(this.send(other))
    // What does not fit goes beside a call that takes long.
    if (this.waiting.length > 0) this.sendAllAfter("delay", Effect.sleep(longestGathering))
    return this.send(batch)
  })

  /**
   * Sends a batch, and what waits when its answers are dealt with: the jobs that these make room for may have ended by then. A
   * mistake of the library reaches those who wait, not the other batches.
   */
  private send(batch: ReadonlyArray<Item>): Effect.Effect<void> {
    const sent = Effect.catchAllCause(this.sendTrusted(batch), (cause) =>
      Effect.sync(() => {
        for (const item of batch) item.answer(Exit.failCause(cause))
      })
    )
    return Effect.zipRight(sent, this.sendAll)
  }

  private sendTrusted(batch: ReadonlyArray<Item>): Effect.Effect<void> {
    return Effect.flatMap(Lease.now, (at) => {
      const trusted: Array<Item> = []
      const refused: Array<readonly [Item, LossReason]> = []
      for (const item of batch) {
        const reason = item.held.distrust(at)
        if (reason === undefined) trusted.push(item)
        else refused.push([item, reason])
      }
      const refuse =
        refused.length === 0
          ? Effect.void
          : Effect.forEach(refused, ([item, reason]) => this.lost(item, reason), { discard: true })
      return trusted.length === 0 ? refuse : Effect.zipRight(refuse, this.call(trusted))
    })
  }

  private call(batch: ReadonlyArray<Item>): Effect.Effect<void> {
    const settle = this.store.settle(batch.map((item) => [item.held.lease, item.settlement]))
    const settled = Effect.flatMap(this.traced ? inSpan(settle, batch.length) : settle, (verdicts) =>
      Effect.zipRight(this.faults.recovered, this.answerAll(batch, verdicts))
    )
    return Effect.catchAll(this.counted(settled), (error) => {
      // What waits does not wait for another try of these.
      this.fork(this.sendAll)
      return this.failed(batch, error)
    })
  }

  private counted<A, E>(call: Effect.Effect<A, E>): Effect.Effect<A, E> {
    return Effect.suspend(() => {
      this.calls++
      return Effect.ensuring(
        call,
        Effect.sync(() => {
          this.calls--
        })
      )
    })
  }

  private answerAll(batch: ReadonlyArray<Item>, verdicts: ReadonlyArray<SettleVerdict>): Effect.Effect<void> {
    return Effect.suspend(() => {
      const others: Array<Effect.Effect<unknown>> = []
      for (const [index, item] of batch.entries()) {
        const verdict = verdicts[index] ?? { _tag: "Unknown" }
        // Nearly always; an effect for each would cost more than the rest of its settlement.
        if (verdict._tag === "Recorded") item.answer(Exit.succeed(verdict.state))
        else others.push(this.answer(item, verdict))
      }
      return Effect.all(others, { discard: true })
    })
  }

  private answer(item: Item, verdict: Exclude<SettleVerdict, { _tag: "Recorded" }>): Effect.Effect<unknown> {
    const { jobId, token } = item.held.lease
    switch (verdict._tag) {
      case "Lost":
        return this.lost(item, verdict.reason)
      case "AlreadySettled":
        return Effect.sync(() => item.answer(Exit.fail(new AlreadySettled({ jobId, token }))))
      case "Unknown":
        return Effect.sync(() => item.answer(Exit.fail(new OutcomeUnknown({ verb: item.verb, jobId }))))
      case "Busy":
        item.tries++
        return this.sendLater(item)
    }
  }

  private failed(batch: ReadonlyArray<Item>, error: StoreError): Effect.Effect<void> {
    const [first] = batch
    if (first === undefined) return Effect.void
    if (error._tag === "StoreRejected" && batch.length > 1) {
      // One of them can not be written; alone, each speaks for itself (scenario J8's batch mates).
      return Effect.forEach(batch, (item) => this.sendTrusted([item]), { discard: true })
    }
    for (const item of batch) {
      item.tries++
      if (error._tag === "OutcomeUnknown") item.unknown = true
    }
    const next = error._tag === "StoreRejected" ? this.rejected(first) : this.sendAfter(backOff(first), batch)
    return Effect.zipRight(this.faults.report(error), next)
  }

  /** The other batches do not wait for this one. */
  private sendLater(item: Item): Effect.Effect<void> {
    return Effect.sync(() => this.fork(Effect.zipRight(backOff(item), this.send([item]))))
  }

  private sendAfter(pause: Effect.Effect<void>, batch: ReadonlyArray<Item>): Effect.Effect<void> {
    return Effect.zipRight(pause, this.sendTrusted(batch))
  }

  /**
   * A settlement that was refused for itself. A revoked right looks the same as a text that does not fit, so it is tried
   * again first, then as dead without its text, and where even that is refused, in its own words until the lease ends.
   */
  private rejected(item: Item): Effect.Effect<void> {
    item.rejections++
    const own = item.settlement
    const hasText = own._tag === "Complete" || own._tag === "RetryLater" || own._tag === "Bury"
    if (!hasText || item.rejections !== 2) {
      return this.sendLater(item)
    }
    item.settlement = {
      _tag: "Bury",
      code: "settlement_rejected",
      message: "The database refused to store the outcome"
    }
    return Effect.map(this.sendTrusted([item]), () => {
      item.settlement = own
    })
  }

  private lost(item: Item, reason: LossReason): Effect.Effect<void> {
    const { lease } = item.held
    if (item.unknown && reason === "expired") {
      return Effect.sync(() => item.answer(Exit.fail(new OutcomeUnknown({ verb: item.verb, jobId: lease.jobId }))))
    }
    const remembered = this.store
      .recordRefusals([{ lease, verb: item.verb }])
      .pipe(
        Effect.catchAll((error) =>
          Effect.logDebug(`The refusal of a late ${item.verb} was not remembered: ${error.message}`)
        )
      )
    const { jobId, token } = lease
    return Effect.sync(() => {
      item.answer(Exit.fail(new LeaseLost({ jobId, token, during: item.verb, reason })))
      this.fork(remembered)
    })
  }
}

const inSpan = <A, E>(settle: Effect.Effect<A, E>, settlements: number): Effect.Effect<A, E> =>
  Effect.withSpan(settle, "leasehold.settle", {
    attributes: { settlements },
    root: true,
    kind: "client",
    captureStackTrace: false
  })

/** 20 ms, doubled with each try up to half a second, and spread. */
const backOff = (item: Item): Effect.Effect<void> =>
  Timer.sleepSome(Duration.millis(Math.min(500, 20 * 2 ** (item.tries - 1))), 0.5)

const lengthOf = ({ settlement }: Item): number =>
  settlement._tag === "Complete"
    ? (settlement.output?.length ?? 0)
    : "message" in settlement
      ? settlement.message.length
      : 0

/** Splits what waits so that no call carries too much: long outputs alone, the others up to a total length. */
const batches = (items: ReadonlyArray<Item>): ReadonlyArray<ReadonlyArray<Item>> => {
  const alone: Array<ReadonlyArray<Item>> = []
  const together: Array<Array<Item>> = []
  let batch: Array<Item> = []
  let length = 0
  for (const item of items) {
    const itemLength = lengthOf(item)
    if (itemLength > aloneLength) {
      alone.push([item])
      continue
    }
    if (batch.length === 0 || length + itemLength > batchLength) {
      batch = []
      length = 0
      together.push(batch)
    }
    batch.push(item)
    length += itemLength
  }
  return [...together, ...alone]
}

/**
 * What is written for an outcome: the delay decided, the text redacted and cut.
 *
 * @param attempt the number of the attempt that ended
 * @param random a number in `[0, 1)`, for the jitter of a retry
 */
export const toSettlement = (
  outcome: Outcome,
  policy: RetryPolicy.RetryPolicy,
  attempt: number,
  random: number,
  redactor: (text: string) => string
): Settlement => {
  switch (outcome._tag) {
    case "Completed":
      return { _tag: "Complete", output: outcome.output }
    case "Retry":
      return {
        _tag: "RetryLater",
        delay: RetryPolicy.delayAfter(policy, attempt, random, outcome.retryAfter),
        code: Attempt.storableCode(outcome.code),
        message: Attempt.storableMessage(outcome.message, redactor)
      }
    case "Dead":
      return {
        _tag: "Bury",
        code: Attempt.storableCode(outcome.code),
        message: Attempt.storableMessage(outcome.message, redactor)
      }
    case "Snooze":
      // A delay that is none, as only a mistake can give, must not become a hot loop.
      return { _tag: "Snooze", delay: Option.getOrElse(RetryPolicy.finite(outcome.delay), () => policy.fallback) }
    case "Canceled":
      return { _tag: "Cancel" }
    case "Released":
      return { _tag: "Release" }
  }
}
