/**
 * The names of the library's tables in one database. A prefix keeps two installs in one database apart.
 */
import { Effect } from "effect"
import { InvalidName } from "../QueueError.js"

export interface Tables {
  readonly prefix: string
  readonly jobs: string
  readonly queues: string
  readonly refusals: string
  readonly migrations: string
}

/** Default `leasehold_`. Lower case only, so that servers which fold the case of table names agree with the others. */
export const defaultPrefix = "leasehold_"

/** Fails with `InvalidName` unless the prefix is a lower-case letter and up to 29 of `a-z 0-9 _`. */
export const make = (prefix: string): Effect.Effect<Tables, InvalidName> =>
  /^[a-z][a-z0-9_]{0,29}$/.test(prefix)
    ? Effect.succeed({
        prefix,
        jobs: `${prefix}jobs`,
        queues: `${prefix}queues`,
        refusals: `${prefix}refusals`,
        migrations: `${prefix}migrations`
      })
    : Effect.fail(new InvalidName({ kind: "table prefix", name: String(prefix) }))
