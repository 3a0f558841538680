import { describe, expect, it } from "@effect/vitest"
import { both, either, without } from "../torture/Recoveries.js"

describe("the times of a recovery", () => {
  it("that several faults took are counted once", () => {
    expect(
      either([
        [5, 6],
        [1, 3],
        [2, 4],
        [6, 6]
      ])
    ).toEqual([
      [1, 4],
      [5, 6]
    ])
  })

  it("are left out where they lie in a fault, at its ends and in its middle", () => {
    const faults = [
      [0, 2],
      [4, 5],
      [9, 12]
    ] as const
    expect(without([1, 10], faults)).toEqual([
      [2, 4],
      [5, 9]
    ])
    expect(without([4, 5], faults)).toEqual([])
    expect(without([5, 9], faults)).toEqual([[5, 9]])
    expect(without([1, 3], [])).toEqual([[1, 3]])
  })

  it("are those that two lists share", () => {
    expect(
      both(
        [[0, 10]],
        [
          [1, 2],
          [8, 12],
          [12, 13]
        ]
      )
    ).toEqual([
      [1, 2],
      [8, 10]
    ])
  })
})
