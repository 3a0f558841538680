/**
 * For the tests of programs that use Leasehold: no database, and no waiting.
 *
 * @module
 */
export * as MemoryQueue from "./MemoryQueue.js"
export * as Rehearsal from "./Rehearsal.js"
export * as TestQueue from "./TestQueue.js"
