import { describe, expect, it } from "@effect/vitest"
import { breaksSession, fromDriver, toStoreError } from "../../src/mysql/MysqlFault.js"

const answer = (errno: number) => fromDriver({ errno, code: "ER_SOME_NAME" }, true)

describe("what the server says", () => {
  it("while it is no primary, or not yet one, is that it is read-only: nothing was written, its session is thrown away", () => {
    for (const errno of [1290, 1836, 3100, 3781, 3782, 3783, 3796, 3797, 3798, 3799]) {
      const fault = answer(errno)
      expect(fault).toMatchObject({ kind: "read_only", ambiguous: false })
      expect(breaksSession(fault.kind)).toBe(true)
      expect(toStoreError("enqueue", false)(fault)).toMatchObject({ _tag: "StoreUnavailable", reason: "read_only" })
    }
  })

  it("of a transaction that only reads is no word about the server", () => {
    const fault = answer(1792)
    expect(fault.kind).toBe("read_only_transaction")
    expect(toStoreError("enqueue", false)(fault)).toMatchObject({ _tag: "StoreUnavailable", reason: "read_only" })
  })

  it("when it goes away is that nothing was written", () => {
    for (const errno of [1053, 3032, 3168, 4031]) {
      expect(toStoreError("enqueue", false)(answer(errno))).toMatchObject({
        _tag: "StoreUnavailable",
        reason: "connection"
      })
    }
  })

  it("of an error in the middle of COMMIT, or of a broken network, leaves the outcome unknown", () => {
    for (const errno of [1158, 1159, 1160, 1161, 1180]) {
      expect(toStoreError("enqueue", false)(answer(errno))).toMatchObject({ _tag: "OutcomeUnknown" })
      expect(toStoreError("claim", true)(answer(errno))).toMatchObject({ _tag: "StoreUnavailable" })
    }
  })

  it("of a right that is missing is told by the right and the table, and by no other word of the server", () => {
    const hintOf = (errno: number, message: string) =>
      toStoreError("cancel", true)(fromDriver({ errno, code: "ER_DENIED", message }, true))
    const user = "to user 'canary'@'canary.example'"
    const rights = {
      [`UPDATE command denied ${user} for table 'leasehold_jobs'`]: "UPDATE on leasehold_jobs",
      [`SELECT command denied ${user} for column 'id' in table 'leasehold_jobs'`]: "SELECT on leasehold_jobs",
      [`SELECT with locking clause command denied ${user} for table \`canary\`.\`jobs\``]: "UPDATE on jobs"
    }
    for (const [message, right] of Object.entries(rights)) {
      const told = hintOf(1142, message)
      expect(told).toMatchObject({ _tag: "StoreRejected", hint: expect.stringContaining(`user ${right};`) })
      expect(JSON.stringify(told)).not.toContain("canary")
    }
    // Where the words are others, the README has to do.
    for (const message of [`canary ${user}`, `UPDATE command denied ${user} for table 'Canary; x'`]) {
      expect(JSON.stringify(hintOf(1142, message))).not.toMatch(/canary/i)
    }
  })
})
