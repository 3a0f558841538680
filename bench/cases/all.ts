/**
 * All cases, in the order in which they are shown.
 */
import type { Case } from "../Case.js"
import { idle, memory, renew } from "./holding.js"
import { latency } from "./latency.js"
import { processes } from "./processes.js"
import { recovery } from "./recovery.js"
import { steady } from "./steady.js"
import { backlog, delayed, history, snapshot } from "./surroundings.js"
import { bulk, drain, enqueue, lifecycle } from "./throughput.js"

export const cases: ReadonlyArray<Case> = [
  drain,
  lifecycle,
  steady,
  enqueue,
  bulk,
  latency,
  backlog,
  delayed,
  snapshot,
  history,
  processes,
  renew,
  recovery,
  idle,
  memory
]
