/**
 * All cases, in the order in which they are shown.
 */
import type { Case } from "../Case.js"
import { latency } from "./latency.js"
import { bulk, drain, enqueue, lifecycle } from "./throughput.js"

export const cases: ReadonlyArray<Case> = [drain, lifecycle, enqueue, bulk, latency]
