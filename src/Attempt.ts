/**
 * One entry of a job's ledger, and what its text may hold.
 *
 * @module
 */
import { Context, type DateTime, type Option } from "effect"

/**
 * How an attempt ended. `expired`: its holder vanished and the job was taken over; `reaped`: its holder vanished and the
 * job was ended.
 */
export type AttemptOutcome = "completed" | "retry" | "dead" | "snoozed" | "canceled" | "released" | "expired" | "reaped"

/** One start of a job. An attempt without an end is running now, or its holder has vanished. */
export interface Attempt {
  readonly attempt: number
  readonly token: number
  readonly worker: string
  readonly startedAt: DateTime.Utc
  readonly endedAt: Option.Option<DateTime.Utc>
  readonly outcome: Option.Option<AttemptOutcome>
  readonly errorCode: Option.Option<string>
  readonly errorMessage: Option.Option<string>
}

/** The ledger keeps this many attempts of a job: the last ones. */
export const ledgerLength = 50

/** An error code is cut at this many characters. */
export const codeLength = 64

/** An error message is cut at this many characters, after redaction. */
export const messageLength = 1_000

/** How much of a message the redactor sees: enough for 1,000 characters, and little enough for any regular expression. */
const redactedLength = 10_000

/** Credentials in a URL: everything up to the last @ before its path. */
const inUrls = /([a-z][a-z0-9+.-]{0,30}:\/\/)[^\s/?#]{1,500}@/gi

/** Tokens that name their own scheme. */
const inHeaders = /\b(bearer|basic)\s+[a-z0-9._~+/=-]{4,}/gi

/**
 * A key with a telling word in it, what separates it from its value (quotes of nested JSON may be escaped), and the
 * value: quoted, or up to the next separator, the name of an authorization scheme in front. A match starts only where a
 * word does, and no text can be split between two parts in more than one way, so no text makes it slow.
 */
const inValues = new RegExp(
  [
    /(?<![\w-])(?=[\w-]*?(?:passw|pwd|passphrase|secret|token|credential|authorization|cookie|(?:api|private)[_-]?key))/,
    /([\w-]+\\*["']?\s*[:=]\s*)/,
    /(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?:(?:bearer|basic|token|digest|negotiate|apikey)\s+)?[^\s,;&}]+)/
  ]
    .map(({ source }) => source)
    .join(""),
  "gi"
)

/**
 * Removes what looks like a secret: credentials in URLs, bearer and basic tokens, and the values of keys such as
 * `password`, `secret`, `token`, `apiKey` and `authorization`.
 */
export const redactSecrets = (text: string): string =>
  text.replace(inUrls, "$1***@").replace(inValues, "$1***").replace(inHeaders, "$1 ***")

/**
 * What is done to every error message before it is stored. Default {@link redactSecrets}; a program replaces it by
 * `Layer.succeed(Attempt.Redactor, (text) => …)`. A redactor that throws leaves nothing of the message.
 */
export class Redactor extends Context.Reference<Redactor>()("leasehold/Redactor", {
  defaultValue: () => redactSecrets
}) {}

/** An error message as it may be stored: redacted, well-formed, and cut between code points at 1,000 characters. */
export const storableMessage = (message: unknown, redactor: (text: string) => string): string => {
  try {
    const redacted = redactor(String(message).slice(0, redactedLength))
    return cut(wellFormed(redacted.slice(0, redactedLength)), messageLength)
  } catch {
    return "The redactor failed on this message"
  }
}

/** An error code as it may be stored: well-formed and cut at 64 characters. */
export const storableCode = (code: unknown): string => {
  try {
    return cut(wellFormed(String(code).slice(0, 4 * codeLength)), codeLength)
  } catch {
    return "unknown"
  }
}

// MySQL's utf8mb4 refuses a lone half of a surrogate pair; `String.prototype.toWellFormed` is not typed in ES2022.
const wellFormed = (text: string): string =>
  text.replace(/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g, "\uFFFD")

const cut = (text: string, length: number): string => {
  if (text.length <= length) return text
  const points = Array.from(text)
  return points.length <= length ? text : `${points.slice(0, length - 1).join("")}…`
}
