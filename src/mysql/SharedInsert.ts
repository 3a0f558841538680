/**
 * Single enqueues outside of transactions: those that come at the same time share a statement, since each statement costs a
 * round trip and a flush to disk, whatever it holds.
 */
import { Effect } from "effect"
import type { Enqueued, NewJob } from "../JobStore.js"
import type { StoreError } from "../QueueError.js"

type Answer = Effect.Effect<Enqueued, StoreError>

interface Waiting {
  readonly job: NewJob
  /** Answers the caller, or makes it the one that sends the next statement. */
  readonly resume: (answer: Answer) => void
}

/** Statements under way at once. A job that finds fewer goes at once: a lone one never waits for company. */
const mostCalls = 2
/** Jobs in a statement, and the text in them. */
const mostJobs = 100
const mostText = 256 * 1024

/** Whether a job may share a statement: a long payload would hold the others up. */
export const isShareable = ({ payload }: NewJob): boolean => (payload?.length ?? 0) <= 16 * 1024

/**
 * Inserts one job, together with others that wait. `insert` is all or nothing, so where the database refuses a statement for
 * what is in it, each of its jobs is tried alone and speaks for itself.
 *
 * There is no fiber behind it: whoever finds a call free sends what waits, and hands the call on when it is answered. A verb
 * can not be interrupted, so no call is ever left behind.
 */
export const make = (
  insert: (jobs: ReadonlyArray<NewJob>) => Effect.Effect<ReadonlyArray<Enqueued>, StoreError>
): ((job: NewJob) => Answer) => {
  const waiting: Array<Waiting> = []
  let calls = 0

  const alone = (job: NewJob): Answer => Effect.map(insert([job]), ([enqueued]) => enqueued as Enqueued)

  const handOn = Effect.sync(() => {
    const next = waiting.shift()
    if (next === undefined) calls--
    else next.resume(send(next.job))
  })

  const send = (job: NewJob): Answer =>
    Effect.suspend(() => {
      const others = takeOthers(waiting, job)
      if (others.length === 0) return alone(job)
      return Effect.matchEffect(insert([job, ...others.map((other) => other.job)]), {
        onSuccess: ([own, ...rest]) => {
          for (const [index, other] of others.entries()) other.resume(Effect.succeed(rest[index] as Enqueued))
          return Effect.succeed(own as Enqueued)
        },
        onFailure: (error) => {
          const answer = (refused: NewJob) => (error._tag === "StoreRejected" ? alone(refused) : Effect.fail(error))
          for (const other of others) other.resume(answer(other.job))
          return answer(job)
        }
      }).pipe(
        Effect.onError((cause) =>
          Effect.sync(() => {
            for (const other of others) other.resume(Effect.failCause(cause))
          })
        )
      )
    }).pipe(Effect.ensuring(handOn))

  return (job) =>
    Effect.uninterruptible(
      Effect.suspend(() => {
        if (calls < mostCalls) {
          calls++
          return send(job)
        }
        return Effect.async<Enqueued, StoreError>((resume) => void waiting.push({ job, resume }))
      })
    )
}

const takeOthers = (waiting: Array<Waiting>, first: NewJob): ReadonlyArray<Waiting> => {
  let text = first.payload?.length ?? 0
  let count = 0
  while (count < waiting.length && count < mostJobs - 1) {
    text += waiting[count]?.job.payload?.length ?? 0
    if (text > mostText) break
    count++
  }
  return waiting.splice(0, count)
}
