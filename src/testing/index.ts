/**
 * For the tests of programs that use Leasehold.
 *
 * @module
 */
export * as MemoryQueue from "./MemoryQueue.js"
