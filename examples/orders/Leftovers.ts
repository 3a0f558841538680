/**
 * What a stopped demo says about the orders that it leaves: which ones, and what will happen to them.
 */
import { Duration, Option } from "effect"
import { isOpen, type Line } from "./Board.js"
import { seconds } from "./Table.js"

export interface Circumstances {
  /** The id of the worker that was stopped. */
  readonly worker: string
  /** The server was started for this run and ends with it. */
  readonly ephemeral: boolean
  /** As it may be shown. */
  readonly url: string
}

/** Nothing, where every job has ended. */
export const describe = (
  lines: ReadonlyArray<Line>,
  { ephemeral, url, worker }: Circumstances
): ReadonlyArray<string> => {
  const open = lines.filter(isOpen)
  if (open.length === 0) return []
  const running = open.filter(({ state }) => state === "running")
  const pending = open.filter(({ state }) => state === "pending")
  const isMine = (line: Line) => Option.contains(line.worker, worker)
  const cutOff = running.filter(isMine)
  const failed = pending.filter(({ trouble }) => Option.isSome(trouble))
  const givenBack = pending.filter(({ attempt, trouble }) => attempt > 0 && Option.isNone(trouble))
  return [
    open.length === 1 ? "1 job is not finished:" : `${open.length} jobs are not finished:`,
    ...group(
      cutOff,
      "cut off, nothing was written",
      `The lease ends within ${longest(cutOff)}, then the next worker runs it again, as attempt ${attempts(cutOff)}.`
    ),
    ...group(
      running.filter((line) => !isMine(line)),
      "held by another worker",
      "That worker goes on; should it vanish, the next one takes over when the lease ends."
    ),
    ...group(failed, "failed before", `The next worker tries again, as attempt ${attempts(failed)}.`),
    ...group(
      givenBack,
      "claimed and given back before their export began",
      `The next worker runs it, as attempt ${attempts(givenBack)}.`
    ),
    ...group(
      pending.filter(({ attempt }) => attempt === 0),
      "not started",
      "The next worker runs it, as attempt 1."
    ),
    ...(ephemeral
      ? [
          "But this MySQL server was started for this run alone, and is gone now with all of them.",
          "On a server that stays (--url or LEASEHOLD_MYSQL_URL) the next run goes on with such jobs."
        ]
      : [
          "There is nothing to repair: any worker goes on with them. For example:",
          `  npm run demo -- --orders 0 --url ${url}`
        ])
  ]
}

const group = (lines: ReadonlyArray<Line>, what: string, fate: string): ReadonlyArray<string> =>
  lines.length === 0 ? [] : [`  ${lines.length} ${what}: ${named(lines)}.`, `    ${fate}`]

const most = 10

const named = (lines: ReadonlyArray<Line>): string => {
  const names = lines.slice(0, most).map(({ job, order }) => `job ${job} (order ${order})`)
  return [...names, ...(lines.length > most ? [`and ${lines.length - most} more`] : [])].join(", ")
}

const longest = (lines: ReadonlyArray<Line>) =>
  seconds(lines.map(({ dueIn }) => dueIn).reduce((one, other) => Duration.max(one, other), Duration.zero))

const attempts = (lines: ReadonlyArray<Line>): string =>
  Array.from(new Set(lines.map(({ attempt }) => attempt + 1)))
    .sort((one, other) => one - other)
    .join(" or ")
