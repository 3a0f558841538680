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

/**
 * Five minutes more than is left of the lease. The locked row keeps the job for its holder beyond the lease too, so a live one may
 * take his time; of one that vanished, the job is free again after it.
 */
export const silenceWithin = (tables: Tables, { jobId }: Lease): string =>
  "SET SESSION wait_timeout = (SELECT GREATEST(COALESCE(TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(6), MAX(due_at)), 0), 0) + 300"
  + ` FROM ${tables.jobs} WHERE id = ${Literal.digits(jobId)})`
