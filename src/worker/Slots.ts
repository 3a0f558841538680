/**
 * The places of one queue in a worker: how many handlers run, who waits for a place, and how many more jobs to claim.
 *
 * `concurrency` counts handlers. Handlers that run and results that are not yet durable are together at most twice as many
 * (ruling 11), so that a slow database holds up new work before it can pile up results.
 */
import { Effect, type Metric } from "effect"
import * as Metrics from "../Metrics.js"
import type { Interruption } from "../Outcome.js"
import { type Place, Roster } from "../Roster.js"

/** Why a claimed job that waits gets no slot. `idle`: it waited too long. */
export type TurnedAway = "idle" | Interruption

/** A claimed job that is to have a slot. Both calls return soon and never throw; one of them comes, once. */
export interface Ticket {
  /** When it came, in milliseconds. */
  readonly since: number
  /** Where it waits; kept by the slots. */
  inLine: Place<Ticket> | undefined
  readonly begin: () => void
  readonly turnAway: (reason: TurnedAway) => void
}

/** Jobs are claimed ahead only as far as they should start within this many milliseconds. */
const longestWait = 200
/** Payloads of jobs that are claimed ahead hold about this many characters at most, so that large ones do not fill the memory. */
const mostLength = 16 * 1024 * 1024
/** A job that was claimed ahead and found no slot within this many milliseconds is given back. */
const mostPatience = 1_000

export class Slots {
  /** Opens when there is room for the next claim. */
  readonly roomy = Effect.unsafeMakeLatch(false)
  private readonly line = new Roster<Ticket>()
  private running = 0
  private settling = 0
  private closed = false
  private admitting = false
  /** Moving averages in milliseconds, from the start of a handler to its end and until its result is durable; undefined while unknown. */
  private runTime: number | undefined
  private turnover: number | undefined
  /** Characters of a payload, on average over a claim: of the last one, or of one before that had longer ones. */
  private length = 0
  /** Handlers that were begun since `windowStart`, and in the `longestWait` before it. */
  private begun = 0
  private begunBefore = 0
  private windowStart: number | undefined
  private readonly inUse: Metric.Metric.Gauge<number>

  constructor(
    queue: string,
    readonly concurrency: number,
    private readonly mostAhead: number,
    private readonly labels: Metrics.Labels
  ) {
    this.inUse = Metrics.bind(Metrics.slotsInUse, { queue })
  }

  get waiting(): number {
    return this.line.size
  }

  /** How many jobs to claim now; zero where that would be less than it pays to ask for. */
  get room(): number {
    if (this.closed) return 0
    const room = this.free + this.ahead - this.line.size
    // Claims of a few jobs each would cost more than they bring; a free slot is worth any claim.
    return this.free > this.line.size || room >= Math.max(1, this.ahead / 2) ? room : 0
  }

  /** Handlers that run. */
  get busy(): number {
    return this.running
  }

  /** Results that are not durable yet. */
  get unwritten(): number {
    return this.settling
  }

  private get free(): number {
    return Math.max(0, Math.min(this.concurrency - this.running, 2 * this.concurrency - this.running - this.settling))
  }

  private get ahead(): number {
    if (this.runTime === undefined || this.turnover === undefined) return 0
    // Of which there is less: slots, or places for results. Where the database is slow, the handlers' times alone promise far too much.
    const { concurrency } = this
    const rate = Math.min(concurrency / Math.max(1, this.runTime), (2 * concurrency) / Math.max(1, this.turnover))
    // Slots with long handlers show in no average until these end: no more than twice as many as were begun of late.
    const pace = concurrency + 2 * Math.max(this.begun, this.begunBefore)
    return Math.floor(Math.min(this.mostAhead, rate * longestWait, pace, mostLength / Math.max(1, this.length)))
  }

  /** So many jobs were claimed, with so many characters of payloads together. */
  noteClaim(jobs: number, length: number): void {
    if (jobs === 0) return
    this.length = Math.max(length / jobs, 0.9 * this.length)
    this.tell()
  }

  /** A slot at once where one is free, else a place in the line. */
  enter(ticket: Ticket): void {
    ticket.inLine = this.line.add(ticket)
    if (this.closed) this.withdraw(ticket, "shutdown")
    else this.admit()
  }

  /** The worker stops: whoever waits is given back, also who comes later. Handlers go on. */
  close(): void {
    this.closed = true
    for (const ticket of this.line) this.withdraw(ticket, "shutdown")
    // There is no room any more: a claim loop that found the latch open would ask again at once, and for ever.
    this.tell()
  }

  /** Takes a job out of the line; without effect once it has its slot. */
  withdraw(ticket: Ticket, reason: TurnedAway): void {
    if (!this.leaveLine(ticket)) return
    this.tell()
    ticket.turnAway(reason)
  }

  /** Gives back what has waited too long, and claims no more ahead until run times are known to be short again. */
  withdrawStale(now: number): void {
    this.measurePace(now)
    for (let first = this.line.first; first !== undefined; first = this.line.first) {
      if (now - first.since < mostPatience) break
      this.runTime = undefined
      this.turnover = undefined
      this.withdraw(first, "idle")
    }
  }

  /** Begins the next window once the last one is over, and says how many a window of `longestWait` had at its pace. */
  private measurePace(now: number): void {
    const passed = now - (this.windowStart ?? now)
    if (this.windowStart !== undefined && passed >= 0 && passed < longestWait) return
    this.begunBefore = passed > 0 ? (this.begun * longestWait) / passed : 0
    this.begun = 0
    this.windowStart = now
    // A claim loop that found the latch open without room would ask again at once, and for ever.
    this.tell()
  }

  /** A handler has ended, or was given up, after `ran` milliseconds; its result is not durable yet. */
  handlerEnded(ran: number): void {
    this.running--
    this.settling++
    this.runTime = averaged(this.runTime, ran)
    this.admit()
  }

  /** The result is durable, or will never be, `after` milliseconds from the start of its handler. */
  resultGone(after: number): void {
    this.settling--
    this.turnover = averaged(this.turnover, after)
    this.admit()
  }

  /** For the gauge. It is summed over all workers of the process, so it only ever moves by one. */
  countSlot(change: 1 | -1): void {
    this.inUse.unsafeModify(change, this.labels)
  }

  private admit(): void {
    // A handler that ends at once frees its slot within `begin`; the loop that began it goes on, instead of ever deeper calls.
    if (this.admitting) return
    this.admitting = true
    for (let next = this.line.first; next !== undefined && this.free > 0; next = this.line.first) {
      this.leaveLine(next)
      this.running++
      this.begun++
      next.begin()
    }
    this.admitting = false
    this.tell()
  }

  /** Answers whether it was in the line. */
  private leaveLine(ticket: Ticket): boolean {
    return ticket.inLine !== undefined && this.line.remove(ticket.inLine)
  }

  private tell(): void {
    if (this.room > 0) this.roomy.unsafeOpen()
    else this.roomy.unsafeClose()
  }
}

const averaged = (average: number | undefined, next: number): number =>
  average === undefined ? next : average + (next - average) / 10
