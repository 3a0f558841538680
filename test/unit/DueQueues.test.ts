import { describe, expect, it } from "vitest"
import { DueQueues, type Row } from "../../src/mysql/binlog/DueQueues.js"

const committed = Date.parse("2026-11-29T12:00:07Z")
const job = (changes: Row = {}): Row => ({ queue: "q", state: 0, due_at: "2026-11-29 12:00:07.250000", ...changes })
const running = job({ state: 1, due_at: "2026-11-29 12:00:37.000000" })

const dueAfter = (...rows: ReadonlyArray<readonly [table: string, after: Row, before?: Row]>) => {
  const queues = new DueQueues({ jobs: "jobs", queues: "queues" })
  for (const row of rows) queues.add(...row)
  return Array.from(queues.commit(committed))
}

describe("the queues that a transaction gave work", () => {
  it("are those of its new jobs that are due by the database's time of the commit, each once", () => {
    expect(dueAfter(["jobs", job()], ["jobs", job()], ["jobs", job({ queue: "r" })])).toEqual(["q", "r"])
    // A second is all that the log knows of the commit.
    expect(dueAfter(["jobs", job({ due_at: "2026-11-29 12:00:07.999999" })])).toEqual(["q"])
    expect(dueAfter(["jobs", job({ due_at: "2026-11-29 12:00:08.000000" })])).toEqual([])
    expect(dueAfter(["jobs", job({ due_at: "9999-12-31 23:59:59.999999" })], ["jobs", job()])).toEqual(["q"])
  })

  it("are those of jobs that became pending and due, and not of claims, renewals, ends and retries of later", () => {
    expect(dueAfter(["jobs", job(), running])).toEqual(["q"])
    expect(dueAfter(["jobs", job(), job({ due_at: "2026-11-29 13:00:00.000000" })])).toEqual(["q"])
    expect(dueAfter(["jobs", job(), job({ state: 3, due_at: null })])).toEqual(["q"])
    expect(dueAfter(["jobs", running, job()])).toEqual([])
    expect(dueAfter(["jobs", running, running])).toEqual([])
    expect(dueAfter(["jobs", job({ state: 2, due_at: null }), running])).toEqual([])
    expect(dueAfter(["jobs", job({ due_at: "2026-11-29 12:10:00.000000" }), running])).toEqual([])
    // A change that has nothing to do with when it runs.
    expect(dueAfter(["jobs", job(), job()])).toEqual([])
  })

  it("are those whose pause ended", () => {
    expect(dueAfter(["queues", { name: "q", paused: 0 }, { name: "q", paused: 1 }])).toEqual(["q"])
    expect(dueAfter(["queues", { name: "q", paused: 1 }, { name: "q", paused: 0 }])).toEqual([])
  })

  it("are read from partial rows as far as they go, and begin anew with each transaction", () => {
    // binlog_row_image = MINIMAL: an update names its key before, and what changed after.
    const minimal = { queue: null, state: 0, due_at: "2026-11-29 12:00:07.250000" }
    expect(dueAfter(["jobs", minimal, { queue: null, state: null, due_at: null }])).toEqual([])
    expect(dueAfter(["jobs", job({ state: null })])).toEqual(["q"])
    expect(dueAfter(["jobs", { ...minimal, queue: null }, running])).toEqual(["q"])
    const queues = new DueQueues({ jobs: "jobs", queues: "queues" })
    queues.add("jobs", job())
    expect(queues.commit(committed).size).toBe(1)
    expect(queues.commit(committed).size).toBe(0)
    queues.add("other_jobs", job())
    expect(queues.commit(committed).size).toBe(0)
  })
})
