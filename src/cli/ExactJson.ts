/**
 * JSON text that JavaScript can hold as it is. What `JSON.parse` would change without a word is refused: digits of long
 * numbers, and keys that an object names twice.
 */
import { Effect } from "effect"
import { type CommandFailed, usage } from "./Failure.js"

export const parse = (text: string): Effect.Effect<unknown, CommandFailed> =>
  Effect.suspend(() => {
    let value: unknown
    try {
      value = JSON.parse(text)
    } catch {
      return Effect.fail(usage("The payload is no JSON. Quote it for the shell: '{\"orderId\":42}'."))
    }
    const flaw = findFlaw(text, value)
    return flaw === undefined ? Effect.succeed(value) : Effect.fail(usage(flaw))
  })

/** Strings, with the colon that makes a key of one, and numbers. The text is known to be JSON. */
const tokens = /"(?:[^"\\]|\\.)*"(\s*:)?|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g

const findFlaw = (text: string, value: unknown): string | undefined => {
  let keys = 0
  for (const [token, colon] of text.matchAll(tokens)) {
    if (token.startsWith('"')) {
      if (colon !== undefined) keys++
    } else if (decimal(token) !== decimal(String(Number(token)))) {
      return `The payload has the number ${token.slice(0, 40)}, which JavaScript can not hold: write it as a string.`
    }
  }
  return keys === countKeys(value) ? undefined : "An object of the payload names the same key twice."
}

const countKeys = (value: unknown): number => {
  if (typeof value !== "object" || value === null) return 0
  const members = Object.values(value)
  return (Array.isArray(value) ? 0 : members.length) + members.reduce((sum: number, one) => sum + countKeys(one), 0)
}

/** A number's digits without zeros at either end, and its exponent: the same for every way to write it. */
const decimal = (text: string): string => {
  const [, sign = "", whole = "", fraction = "", exponent = "0"] =
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text) ?? []
  const digits = `${whole}${fraction}`.replace(/^0+/, "")
  const significant = digits.replace(/0+$/, "")
  if (significant === "") return "0"
  const power = BigInt(exponent) - BigInt(fraction.length) + BigInt(digits.length - significant.length)
  return `${sign}${significant}e${power}`
}
