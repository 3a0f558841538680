/**
 * One entry of a job's ledger, and what its text may hold.
 */
import { Context, type DateTime, type Option } from "effect"

/**
 * How an attempt ended. `expired`: its holder vanished and the job was taken over; `reaped`: its holder vanished and the
 * job was ended.
 */
export type AttemptOutcome =
  | "completed"
  | "retry"
  | "dead"
  | "snoozed"
  | "canceled"
  | "released"
  | "expired"
  | "reaped"

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

const secretKey = "[\\w-]*(?:password|passwd|pwd|secret|token|api[_-]?key|authorization|credential|private[_-]?key)[\\w-]*"
const secrets: ReadonlyArray<readonly [RegExp, string]> = [
  [/([a-z][a-z0-9+.-]{0,30}:\/\/)[^\s/@]{1,500}@/gi, "$1***@"],
  [/\b(bearer|basic)\s+[a-z0-9._~+/=-]{4,}/gi, "$1 ***"],
  [new RegExp(`(["']?${secretKey}["']?\\s*[:=]\\s*)("[^"]*"|'[^']*'|[^\\s,;&}]+)`, "gi"), "$1***"]
]

/**
 * Removes what looks like a secret: credentials in URLs, bearer and basic tokens, and the values of keys such as
 * `password`, `secret`, `token`, `apiKey` and `authorization`.
 */
export const redactSecrets = (text: string): string =>
  secrets.reduce((cleaned, [pattern, replacement]) => cleaned.replace(pattern, replacement), text)

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
    return cut(redactor(wellFormed(String(message).slice(0, redactedLength))), messageLength)
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
