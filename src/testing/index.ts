/**
 * For the tests of programs that use Leasehold.
 */
export * as MemoryQueue from "./MemoryQueue.js"
