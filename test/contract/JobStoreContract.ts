/**
 * The one suite that holds every store to the contract of `src/JobStore.ts`: each postcondition of each verb.
 */
import { layer } from "@effect/vitest"
import type { Layer } from "effect"
import type { StoreUnderTest } from "../support/StoreHarness.js"
import { claim } from "./verbs/claim.js"
import { completeWith } from "./verbs/completeWith.js"
import { enqueue } from "./verbs/enqueue.js"
import { fence } from "./verbs/fence.js"
import { maintain } from "./verbs/maintain.js"
import { operate } from "./verbs/operate.js"
import { renew } from "./verbs/renew.js"
import { replay } from "./verbs/replay.js"
import { settle } from "./verbs/settle.js"
import { transaction } from "./verbs/transaction.js"

/** Declares the suite over a store. All tests share the store; each has a queue of its own. */
export const contract = <E>(name: string, store: Layer.Layer<StoreUnderTest, E>): void =>
  // A store brings its own clock: TestClock for memory, the server's for MySQL, where effects need the real one.
  layer(store, { excludeTestServices: true, timeout: "2 minutes" })(`the contract of JobStore, ${name}`, (it) => {
    enqueue(it)
    claim(it)
    renew(it)
    settle(it)
    fence(it)
    replay(it)
    completeWith(it)
    operate(it)
    maintain(it)
    transaction(it)
  })
