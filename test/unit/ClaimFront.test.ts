import { describe, expect, it } from "@effect/vitest"
import { Duration, Option } from "effect"
import { JobId } from "../../src/JobRecord.js"
import type { NewJob } from "../../src/JobStore.js"
import * as ClaimFront from "../../src/mysql/ClaimFront.js"
import { noteEnqueued } from "../../src/mysql/Claiming.js"

const at = (second: number, id = 1) => ({
  dueAt: `2026-01-01 00:00:${String(second).padStart(2, "0")}.000000`,
  id: String(id)
})
const id = (n: number) => JobId.make(String(n))
const job: NewJob = {
  queue: "a",
  type: "count",
  priority: 5,
  payload: null,
  payloadVersion: 2,
  maxAttempts: Option.none(),
  due: Option.none(),
  idempotency: Option.none(),
  traceContext: Option.none()
}

/** The nth job that this process has added. */
const added = (priority: number, n: number): ClaimFront.AddedJob => ({ id: id(n), job: { ...job, priority }, at: 0 })

const nothing = { found: [], clock: at(0, 0) }

const look = (front: ClaimFront.ClaimFront, startedAt: number, cost: number) => {
  const { reach } = front.lookAt(startedAt)
  front.looked({ ...nothing, reach, startedAt, endedAt: startedAt + cost })
  return reach === "full"
}

describe("where claims begin", () => {
  it("is the first job that was found at each level, and levels without jobs are not named", () => {
    const front = ClaimFront.make()
    expect(front.ready(0)).toBe(false)
    expect(front.lookAt(0)).toMatchObject({ reach: "full" })
    front.looked({
      reach: "full",
      startedAt: 0,
      endedAt: 1,
      found: [
        [2, at(5)],
        [7, at(3)]
      ],
      clock: at(9, 0)
    })
    expect(front.ready(2)).toBe(true)
    expect(front.live()).toEqual([
      { priority: 2, from: at(5) },
      { priority: 7, from: at(3) }
    ])
  })

  it("moves to the first job of a claim, and past levels that the claim has used up", () => {
    const front = ClaimFront.make()
    front.looked({
      reach: "full",
      startedAt: 0,
      endedAt: 1,
      found: [
        [2, at(5)],
        [7, at(3)]
      ],
      clock: at(9, 0)
    })
    front.claimed(
      [
        [2, at(6)],
        [2, at(8)]
      ],
      false,
      2,
      3
    )
    expect(front.live()).toEqual([
      { priority: 2, from: at(6) },
      { priority: 7, from: at(3) }
    ])
    front.claimed(
      [
        [7, at(4)],
        [7, at(5)]
      ],
      false,
      2,
      3
    )
    expect(front.live()).toEqual([{ priority: 7, from: at(4) }])
    front.claimed([[7, at(6)]], true, 2, 3)
    expect(front.live()).toEqual([])
    expect(front.ready(2)).toBe(false)
  })

  it("never moves back by a look that began at the mark, and does by a full one", () => {
    const front = ClaimFront.make()
    front.looked({ reach: "full", startedAt: 0, endedAt: 1, found: [[5, at(30)]], clock: at(20, 0) })
    front.claimed([[5, at(30)]], true, 2, 3)
    front.looked({ reach: "near", startedAt: 2, endedAt: 3, found: [], clock: at(20, 0) })
    expect(front.lookAt(3).levels[5]).toEqual({ priority: 5, from: at(30) })
    front.looked({ reach: "full", startedAt: 60, endedAt: 61, found: [], clock: at(20, 0) })
    expect(front.lookAt(61).levels[5]).toEqual({ priority: 5, from: at(20, 0) })
  })

  it("moves back as soon as a look tells that the database's clock was set back", () => {
    const front = ClaimFront.make()
    // Dear ones, so that the next looks begin at the marks.
    for (const startedAt of [0, 1_000]) {
      const endedAt = startedAt + 1_000
      front.looked({ reach: "full", startedAt, endedAt, found: [[5, at(50)]], clock: at(48, 0) })
    }
    front.claimed([[5, at(50)]], true, 2, 3)
    const near = (
      startedAt: number,
      endedAt: number,
      second: number,
      found: ReadonlyArray<readonly [number, ReturnType<typeof at>]> = []
    ) => {
      expect(front.lookAt(startedAt).reach).toBe("near")
      front.looked({ reach: "near", startedAt, endedAt, found, clock: at(second, 0) })
      return front.lookAt(endedAt).levels[5]?.from
    }
    expect(near(2_010, 2_020, 49)).toEqual(at(50))
    expect(near(2_030, 2_040, 20)).toEqual(at(20, 0))
    // The answer of a look beside another one may only have been overtaken.
    near(2_050, 2_080, 38, [[5, at(40)]])
    expect(near(2_060, 2_090, 37)).toEqual(at(40))
  })

  it("is looked for from the start at most a twentieth of the time, and a hundredth where that is dear", () => {
    const front = ClaimFront.make()
    expect(look(front, 0, 4)).toBe(true)
    expect(look(front, 50, 4)).toBe(false)
    expect(look(front, 60, 4)).toBe(true)
    expect(look(front, 100, 1)).toBe(false)
    expect(look(front, 144, 50)).toBe(true)
    expect(look(front, 275, 50)).toBe(true)
    expect(look(front, 5_000, 1)).toBe(false)
    expect(look(front, 5_400, 1)).toBe(true)
  })

  it("is looked for again soon after one look that was slow for reasons of its own, and after a minute in any case", () => {
    const front = ClaimFront.make()
    look(front, 0, 1)
    expect(look(front, 100, 10_000)).toBe(true)
    expect(look(front, 10_200, 10_000)).toBe(true)
    expect(look(front, 80_000, 1)).toBe(false)
    expect(look(front, 80_300, 1)).toBe(true)
  })

  it("is looked for anew after a claim that failed", () => {
    const front = ClaimFront.make()
    front.looked({ reach: "full", startedAt: 0, endedAt: 1, found: [[5, at(30)]], clock: at(40, 0) })
    front.forget()
    expect(front.ready(2)).toBe(false)
    expect(front.lookAt(2).levels[5]).toEqual({ priority: 5, from: at(30) })
  })

  it("is looked for two seconds back, for late commits, while full looks are too dear", () => {
    const front = ClaimFront.make()
    const seen = (reach: ClaimFront.Reach, startedAt: number, cost: number) =>
      front.looked({ reach, startedAt, endedAt: startedAt + cost, found: [], clock: at(20, 0) })
    seen("full", 0, 400)
    seen("full", 500, 400)
    front.claimed([[5, at(21)]], true, 2, 3)
    // A look back cost as much as the full one, for want of anything better known.
    expect(front.lookAt(1_000).reach).toBe("near")
    expect(front.lookAt(1_000).levels[5]).toEqual({ priority: 5, from: at(21) })
    expect(front.lookAt(9_000)).toMatchObject({ reach: "back" })
    expect(front.lookAt(9_000).levels[5]).toEqual({ priority: 5, from: at(20, 0) })
    seen("back", 9_000, 1)
    expect(front.lookAt(9_040).reach).toBe("near")
    expect(front.lookAt(9_060).reach).toBe("back")
    front.looked({ reach: "back", startedAt: 9_060, endedAt: 9_061, found: [[5, at(20, 7)]], clock: at(25, 0) })
    expect(front.live()).toEqual([{ priority: 5, from: at(20, 7) }])
    expect(front.lookAt(40_000).reach).toBe("back")
    expect(front.lookAt(41_000).reach).toBe("full")
  })

  describe("after an enqueue of this process", () => {
    /** Nothing is known to be due, and the last full look was just now. */
    const idle = () => {
      const front = ClaimFront.make()
      look(front, 0, 1)
      return front
    }

    it("is at the levels of all that it enqueued, each once, and a look comes after it", () => {
      const front = idle()
      front.enqueued(added(9, 1))
      front.enqueued(added(2, 2))
      front.enqueued(added(9, 3))
      expect(front.ready(2)).toBe(true)
      expect(front.live().map(({ priority }) => priority)).toEqual([2, 9])
      front.claimed([[2, at(5)]], true, 2, 3)
      expect(front.owesLook()).toBe(true)
      expect(front.ready(3)).toBe(false)
      // What it enqueues meanwhile is found by that look.
      front.enqueued(added(5, 4))
      expect(front.ready(3)).toBe(false)
      look(front, 4, 1)
      expect(front.owesLook()).toBe(false)
      front.enqueued(added(5, 5))
      expect(front.ready(6)).toBe(true)
    })

    it("is at its id where it is the only one, and nothing else is known to be due", () => {
      const front = idle()
      expect(front.lone()).toBe(undefined)
      front.enqueued(added(5, 1))
      expect(front.lone()?.id).toBe(id(1))
      front.claimed([], true, 2, 3)
      expect(front.lone()).toBe(undefined)
      front.enqueued(added(5, 2))
      expect(front.lone()).toBe(undefined)
      look(front, 3, 1)
      expect(front.lone()).toBe(undefined)
      front.enqueued(added(5, 3))
      front.enqueued(added(5, 4))
      expect(front.lone()).toBe(undefined)
      front.forget()
      front.enqueued(added(5, 5))
      expect(front.lone()?.id).toBe(id(5))
      // Found by a look, it is one of those that are due.
      front.looked({ reach: "near", startedAt: 5, endedAt: 6, found: [[5, at(5)]], clock: at(6, 0) })
      expect(front.lone()).toBe(undefined)
      front.enqueued(added(5, 6))
      expect(front.lone()).toBe(undefined)
    })

    it("is looked for also where the claim left some of them: others may have enqueued before", () => {
      const front = idle()
      front.enqueued(added(9, 1))
      front.claimed([[9, at(5)]], false, 2, 3)
      expect(front.owesLook()).toBe(true)
      expect(front.ready(3)).toBe(false)
      const { reach } = front.lookAt(3)
      const found = [[0, at(4)] as const, [9, at(5)] as const]
      front.looked({ reach, startedAt: 3, endedAt: 4, found, clock: at(6, 0) })
      expect(front.ready(5)).toBe(true)
      expect(front.live().map(({ priority }) => priority)).toEqual([0, 9])
    })

    it("is not done with a claim before a look has come after a commit, also where a job is known to be due elsewhere", () => {
      const front = idle()
      expect(front.owesLook()).toBe(false)
      front.looked({ reach: "near", startedAt: 2, endedAt: 4, found: [[5, at(3)]], clock: at(2, 0) })
      front.committed(2, 5)
      front.enqueued(added(3, 1))
      expect(front.live()).toEqual([{ priority: 5, from: at(3) }])
      front.claimed([[5, at(3)]], true, 6, 7)
      expect(front.owesLook()).toBe(true)
      // A look that began before the commit may not have seen it.
      front.looked({ reach: "near", startedAt: 4, endedAt: 8, found: [], clock: at(2, 0) })
      expect(front.owesLook()).toBe(true)
      look(front, 9, 1)
      expect(front.owesLook()).toBe(false)
      front.committed(9, 11)
      front.forget()
      expect(front.owesLook()).toBe(false)
    })

    it("is looked for two seconds back, whatever that costs, where a mark was moved since its transaction began", () => {
      const moves = {
        "by a claim": (front: ClaimFront.ClaimFront) => front.claimed([[5, at(30)]], true, 10, 12),
        "by a look": (front: ClaimFront.ClaimFront) =>
          front.looked({ reach: "near", startedAt: 10, endedAt: 12, found: [[5, at(30)]], clock: at(28, 0) })
      }
      for (const [way, move] of Object.entries(moves)) {
        for (const [since, committed, reach] of [
          [11, 14, "back"],
          [9, 11, "back"],
          [13, 14, "near"],
          [7, 9, "near"]
        ] as const) {
          const front = idle()
          if (committed < 12) front.committed(since, committed)
          move(front)
          if (committed > 12) front.committed(since, committed)
          const title = `moved ${way} from 10 to 12, transaction from ${since} to ${committed}`
          expect(front.lookAt(15).reach, title).toBe(reach)
          front.looked({ reach, startedAt: 15, endedAt: 16, found: [], clock: at(29, 0) })
          expect(front.lookAt(17).reach, title).toBe("near")
        }
      }
    })

    it("is told of the jobs that it may take: of its queue, its types and versions, due now", () => {
      const front = idle()
      const fronts = new Map([["a", { queue: "a", types: [{ type: "count", version: 2 }], front }]])
      const note = (...jobs: ReadonlyArray<NewJob & { readonly held?: true }>) =>
        noteEnqueued(
          fronts,
          jobs,
          jobs.map(({ held }, index) => ({ id: id(index + 1), created: held !== true })),
          1
        )
      note(
        { ...job, queue: "b" },
        { ...job, type: "other" },
        { ...job, payloadVersion: 3 },
        { ...job, due: Option.some({ after: Duration.zero }) },
        { ...job, held: true }
      )
      expect(front.ready(2)).toBe(false)
      note({ ...job, type: "other", priority: 0 }, { ...job, priority: 7 })
      expect(front.live().map(({ priority }) => priority)).toEqual([7])
      expect(front.lone()?.id).toBe(id(2))
    })
  })
})
