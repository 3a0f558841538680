/**
 * The only values that become part of a statement's text: names that the caller's side has checked, whole numbers, and bytes
 * as hexadecimal digits. Nothing here depends on quoting rules, so no `sql_mode` and no content can change a statement.
 */
import { Duration } from "effect"
import { isValidName } from "../Definition.js"
import type { JobId } from "../JobRecord.js"

/** A queue name, job type or worker id; text that can be none of these is compared as it is, and matches nothing. */
export const name = (value: string): string => (isValidName(value) ? `'${value}'` : text(value))

export const integer = (value: number): string => {
  if (!Number.isSafeInteger(value)) throw new Error("A number that is not whole reached a statement")
  return String(value)
}

/** An id or cursor: decimal digits of an unsigned 64-bit number. */
export const digits = (text: JobId | string): string => {
  if (!/^[0-9]{1,20}$/.test(text)) throw new Error("An id that was not checked reached a statement")
  return text
}

/** A place for a whole number that is bound as text, exact in all 64 bits. */
export const boundNumber = "CAST(? AS UNSIGNED)"

/** Text of any content, as utf8mb4. */
export const text = (value: string | null): string =>
  value === null ? "NULL" : `CONVERT(X'${Buffer.from(value, "utf8").toString("hex")}' USING utf8mb4)`

/** A duration as an interval of whole microseconds. */
export const interval = (duration: Duration.Duration): string => `INTERVAL ${microseconds(duration)} MICROSECOND`

/** A duration in whole microseconds, as digits. */
export const microseconds = (duration: Duration.Duration): string =>
  BigInt(Math.round(Duration.toMillis(duration) * 1_000)).toString()

/** Ids in ascending order, so that two transactions never lock the same rows in opposite orders. */
export const sortedIds = (ids: ReadonlyArray<JobId>): string =>
  [...ids]
    .sort((a, b) => a.length - b.length || (a < b ? -1 : 1))
    .map(digits)
    .join(", ")
