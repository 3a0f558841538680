/**
 * A TCP proxy on loopback between the library and its server, that does to connections what networks and servers do.
 *
 * It reads just enough of the protocol to know the text of each statement that a client sends.
 */

import { createServer, type Server, Socket } from "node:net"
import { Effect, type Scope } from "effect"

/** What happens to a statement whose text matches. */
export interface Rule {
  readonly matches: RegExp
  /**
   * - `swallow`: the server executes it; its answer is dropped and the connection cut.
   * - `hang`: the server executes it; neither its answer nor anything after it ever comes back.
   * - an error: the server never sees it; the client is answered with that error.
   * - `delay`: it reaches the server so many milliseconds later.
   */
  readonly action:
    | "swallow"
    | "hang"
    | { readonly errno: number; readonly sqlState: string }
    | { readonly delay: number }
  /** How often; default always. */
  times?: number
}

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
  /** Cuts every connection that is open now. */
  readonly cut: Effect.Effect<void>
  /** Connections that the server has open through the proxy now. */
  readonly open: () => number
}

export const make = (target: string): Effect.Effect<Proxy, never, Scope.Scope> =>
  Effect.gen(function* () {
    let url = new URL(target)
    const links = new Set<Link>()
    const rules: Array<Rule> = []
    const hits: Array<number> = []
    const state = { blackHole: false, down: false }
    const server = yield* Effect.acquireRelease(
      Effect.async<Server>((resume) => {
        const listening = createServer((client) => {
          if (state.down) return client.destroy()
          const link = new Link(client, Number(url.port), url.hostname, rules, hits, state)
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
      for (const link of links) link.end()
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
      cut,
      open: () => links.size
    }
  })

const query = 0x03
const prepare = 0x16
const execute = 0x17

class Link {
  private readonly server: Socket
  private fromClient = Buffer.alloc(0)
  private readonly held: Array<() => void> = []
  private readonly preparing: Array<string> = []
  private readonly texts = new Map<number, string>()
  private loggedIn = false
  private mute: "no" | "cut" | "hang" = "no"
  private delayed = Promise.resolve()

  constructor(
    private readonly client: Socket,
    port: number,
    host: string,
    private readonly rules: ReadonlyArray<Rule>,
    private readonly hits: Array<number>,
    private readonly state: { readonly blackHole: boolean }
  ) {
    this.server = new Socket()
    this.server.connect(port, host)
    client.on("data", (chunk) => this.hold(() => this.received(Buffer.from(chunk))))
    this.server.on("data", (chunk) => this.hold(() => this.answered(Buffer.from(chunk))))
    for (const [socket, other] of [
      [client, this.server],
      [this.server, client]
    ] as const) {
      socket.on("error", () => other.destroy())
      // A black hole tells nobody that the other side is gone.
      socket.on("close", () => {
        if (!this.state.blackHole && this.mute !== "hang") other.destroy()
      })
    }
  }

  /** The server's side ends last: behind a black hole it outlives the client's. */
  onEnd(listener: () => void): void {
    this.server.on("close", listener)
  }

  end(): void {
    this.client.destroy()
    this.server.destroy()
  }

  resume(): void {
    for (const deliver of this.held.splice(0)) deliver()
  }

  private hold(deliver: () => void): void {
    if (this.state.blackHole) this.held.push(deliver)
    else deliver()
  }

  /** Packets of the client, one after the other: three bytes of length, a number, and the command. */
  private received(chunk: Buffer): void {
    this.fromClient = Buffer.concat([this.fromClient, chunk])
    while (this.fromClient.length >= 4) {
      const length = this.fromClient.readUIntLE(0, 3) + 4
      if (this.fromClient.length < length) return
      const packet = this.fromClient.subarray(0, length)
      this.fromClient = this.fromClient.subarray(length)
      this.delayed = this.delayed.then(() => this.forward(packet))
    }
  }

  private forward(packet: Buffer): Promise<void> | undefined {
    const text = this.textOf(packet)
    const index =
      text === undefined
        ? -1
        : this.rules.findIndex(
            (rule, at) => rule.matches.test(text) && (rule.times === undefined || (this.hits[at] ?? 0) < rule.times)
          )
    const rule = this.rules[index]
    if (rule === undefined) {
      this.server.write(packet)
      return
    }
    this.hits[index] = (this.hits[index] ?? 0) + 1
    if (rule.action === "swallow" || rule.action === "hang") {
      this.mute = rule.action === "swallow" ? "cut" : "hang"
      this.server.write(packet)
      return
    }
    if ("delay" in rule.action) {
      const { delay } = rule.action
      return new Promise((resolve) =>
        setTimeout(() => {
          this.server.write(packet)
          resolve()
        }, delay)
      )
    }
    this.client.write(errorPacket(packet.readUInt8(3) + 1, rule.action.errno, rule.action.sqlState))
  }

  private textOf(packet: Buffer): string | undefined {
    if (packet.readUInt8(3) !== 0 || packet.length < 5) return undefined
    const command = packet.readUInt8(4)
    if (command === query) return packet.toString("utf8", 5)
    if (command === prepare) {
      this.preparing.push(packet.toString("utf8", 5))
      return undefined
    }
    return command === execute ? this.texts.get(packet.readUInt32LE(5)) : undefined
  }

  private answered(chunk: Buffer): void {
    if (this.mute === "hang") return
    if (this.mute === "cut") {
      this.end()
      return
    }
    const preparing = this.loggedIn ? this.preparing[0] : undefined
    // The answer to a prepare starts with a packet whose first byte is 0 and then has the number of the statement.
    if (preparing !== undefined && chunk.length >= 9 && chunk.readUInt8(3) === 1) {
      if (chunk.readUInt8(4) === 0) this.texts.set(chunk.readUInt32LE(5), preparing)
      this.preparing.shift()
    }
    this.loggedIn = true
    this.client.write(chunk)
  }
}

const errorPacket = (sequence: number, errno: number, sqlState: string): Buffer => {
  const message = Buffer.from(`#${sqlState}answered by the proxy`)
  const packet = Buffer.alloc(7 + message.length)
  packet.writeUIntLE(3 + message.length, 0, 3)
  packet.writeUInt8(sequence, 3)
  packet.writeUInt8(0xff, 4)
  packet.writeUInt16LE(errno, 5)
  message.copy(packet, 7)
  return packet
}
