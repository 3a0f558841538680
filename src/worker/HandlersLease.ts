/**
 * What a handler gets beside its payload: its lease, in the care of the worker.
 */
import { Effect, type Option } from "effect"
import type { AttemptLease } from "../Job.js"
import { LeaseLost } from "../JobFailure.js"
import type { JobId } from "../JobRecord.js"
import type { ClaimedJob, JobStore } from "../JobStore.js"
import * as Lease from "../Lease.js"
import type { Held } from "../LeaseKeeper.js"
import type { StoreError } from "../QueueError.js"
import type { Supervision } from "./Supervision.js"

export class HandlersLease implements AttemptLease {
  readonly jobId: JobId
  readonly token: number
  readonly attempt: number
  readonly worker: string
  readonly jobType: string
  readonly queue: string
  readonly attemptsLeft: Option.Option<number>

  /** @param completed called once the outcome is written by the handler itself */
  constructor(
    private readonly job: ClaimedJob,
    private readonly held: Held,
    private readonly supervision: Supervision,
    private readonly store: JobStore["Type"],
    private readonly completed: () => void
  ) {
    const { attempt, jobId, token, worker } = job.lease
    this.jobId = jobId
    this.token = token
    this.attempt = attempt
    this.worker = worker
    this.jobType = job.type
    this.queue = job.queue
    this.attemptsLeft = job.attemptsLeft
  }

  get lost(): Effect.Effect<never, LeaseLost> {
    return this.supervision.lostLease
  }

  get renew(): Effect.Effect<void, LeaseLost | StoreError> {
    return this.held.renew
  }

  completeEncoded<A, E, R>(effect: Effect.Effect<readonly [output: string | null, value: A], E, R>) {
    return Effect.uninterruptibleMask((restore) =>
      Effect.flatMap(Lease.now, (at) => {
        const { held, jobId, token } = this
        const reason = held.distrust(at)
        if (reason !== undefined) return Effect.fail(new LeaseLost({ jobId, token, during: "completeWith", reason }))
        return Effect.tap(held.whileLocked(restore(this.store.completeWith(this.job.lease, effect))), () =>
          Effect.sync(this.completed)
        )
      })
    )
  }
}
