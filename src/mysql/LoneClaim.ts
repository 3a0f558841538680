/**
 * The claim of a job that this process has just added, by its id: one prepared statement, since all but the verdict is known here.
 */
import { Duration, Effect, Option } from "effect"
import type { ClaimedJob, ClaimRequest } from "../JobStore.js"
import type { AddedJob } from "./ClaimFront.js"
import type { FaultKind, MysqlFault } from "./MysqlFault.js"
import type { OwnSession } from "./Session.js"
import * as Statements from "./statements/claim.js"
import type { Tables } from "./Tables.js"

/**
 * What only this statement meets, and not the claim that follows where it took nothing: a server that prepares no more (1461, 1615);
 * somebody who is changing the row of the queue; and before MySQL 8.0.22 a user who may read that row, but not lock it for sharing.
 */
const passing: ReadonlySet<FaultKind> = new Set<FaultKind>(["other", "row_locked", "denied"])

/**
 * Takes the job, or nothing where it is not any more as it was added. A lost answer may leave it leased to nobody who knows, and
 * it is taken over when the lease ends.
 */
export const take = (
  tables: Tables,
  request: ClaimRequest,
  session: OwnSession,
  added: AddedJob
): Effect.Effect<ReadonlyArray<ClaimedJob>, MysqlFault> =>
  session.execute(Statements.takeLone(tables), Statements.loneValues(request, added)).pipe(
    Effect.map(({ affected }) => (affected === 1 ? [toClaimed(added, request.worker)] : [])),
    Effect.catchIf(
      ({ kind }) => passing.has(kind),
      () => Effect.succeed([])
    )
  )

/** The job as its holder has it once the claim is committed. */
const toClaimed = ({ at, id, job }: AddedJob, worker: string): ClaimedJob => ({
  lease: { jobId: id, token: 1, attempt: 1, worker },
  queue: job.queue,
  type: job.type,
  priority: job.priority,
  payload: job.payload,
  payloadVersion: job.payloadVersion,
  attemptsLeft: Option.map(job.maxAttempts, (most) => most - 1),
  maxAttempts: job.maxAttempts,
  waited: Duration.millis(performance.now() - at),
  traceContext: job.traceContext
})
