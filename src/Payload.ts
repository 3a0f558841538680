/**
 * Values of a job as exact text: payloads and outputs are stored as the JSON that their schema encodes to, and nothing that
 * JSON would change on the way is accepted.
 *
 * @module
 */
import { createHash } from "node:crypto"
import { Context, Effect, Either, ParseResult, Schema } from "effect"
import { PayloadInvalid, PayloadTooLarge } from "./QueueError.js"

/**
 * How many bytes of UTF-8 a payload or output may have. Default 1 MiB; a program changes it by
 * `Layer.succeed(Payload.Limit, bytes)`. The server's `max_allowed_packet` bounds it in any case.
 */
export class Limit extends Context.Reference<Limit>()("leasehold/PayloadLimit", {
  defaultValue: () => 1024 * 1024
}) {}

/** Levels of nesting above which a value is refused, long before any recursion could overflow the stack. */
const deepest = 1_000

/** Both ways between values and stored text. */
export interface Codec<A> {
  /** The value as text; null where the schema encodes to `undefined`, as `Schema.Void` does. */
  readonly encode: (value: A) => Either.Either<string | null, PayloadInvalid>
  /** The value that a stored text stands for. */
  readonly decode: (text: string | null) => Effect.Effect<A, PayloadInvalid>
}

/** A codec that takes parsed JSON, too. */
export interface JsonCodec<A> extends Codec<A> {
  /** The value that parsed JSON stands for. */
  readonly decodeJson: (json: unknown) => Effect.Effect<A, PayloadInvalid>
}

/** A schema as a codec, compiled once. `decodeJson` takes JSON that was parsed before, as the steps between versions leave it. */
export const codec = <A, I>(schema: Schema.Schema<A, I>, jobType: string, part: "payload" | "output"): JsonCodec<A> => {
  const encodeValue = Schema.encodeEither(schema)
  const decodeValue = Schema.decodeUnknown(schema)
  const invalid = (reason: string) => new PayloadInvalid({ jobType, part, reason })
  const unfit = (error: ParseResult.ParseError) => invalid(`it does not fit its schema ${placesOf(error)}`)
  const decodeJson = (json: unknown): Effect.Effect<A, PayloadInvalid> => {
    try {
      const decoded = decodeValue(json)
      // Nearly every schema answers at once, without an effect.
      if (isImmediate(decoded)) return Either.mapLeft(decoded, unfit)
      return Effect.catchAllDefect(Effect.mapError(decoded, unfit), () => Effect.fail(invalid("its schema threw")))
    } catch {
      return Effect.fail(invalid("its schema threw"))
    }
  }
  return {
    encode: (value) => {
      try {
        const encoded = encodeValue(value)
        if (Either.isLeft(encoded)) return Either.left(unfit(encoded.left))
        if (encoded.right === undefined) return Either.right(null)
        const flaw = findFlaw(encoded.right, "it", 0) ?? findDropped(value, encoded.right)
        return flaw === undefined ? Either.right(JSON.stringify(encoded.right)) : Either.left(invalid(flaw))
      } catch {
        return Either.left(invalid("reading it threw, or it is circular"))
      }
    },
    decode: (text) => {
      let json: unknown
      try {
        json = text === null ? undefined : JSON.parse(text)
      } catch {
        return Effect.fail(invalid("the stored text is no JSON"))
      }
      return decodeJson(json)
    },
    decodeJson
  }
}

/** An `Either` is an effect that has its answer already. */
export const isImmediate = <A, E>(effect: Effect.Effect<A, E>): effect is Either.Either<A, E> => Either.isEither(effect)

/** Where an encoded value does not survive JSON; undefined where it does. */
const findFlaw = (value: unknown, place: string, depth: number): string | undefined => {
  if (depth > deepest) return `it is nested more than ${deepest} levels deep`
  if (value === null || typeof value === "string" || typeof value === "boolean") return undefined
  if (typeof value === "number")
    return Number.isFinite(value) ? undefined : `${place} is a number that JSON can not hold`
  if (Array.isArray(value) && !("toJSON" in value)) {
    for (let index = 0; index < value.length; index++) {
      const flaw = findFlaw(value[index], `${place}[${index}]`, depth + 1)
      if (flaw !== undefined) return flaw
    }
    return undefined
  }
  if (typeof value !== "object") return `${place} is a ${typeof value}, which JSON can not hold`
  const prototype: unknown = Object.getPrototypeOf(value)
  if ((prototype !== Object.prototype && prototype !== null) || "toJSON" in value) {
    return `${place} is no plain object; give its schema an encoded form that is JSON`
  }
  for (const [key, member] of Object.entries(value)) {
    // An undefined member is left out of JSON, as an optional field of a schema means it.
    const flaw = member === undefined ? undefined : findFlaw(member, `${place}.${placeName(key)}`, depth + 1)
    if (flaw !== undefined) return flaw
  }
  return undefined
}

/**
 * A record schema copies keys by assignment, which for the key `__proto__` sets a prototype instead: the key would be gone
 * without a word.
 */
const findDropped = (value: unknown, encoded: unknown): string | undefined =>
  value !== encoded && hasProtoKey(value, new Set()) && !hasProtoKey(encoded, new Set())
    ? "it has a key __proto__, which its schema drops"
    : undefined

const hasProtoKey = (value: unknown, seen: Set<object>): boolean => {
  if (typeof value !== "object" || value === null || seen.has(value)) return false
  seen.add(value)
  return Object.hasOwn(value, "__proto__") || Object.values(value).some((member) => hasProtoKey(member, seen))
}

/** Field names of a schema say where; keys of data could be secrets, so only identifiers of a usual length are shown. */
const placeName = (key: string): string => (/^[A-Za-z_]\w{0,39}$/.test(key) ? key : "…")

// ParseResult's own text quotes the value that did not fit, so only the paths are kept (law 8).
const placesOf = (error: ParseResult.ParseError | ParseResult.ParseIssue): string => {
  const issue = "issue" in error ? error.issue : error
  const paths = ParseResult.ArrayFormatter.formatIssueSync(issue as ParseResult.ParseIssue).map(({ path }) =>
    path.map((part) => placeName(String(part))).join(".")
  )
  const known = [...new Set(paths)].filter((path) => path !== "").slice(0, 5)
  return known.length === 0 ? "at its root" : `at ${known.join(", ")}`
}

/** The text, or `PayloadTooLarge` where it is longer than the limit. Null, which stands for `undefined`, has no length. */
export const checkSize = <Text extends string | null>(
  text: Text,
  jobType: string,
  part: "payload" | "output",
  limit: number
): Either.Either<Text, PayloadTooLarge> => {
  // UTF-8 has at most 3 bytes per UTF-16 unit: count exactly only where it can matter.
  if (text === null || text.length * 3 <= limit) return Either.right(text)
  const size = Buffer.byteLength(text)
  return size > limit ? Either.left(new PayloadTooLarge({ jobType, part, size, limit })) : Either.right(text)
}

/**
 * What makes two requests under one key the same request: type, queue and payload, the order of object keys aside. The
 * lower-case hexadecimal SHA-256.
 */
export const fingerprint = (type: string, queue: string, payload: string | null): string =>
  createHash("sha256")
    .update(JSON.stringify([type, queue]))
    .update(payload === null ? "" : canonical(JSON.parse(payload)))
    .digest("hex")

const canonical = (value: unknown): string => {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`
  if (typeof value !== "object" || value === null) return JSON.stringify(value)
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${canonical(member)}`).join(",")}}`
}
