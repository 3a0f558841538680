import { describe, expect, it } from "@effect/vitest"
import { Option, Schema } from "effect"
import { type Act, budgetAfter, isEnded, JobId, JobState, type Standing, transition } from "../../src/JobRecord.js"

const states = JobState.literals
const settles: ReadonlyArray<Act> = ["complete", "retryLater", "bury", "snooze", "release"]
const acts: ReadonlyArray<Act> = ["claim", "reap", "renew", ...settles, "cancel", "retry"]
const budgets = [Option.none(), Option.some(0), Option.some(1), Option.some(65_535)]

const standings: ReadonlyArray<Standing> = states.flatMap((state) =>
  [false, true].flatMap((cancelRequested) =>
    [false, true].flatMap((due) => budgets.map((attemptsLeft) => ({ state, cancelRequested, due, attemptsLeft })))
  )
)

/** What the table says, in the words of the issue: `<state> <token> <budget>`, or nothing. */
const expected = ({ attemptsLeft, cancelRequested, due, state }: Standing, act: Act): string | undefined => {
  const spent = Option.contains(attemptsLeft, 0)
  const row = `${state}${due ? " due" : ""}${cancelRequested ? " to be canceled" : ""}${spent ? " spent" : ""}`
  const table: { readonly [row: string]: { readonly [act: string]: string } } = {
    "pending due": { claim: "running raised paid" },
    "pending due spent": { claim: "running raised paid" },
    "pending due to be canceled": { claim: "running raised paid" },
    "pending due to be canceled spent": { claim: "running raised paid" },
    "running due": { claim: "running raised paid" },
    "running due spent": { claim: "dead raised kept", reap: "dead raised kept" },
    "running due to be canceled": { claim: "canceled raised kept", reap: "canceled raised kept" },
    "running due to be canceled spent": { claim: "canceled raised kept", reap: "canceled raised kept" }
  }
  const byState: { readonly [state in JobState]: { readonly [act: string]: string } } = {
    pending: { cancel: "canceled raised kept" },
    running: {
      renew: "running kept kept",
      cancel: "running kept kept",
      ...Object.fromEntries(settles.map((settle) => [settle, "canceled kept kept"])),
      ...(cancelRequested
        ? {}
        : {
            complete: "succeeded kept kept",
            bury: "dead kept kept",
            retryLater: spent ? "dead kept kept" : "pending kept kept",
            snooze: "pending kept returned",
            release: "pending kept returned"
          })
    },
    succeeded: {},
    dead: { retry: "pending raised renewed" },
    canceled: { retry: "pending raised renewed" }
  }
  return { ...byState[state], ...table[row] }[act]
}

describe("the transition table", () => {
  it("says for every state, request, due time and budget what every act leads to", () => {
    for (const standing of standings) {
      for (const act of acts) {
        const found = Option.getOrUndefined(transition(standing, act))
        expect({ standing, act, to: found && `${found.state} ${found.token} ${found.budget}` }).toEqual({
          standing,
          act,
          to: expected(standing, act)
        })
      }
    }
  })

  it("raises the token in every transition that is not the holder's, and in none of his", () => {
    for (const standing of standings) {
      for (const act of acts) {
        const to = Option.getOrUndefined(transition(standing, act))
        if (to === undefined) continue
        const byHolder = act === "renew" || settles.includes(act) || (act === "cancel" && standing.state === "running")
        expect(to.token).toBe(byHolder ? "kept" : "raised")
      }
    }
  })

  it("never takes a running job back to pending but by its holder", () => {
    for (const standing of standings.filter(({ state }) => state === "running")) {
      for (const act of acts.filter((act) => !settles.includes(act))) {
        expect(Option.map(transition(standing, act), ({ state }) => state)).not.toEqual(Option.some("pending"))
      }
    }
  })

  it("lets an ended job rest, but for a retry of a dead or canceled one", () => {
    for (const standing of standings.filter(({ state }) => isEnded(state))) {
      for (const act of acts.filter((act) => act !== "retry")) {
        expect(transition(standing, act)).toEqual(Option.none())
      }
    }
    expect(states.filter(isEnded)).toEqual(["succeeded", "dead", "canceled"])
  })
})

describe("a budget", () => {
  const after = (left: number, most: number, budget: Parameters<typeof budgetAfter>[2]) =>
    budgetAfter(Option.some(left), Option.some(most), budget)

  it("is paid from, given back to, kept and renewed within zero and its maximum", () => {
    expect(after(3, 3, "paid")).toEqual(Option.some(2))
    expect(after(0, 3, "paid")).toEqual(Option.some(0))
    expect(after(1, 3, "returned")).toEqual(Option.some(2))
    expect(after(3, 3, "returned")).toEqual(Option.some(3))
    expect(after(1, 3, "kept")).toEqual(Option.some(1))
    expect(after(0, 3, "renewed")).toEqual(Option.some(3))
  })

  it("that is unlimited stays so", () => {
    for (const budget of ["paid", "returned", "kept", "renewed"] as const) {
      expect(budgetAfter(Option.none(), Option.none(), budget)).toEqual(Option.none())
    }
  })
})

describe("a job id", () => {
  const isId = Schema.is(JobId)

  it("is a whole number from 1 to 2^64 - 1 as decimal text", () => {
    for (const id of ["1", "10", "9007199254740993", "18446744073709551615"]) expect(isId(id)).toBe(true)
  })

  it("is nothing that a database would read as some other number", () => {
    const odd = [
      "",
      "0",
      "01",
      "-1",
      "+1",
      " 12",
      "12 ",
      "12\n",
      "12abc",
      "12.0",
      "1e1",
      "0x0c",
      "null",
      "１２",
      "1_000"
    ]
    const large = ["18446744073709551616", "99999999999999999999", "9".repeat(1_000)]
    for (const id of [...odd, ...large, 12, null, ["1"], {}]) expect(isId(id)).toBe(false)
  })
})
