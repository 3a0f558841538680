/**
 * What is piped into the command.
 */
import { Context, Effect } from "effect"
import { type CommandFailed, usage } from "./Failure.js"

/** Bytes that are read at the most: more than any payload may have. */
const longest = 64 * 1024 * 1024

/** Where the text comes from: the process's stdin, unless somebody else says so. */
export class Source extends Context.Reference<Source>()("leasehold/cli/Stdin", {
  defaultValue: (): AsyncIterable<Uint8Array | string> => process.stdin
}) {}

/** All of it, as UTF-8. */
export const read: Effect.Effect<string, CommandFailed> = Effect.flatMap(Source, (source) =>
  Effect.tryPromise({
    try: async () => {
      const chunks: Array<Buffer> = []
      let size = 0
      for await (const chunk of source) {
        const bytes = Buffer.from(chunk)
        size += bytes.length
        if (size > longest) throw new Error("too long")
        chunks.push(bytes)
      }
      return Buffer.concat(chunks).toString("utf8")
    },
    catch: () => usage(`The payload can not be read from stdin, or has more than ${longest} bytes.`)
  })
)
