import { describe, expect, it } from "@effect/vitest"
import { FastCheck } from "effect"
import { type Place, Roster } from "../../src/Roster.js"

describe("a roster", () => {
  it("holds its members in the order of arrival, however they come and go", () => {
    const steps = FastCheck.array(FastCheck.oneof(FastCheck.constant("add" as const), FastCheck.nat(30)))
    FastCheck.assert(
      FastCheck.property(steps, (coming) => {
        const roster = new Roster<number>()
        const places: Array<Place<number>> = []
        let present: Array<number> = []
        for (const step of coming) {
          if (step === "add") {
            places.push(roster.add(places.length))
            present.push(places.length - 1)
          } else {
            const place = places[step]
            if (place !== undefined) expect(roster.remove(place)).toBe(present.includes(step))
            present = present.filter((member) => member !== step)
          }
          expect([...roster]).toEqual(present)
          expect(roster.first).toBe(present[0])
          expect(roster.size).toBe(present.length)
        }
      })
    )
  })

  it("goes on over those that were present, also when they leave meanwhile", () => {
    const roster = new Roster<string>()
    const places = ["a", "b", "c"].map((member) => roster.add(member))
    const seen: Array<string> = []
    for (const member of roster) {
      seen.push(member)
      for (const place of places) roster.remove(place)
    }
    expect(seen).toEqual(["a", "b", "c"])
    expect(roster.size).toBe(0)
  })
})
