/**
 * A process that can die or stall between any two steps, within this one: all of its fibers run by a scheduler of its own, and
 * a scheduler that runs nothing any more is, to them, what `kill -9` is. No finalizer runs, and no timer finds them again.
 */
import { Deferred, Effect, FiberId, Scheduler, Supervisor } from "effect"

/** What becomes of the process at its chosen step. */
export type Fate = "dies" | "stalls"

export class Process {
  /** Counted steps so far. */
  steps = 0
  /** Tasks run so far: as long as it rises, the process is at work. */
  activity = 0
  /** Done when the chosen step was reached. */
  readonly stopped = Deferred.unsafeMake<void>(FiberId.none)
  private state: "runs" | Fate = "runs"
  private queue: Array<() => void> = []
  private draining = false

  /** @param stopAt the counted step before which the fate comes; 0: it never does */
  constructor(
    private readonly stopAt: number,
    private readonly fate: Fate
  ) {}

  /** Runs an effect, and all that it forks, as a part of this process. */
  run<A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> {
    return Effect.withScheduler(
      effect,
      this.scheduler(() => undefined)
    )
  }

  /**
   * As `run`; and each step of it counts: before every step of Effect's runtime, where a fiber may give way to another one, and
   * at every suspension, when what the step waits for has begun and its answer is not there.
   */
  counted<A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> {
    const step = () => this.step()
    // What comes after the handler still counts: it has done all of its work, and nobody knows.
    return Effect.ensuring(effect, Effect.void).pipe(
      Effect.supervised(new Suspensions(step)),
      Effect.withScheduler(this.scheduler(step))
    )
  }

  /** Goes on after a stall. */
  resume(): void {
    if (this.state !== "stalls") return
    this.state = "runs"
    this.wake()
  }

  private scheduler(onStep: () => void): Scheduler.Scheduler {
    return {
      shouldYield: (fiber) => {
        if (this.state === "runs") onStep()
        return this.state === "runs" ? Scheduler.defaultShouldYield(fiber) : 0
      },
      scheduleTask: (task) => {
        if (this.state === "dies") return
        this.queue.push(task)
        this.wake()
      }
    }
  }

  private step(): void {
    if (this.state !== "runs") return
    this.steps++
    if (this.steps !== this.stopAt) return
    this.state = this.fate
    if (this.fate === "dies") this.queue = []
    Deferred.unsafeDone(this.stopped, Effect.void)
  }

  private wake(): void {
    if (this.draining || this.state !== "runs") return
    this.draining = true
    queueMicrotask(() => {
      this.draining = false
      const tasks = this.queue
      this.queue = []
      for (const [index, task] of tasks.entries()) {
        if (this.state !== "runs") {
          if (this.state === "stalls") this.queue.unshift(...tasks.slice(index))
          return
        }
        this.activity++
        task()
      }
      if (this.queue.length > 0) this.wake()
    })
  }
}

class Suspensions extends Supervisor.AbstractSupervisor<void> {
  readonly value = Effect.void

  constructor(private readonly step: () => void) {
    super()
  }

  override onSuspend(): void {
    this.step()
  }
}
