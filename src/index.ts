/**
 * Leasehold: durable background jobs in the MySQL that an application already has.
 *
 * One namespace for each module: `import { Job, Queue, Worker } from "leasehold"`.
 *
 * @module
 */

export * as Attempt from "./Attempt.js"
export * as Enqueuer from "./adapters/Enqueuer.js"
export * as Wakeup from "./BinlogWakeup.js"
export * as Job from "./Job.js"
export * as JobFailure from "./JobFailure.js"
export * as JobRecord from "./JobRecord.js"
export * as JobStore from "./JobStore.js"
export * as Lease from "./Lease.js"
export * as Maintenance from "./Maintenance.js"
export * as Metrics from "./Metrics.js"
export * as Migrations from "./Migrations.js"
export * as MysqlQueue from "./MysqlQueue.js"
export * as Outcome from "./Outcome.js"
export * as Payload from "./Payload.js"
export * as Queue from "./Queue.js"
export * as QueueError from "./QueueError.js"
export * as RetryPolicy from "./RetryPolicy.js"
export * as Worker from "./Worker.js"
