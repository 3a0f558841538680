/**
 * The demo's options, from the command line.
 */

import { parseArgs } from "node:util"
import { Data, Duration, Either, Option } from "effect"

export interface Options {
  readonly orders: number
  readonly handlerDelay: Duration.Duration
  readonly failRate: number
  readonly concurrency: number
  readonly lease: Duration.Duration
  readonly reap: Duration.Duration
  /** None: the launcher finds or starts a server. */
  readonly url: Option.Option<string>
  readonly json: boolean
}

/** What was asked for on the command line. */
export type Wish = { readonly _tag: "Run"; readonly options: Options } | { readonly _tag: "Help" }

/** The command line can not be used. */
export class UsageError extends Data.TaggedError("UsageError")<{ readonly message: string }> {}

/** One option that takes a value: how it is read, and what a person is told about it. */
interface Flag<A> {
  readonly value: string
  readonly fallback: string
  readonly about: string
  readonly accepted: string
  /** None: the text is not accepted. */
  readonly read: (text: string) => Option.Option<A>
}

const wholeNumber = (least: number, most: number) => ({
  accepted: `a whole number from ${least} to ${most}`,
  read: (text: string) =>
    Option.filter(Option.some(/^\d{1,9}$/.test(text) ? Number(text) : -1), (n) => n >= least && n <= most)
})

const units: { readonly [unit: string]: number } = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 }

const duration = (least: string, most: string) => {
  const millis = (text: string): number => {
    const match = /^(\d{1,9}(?:\.\d{1,6})?) ?(ms|s|m|h)$/.exec(text)
    return match === null ? Number.NaN : Number(match[1]) * (units[match[2] ?? ""] ?? Number.NaN)
  }
  return {
    accepted: `${least} to ${most}, such as 500ms, 2s or 1.5m`,
    read: (text: string) =>
      Option.map(
        Option.filter(Option.some(millis(text)), (time) => time >= millis(least) && time <= millis(most)),
        Duration.millis
      )
  }
}

const share = {
  accepted: "a number from 0 to 1",
  read: (text: string) =>
    Option.filter(Option.some(/^\d*\.?\d+$/.test(text) ? Number(text) : -1), (n) => n >= 0 && n <= 1)
}

/** The library needs a database to put its tables into, so the name belongs to the URL. */
const url = {
  accepted: "mysql://user:password@host:3306/database, with the name of a database that exists",
  read: (text: string): Option.Option<Option.Option<string>> => {
    if (text === "") return Option.some(Option.none())
    if (!URL.canParse(text)) return Option.none()
    const { hostname, pathname, protocol } = new URL(text)
    return protocol === "mysql:" && hostname !== "" && /^\/[^/]+$/.test(pathname)
      ? Option.some(Option.some(text))
      : Option.none()
  }
}

const flags = {
  orders: {
    value: "N",
    fallback: "12",
    about: "Orders to place. 0: place none, only work, until Ctrl-C",
    ...wholeNumber(0, 10_000)
  },
  "handler-delay": {
    value: "TIME",
    fallback: "800ms",
    about: "How long an export takes at least; up to half as much again",
    ...duration("0ms", "1h")
  },
  "fail-rate": { value: "SHARE", fallback: "0", about: "How many of the attempts fail, from 0 to 1", ...share },
  concurrency: { value: "N", fallback: "4", about: "Exports at once", ...wholeNumber(1, 1_000) },
  lease: {
    value: "TIME",
    fallback: "5s",
    about: "How long a worker holds a job without renewing it",
    ...duration("300ms", "1h")
  },
  reap: {
    value: "TIME",
    fallback: "5s",
    about: "How often to look for jobs that are out of attempts and whose worker is gone",
    ...duration("1s", "1h")
  },
  url: {
    value: "URL",
    fallback: "",
    about: "The MySQL to use. Default: LEASEHOLD_MYSQL_URL, else one is started for this run alone",
    ...url
  }
} satisfies { readonly [name: string]: Flag<unknown> }

/** Reads the command line; the first thing that is wrong with it is what it fails with. */
export const parse = (args: ReadonlyArray<string>): Either.Either<Wish, UsageError> =>
  Either.gen(function* () {
    const given = yield* Either.try({
      try: () =>
        parseArgs({
          args: joinNegative(args),
          strict: true,
          allowPositionals: false,
          options: {
            orders: { type: "string" },
            "handler-delay": { type: "string" },
            "fail-rate": { type: "string" },
            concurrency: { type: "string" },
            lease: { type: "string" },
            reap: { type: "string" },
            url: { type: "string" },
            json: { type: "boolean" },
            help: { type: "boolean", short: "h" }
          }
        }).values,
      catch: (error) => new UsageError({ message: error instanceof Error ? error.message : String(error) })
    })
    if (given.help === true) return { _tag: "Help" } as const
    const read = <A>(name: Exclude<keyof typeof given, "json" | "help"> & string, flag: Flag<A>) =>
      Either.fromOption(
        flag.read(given[name] ?? flag.fallback),
        () =>
          new UsageError({
            // A URL can hold a password, which must not come back on the screen.
            message:
              `--${name} is ${name === "url" ? "no URL that can be used" : JSON.stringify(given[name])}; `
              + `accepted: ${flag.accepted}.`
          })
      )
    const options: Options = {
      orders: yield* read("orders", flags.orders),
      handlerDelay: yield* read("handler-delay", flags["handler-delay"]),
      failRate: yield* read("fail-rate", flags["fail-rate"]),
      concurrency: yield* read("concurrency", flags.concurrency),
      lease: yield* read("lease", flags.lease),
      reap: yield* read("reap", flags.reap),
      url: yield* read("url", flags.url),
      json: given.json ?? false
    }
    return { _tag: "Run", options } as const
  })

/** `--orders -5` is a bad number, and `parseArgs` would complain about its dash instead. */
const joinNegative = (args: ReadonlyArray<string>): Array<string> => {
  const joined: Array<string> = []
  for (const arg of args) {
    const last = joined.at(-1)
    if (/^-\.?\d/.test(arg) && last?.startsWith("--") === true && !last.includes("="))
      joined[joined.length - 1] = `${last}=${arg}`
    else joined.push(arg)
  }
  return joined
}

const describeFlag = ([name, flag]: readonly [string, Flag<unknown>]): string => {
  const usual = flag.fallback === "" ? "" : ` (${flag.fallback})`
  return `  ${`--${name} ${flag.value}`.padEnd(22)}${flag.about}${usual}\n${" ".repeat(24)}${flag.accepted}`
}

export const help = `Places orders and exports each of them by a job that was committed in the order's own transaction.

  npm run demo -- [options]

${Object.entries(flags).map(describeFlag).join("\n")}
  --json                Print nothing but one JSON line for each order, at the end:
                        {"order", "job", "order_status", "state", "attempt"}
  --help                Print this

Ctrl-C stops gracefully; a second Ctrl-C stops at once. Exit code 0: all orders are exported, or a run with --orders 0 was
stopped. 1: some are not and will not be, or the demo failed. 2: bad options. 130: stopped before all were exported.

With --url, several of these can work on the same orders. In two terminals:
  npm run demo -- --url mysql://root@127.0.0.1:3306/demo --orders 40 --handler-delay 2s
  npm run demo -- --url mysql://root@127.0.0.1:3306/demo --orders 0
Then end one of them with kill -9, and watch the other take its jobs over when their leases have run out.`
