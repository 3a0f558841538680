/**
 * A clock that stands still while anything runs, and jumps to the next sleep when nothing does.
 */
import { Clock, Data, Duration, Effect } from "effect"
import type { Process } from "./Process.js"

interface Sleep {
  readonly at: number
  readonly wake: () => void
}

/** What was waited for had not ended after a week. */
export class Unending extends Data.TaggedError("Unending")<{}> {}

const longest = Duration.toMillis(Duration.weeks(1))

export class VirtualClock implements Clock.Clock {
  readonly [Clock.ClockTypeId]: Clock.ClockTypeId = Clock.ClockTypeId
  /** Milliseconds since the start of the rehearsal. */
  now = 0
  private sleeps: Array<Sleep> = []

  readonly currentTimeMillis = Effect.sync(() => this.now)
  readonly currentTimeNanos = Effect.sync(() => this.unsafeCurrentTimeNanos())

  unsafeCurrentTimeMillis(): number {
    return this.now
  }

  unsafeCurrentTimeNanos(): bigint {
    return BigInt(Math.round(this.now * 1e6))
  }

  sleep(duration: Duration.Duration): Effect.Effect<void> {
    return Effect.async<void>((resume) => {
      const sleep: Sleep = { at: this.now + Duration.toMillis(duration), wake: () => resume(Effect.void) }
      this.sleeps.push(sleep)
      return Effect.sync(() => {
        this.sleeps = this.sleeps.filter((other) => other !== sleep)
      })
    })
  }

  /** Runs an effect while time passes: whenever the processes have nothing to do, it jumps to the next sleep. */
  whilePassing<A, E, R>(
    processes: ReadonlyArray<Process>,
    effect: Effect.Effect<A, E, R>
  ): Effect.Effect<A, E | Unending, R> {
    const passing = Effect.gen(this, function* () {
      let seen = -1
      while (true) {
        yield* turn
        if (this.now > longest) return yield* new Unending()
        const activity = processes.reduce((sum, process) => sum + process.activity, 0)
        if (activity === seen) this.jump()
        seen = activity
      }
    })
    return Effect.raceFirst(effect, passing)
  }

  private jump(): void {
    const next = this.sleeps.reduce((first, { at }) => Math.min(first, at), Number.POSITIVE_INFINITY)
    if (next === Number.POSITIVE_INFINITY) return
    this.now = Math.max(this.now, next)
    const due = this.sleeps.filter(({ at }) => at <= this.now)
    this.sleeps = this.sleeps.filter(({ at }) => at > this.now)
    for (const { wake } of due) wake()
  }
}

/** One turn of the event loop: promises that are kept without a timer are kept by then. */
const turn: Effect.Effect<void> = Effect.async((resume) => {
  const immediate = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(immediate))
})
