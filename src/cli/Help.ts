/**
 * The pages of help: an overview, and one for each command, with its options as the parser knows them.
 */
import * as CliConfig from "@effect/cli/CliConfig"
import type * as HelpDoc from "@effect/cli/HelpDoc"
import type * as Span from "@effect/cli/HelpDoc/Span"
import * as Usage from "@effect/cli/Usage"
import { meanings } from "./ExitCode.js"
import type { Page } from "./Verb.js"

/** What help needs of a command. */
export interface Topic {
  readonly name: string
  readonly page: Page
  readonly usage: Usage.Usage
  readonly doc: HelpDoc.HelpDoc
}

const config = CliConfig.make({ showBuiltIns: false })

/** How the parser would write the command line: `show [--json] <id>`. */
export const usageOf = (topic: Topic): string => Usage.enumerate(topic.usage, config).map(textOf).join(" ").trim()

/** The arguments and options with what they mean, in order. */
const termsOf = (topic: Topic): ReadonlyArray<readonly [term: string, meaning: string]> => definitionsOf(topic.doc)

const definitionsOf = (doc: HelpDoc.HelpDoc): ReadonlyArray<readonly [string, string]> => {
  switch (doc._tag) {
    case "Sequence":
      return [...definitionsOf(doc.left), ...definitionsOf(doc.right)]
    case "DescriptionList":
      return doc.definitions.map(([term, meaning]) => [textOf(term), meaningOf(meaning)] as const)
    default:
      return []
  }
}

/** The parser puts what it knows of the kind of value before our own description, and whether it is optional after it. */
const meaningOf = (doc: HelpDoc.HelpDoc): string => paragraphsOf(doc)[1] ?? ""

const paragraphsOf = (doc: HelpDoc.HelpDoc): ReadonlyArray<string> => {
  switch (doc._tag) {
    case "Sequence":
      return [...paragraphsOf(doc.left), ...paragraphsOf(doc.right)]
    case "Paragraph":
      return [textOf(doc.value)]
    default:
      return []
  }
}

const textOf = (span: Span.Span): string => {
  switch (span._tag) {
    case "Text":
    case "URI":
      return span.value
    case "Sequence":
      return textOf(span.left) + textOf(span.right)
    default:
      return textOf(span.value)
  }
}

const columns = (pairs: ReadonlyArray<readonly [string, string]>): ReadonlyArray<string> => {
  const width = Math.max(...pairs.map(([left]) => left.length))
  return pairs.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`.trimEnd())
}

const section = (title: string, body: ReadonlyArray<string>): ReadonlyArray<string> =>
  body.length === 0 ? [] : ["", `${title}:`, ...body]

export const pageOf = (topic: Topic): ReadonlyArray<string> => {
  const terms = termsOf(topic)
  const args = terms.filter(([term]) => term.startsWith("<"))
  const options = terms.filter(([term]) => term.startsWith("-"))
  const shown = args.map(([term]) => (usageOf(topic).includes(`[${term}]`) ? `[${term}]` : term))
  return [
    `leasehold ${topic.name}: ${topic.page.summary}`,
    "",
    `Usage: leasehold ${[topic.name, ...(options.length > 0 ? ["[options]"] : []), ...shown].join(" ")}`,
    ...(topic.page.about ?? []).flatMap((paragraph) => ["", paragraph]),
    ...section("Arguments", args.length === 0 ? [] : columns(args)),
    ...section("Options", options.length === 0 ? [] : columns(options)),
    ...section(
      "Examples",
      topic.page.examples.map((example) => `  ${example}`)
    ),
    "",
    "Exit codes: see leasehold --help"
  ]
}

export const overview = (version: string, topics: ReadonlyArray<Topic>): ReadonlyArray<string> => [
  `leasehold ${version}: durable background jobs in MySQL`,
  "",
  "Usage: leasehold <command> [options]",
  ...section("Commands", columns(topics.map(({ name, page }) => [name, page.summary] as const))),
  ...section("Everywhere", [
    ...columns([
      ["--help", "This page, or that of a command: leasehold list --help"],
      ["--version", "The version"],
      ["--completions sh|bash|fish|zsh", "A script that completes commands and options: see docs/command.md"]
    ])
  ]),
  ...section("Environment", [
    ...columns([["LEASEHOLD_MYSQL_URL", "The database, as mysql://user:password@host:3306/database; --url wins"]])
  ]),
  ...section(
    "Exit codes",
    meanings.map(([code, meaning]) => `  ${String(code).padStart(3)}  ${meaning}`)
  )
]
