/**
 * A first look at the command line, for mistakes that the parser reports as something else: a misspelled option would be
 * taken for an argument, and so would an option whose value was left out.
 */
import { Option } from "effect"
import { redactSecrets } from "../Attempt.js"
import { type Topic, usageOf } from "./Help.js"

/** Options of every command line, which the parser handles itself. */
const builtIns = ["--help", "-h", "--version", "--wizard", "--completions", "--log-level"]

interface Known {
  readonly name: string
  readonly takesValue: boolean
}

const optionsOf = (topic: Topic): ReadonlyArray<Known> =>
  [...usageOf(topic).matchAll(/\[?(--[a-z][a-z-]*)( [^\]]+)?/g)].map(([, name = "", value]) => ({
    name,
    takesValue: value !== undefined && value.trim() !== ""
  }))

/** What is wrong with the command line, in a sentence; none where the parser may go on. */
export const mistake = (args: ReadonlyArray<string>, topics: ReadonlyArray<Topic>): Option.Option<string> => {
  const [name, ...rest] = args
  if (name === undefined || builtIns.some((option) => name === option || name.startsWith(`${option}=`))) {
    return Option.none()
  }
  const topic = topics.find((known) => known.name === name)
  if (topic === undefined) {
    if (name.startsWith("-")) return Option.some("Options follow the command: leasehold <command> [options].")
    return Option.some(
      `There is no command ${quoted(name)}.${suggestion(
        name,
        topics.map((known) => known.name)
      )} See leasehold --help.`
    )
  }
  const options = optionsOf(topic)
  for (let index = 0; index < rest.length; index++) {
    const arg = rest[index] ?? ""
    if (arg === "--") return Option.none()
    if (!/^--[A-Za-z]/.test(arg)) continue
    const [option = arg, inline] = arg.split("=", 2)
    if (builtIns.includes(option)) return Option.none()
    const known = options.find((candidate) => candidate.name === option)
    if (known === undefined) {
      return Option.some(
        `${topic.name} has no option ${quoted(option)}.${suggestion(
          option,
          options.map((candidate) => candidate.name)
        )} See leasehold ${topic.name} --help.`
      )
    }
    if (!known.takesValue || inline !== undefined) continue
    const value = rest[++index]
    if (value === undefined || /^--[A-Za-z]/.test(value)) {
      return Option.some(`Option ${option} needs a value. See leasehold ${topic.name} --help.`)
    }
  }
  return Option.none()
}

// A URL that stands in the wrong place has its password in it.
const quoted = (text: string): string => JSON.stringify(redactSecrets(text).slice(0, 40))

const suggestion = (wrong: string, known: ReadonlyArray<string>): string => {
  const [nearest] = known
    .map((right) => ({ right, apart: distance(wrong, right) }))
    .filter(({ apart }) => apart <= 2)
    .sort((a, b) => a.apart - b.apart)
  return nearest === undefined ? "" : ` Did you mean ${nearest.right}?`
}

/** How many letters have to be changed, added or left out to make one word of the other. */
const distance = (a: string, b: string): number => {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const change = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)
      next.push(Math.min(change, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1))
    }
    row = next
  }
  return row[b.length] ?? 0
}
