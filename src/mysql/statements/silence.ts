/**
 * How long the session of a transaction with statements of the caller may be silent until the server ends it and rolls back. A
 * host that vanishes says no goodbye: without a bound, the server would keep what its sessions had locked until TCP notices, which
 * takes hours. Each transaction says its own first, since they take turns on the same sessions.
 */
import type { Lease } from "../../Lease.js"
import * as Literal from "../Literal.js"
import type { Tables } from "../Tables.js"

/** What the server gives to everybody: how long his transactions take is the caller's own affair. */
export const callersSilence = "SET SESSION wait_timeout = DEFAULT"

/** Until the end of a lease, and a moment: after it nothing is completed under it, and the job is to be taken over. */
export const silenceWithin = (tables: Tables, { jobId }: Lease): string =>
  "SET SESSION wait_timeout = (SELECT GREATEST(COALESCE(TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(6), MAX(due_at)), 0), 0) + 2"
  + ` FROM ${tables.jobs} WHERE id = ${Literal.digits(jobId)})`
