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
})
