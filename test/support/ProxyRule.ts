/**
 * What a proxy can be told to do to statements.
 */

import type { Effect } from "effect"

/** What happens to a statement whose text matches. */
export interface Rule {
  readonly matches: RegExp
  /**
   * - `swallow`: the server executes it; its answer is dropped and the connection cut.
   * - `hang`: the server executes it; neither its answer nor anything after it ever comes back.
   * - an error: the client is answered with that error. The server never sees the statement, or, with `executed`, has
   *   executed it to its end. Errors after which a server closes the connection close it here too.
   * - `delay`: it reaches the server so many milliseconds later.
   * - `held`: it reaches the server when the latch is open. What has to happen before it then has all the time that it needs.
   * - `rewrite`: the server gets another text. Other rules see the text as it was.
   */
  readonly action:
    | "swallow"
    | "hang"
    | { readonly errno: number; readonly sqlState: string; readonly executed?: boolean }
    | { readonly delay: number }
    | { readonly held: Effect.Latch }
    | { readonly rewrite: (text: string) => string }
  /** How many matching statements pass before the first that is hit; default none. */
  readonly skip?: number
  /** How often; default always. */
  times?: number
  /** Told each time when the client has suffered it: an answer was dropped, an error answered, a delay or a latch is over. */
  readonly onHit?: () => void
}

/** The errors of servers that are overloaded, changing their role, or at odds with a statement: what each looks like. */
export const errors = {
  deadlock: { errno: 1213, sqlState: "40001" },
  lockWaitTimeout: { errno: 1205, sqlState: "HY000" },
  tooManyConnections: { errno: 1040, sqlState: "08004" },
  syntax: { errno: 1064, sqlState: "42000" },
  packetTooLarge: { errno: 1153, sqlState: "08S01" },
  readOnlyOption: { errno: 1290, sqlState: "HY000" },
  readOnlyMode: { errno: 1836, sqlState: "HY000" },
  idleTimeout: { errno: 4031, sqlState: "HY000" }
} as const
