/**
 * A TCP proxy on loopback between the library and its server, that does to connections what networks and servers do.
 *
 * It reads just enough of the protocol to know the text of each statement that a client sends.
 */

import { createServer, type Server } from "node:net"
import { Effect, type Scope } from "effect"
import { errorPacket, Link } from "./ProxyLink.js"
import { errors, type Rule } from "./ProxyRule.js"

export { errors, type Rule } from "./ProxyRule.js"

export interface Proxy {
  readonly url: string
  /** Rules are tried in order; what none of them matches passes. */
  readonly rules: Array<Rule>
  /** How many statements each rule has hit so far, by its index. */
  readonly hits: Array<number>
  /** Lets nothing through in either direction, without closing anything; new connections are taken and not answered. */
  readonly blackHole: (on: boolean) => Effect.Effect<void>
  /** Refuses new connections and cuts those that are open. */
  readonly down: (on: boolean) => Effect.Effect<void>
  /** Leads new connections to another server, as an address does after a failover; those that are open stay where they are. */
  readonly aim: (target: string) => Effect.Effect<void>
  /** Answers new connections with an error 1040, as a server does that has too many. */
  readonly full: (on: boolean) => Effect.Effect<void>
  /** From now on nothing comes back on the connections that are open now, as when a firewall has forgotten them. */
  readonly silence: Effect.Effect<void>
  /** Cuts every connection that is open now. */
  readonly cut: Effect.Effect<void>
  /** Connections that the server has open through the proxy now. */
  readonly open: () => number
  /** What connections have suffered since the proxy was made, apart from its rules. */
  readonly suffered: () => Suffered
}

export interface Suffered {
  /** Connections that were open and were cut. */
  readonly cut: number
  /** Attempts to connect that were cut off or answered with an error. */
  readonly refused: number
  /** Pieces of traffic that a black hole held back. */
  readonly heldBack: number
}

export const make = (target: string): Effect.Effect<Proxy, never, Scope.Scope> =>
  Effect.gen(function* () {
    let url = new URL(target)
    const links = new Set<Link>()
    const rules: Array<Rule> = []
    const hits: Array<number> = []
    const counted = { rules, hits, met: new WeakMap<Rule, number>() }
    const state = { blackHole: false, down: false, full: false, heldBack: 0 }
    let cuts = 0
    let refused = 0
    const server = yield* Effect.acquireRelease(
      Effect.async<Server>((resume) => {
        const listening = createServer((client) => {
          client.on("error", () => client.destroy())
          if (state.down || state.full) refused++
          if (state.down) return client.destroy()
          if (state.full) return client.end(errorPacket(0, errors.tooManyConnections))
          const link = new Link(client, Number(url.port), url.hostname, counted, state)
          links.add(link)
          link.onEnd(() => links.delete(link))
        })
        listening.listen(0, "127.0.0.1", () => resume(Effect.succeed(listening)))
      }),
      (listening) =>
        Effect.async<void>((resume) => {
          for (const link of links) link.end()
          listening.close(() => resume(Effect.void))
        })
    )
    const address = server.address()
    const through = new URL(target)
    through.hostname = "127.0.0.1"
    through.port = String(typeof address === "object" && address !== null ? address.port : 0)
    const cut = Effect.sync(() => {
      for (const link of links) {
        cuts++
        link.end()
      }
    })
    return {
      url: through.href,
      rules,
      hits,
      blackHole: (on) =>
        Effect.sync(() => {
          state.blackHole = on
          if (!on) {
            for (const link of links) link.resume()
          }
        }),
      down: (on) =>
        Effect.zipRight(
          Effect.sync(() => {
            state.down = on
          }),
          on ? cut : Effect.void
        ),
      aim: (other) =>
        Effect.sync(() => {
          url = new URL(other)
        }),
      full: (on) =>
        Effect.sync(() => {
          state.full = on
        }),
      silence: Effect.sync(() => {
        for (const link of links) link.silence()
      }),
      cut,
      open: () => links.size,
      suffered: () => ({ cut: cuts, refused, heldBack: state.heldBack })
    }
  })
