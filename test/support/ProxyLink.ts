/**
 * One connection through the proxy: both of its sockets, and what the rules make of the packets between them.
 */
import { randomUUID } from "node:crypto"
import { Socket } from "node:net"
import { Effect } from "effect"
import type { Rule } from "./ProxyRule.js"

const query = 0x03
const prepare = 0x16
const execute = 0x17

/** What stands before the text of a query where the client may send attributes and sends none: no parameters, one set. */
const noAttributes = Buffer.from([0, 1])

/** The part of a packet with a query that comes before its text. */
const headOf = (packet: Buffer): number => (packet.subarray(5, 7).equals(noAttributes) ? 7 : 5)

/** After these a server closes the connection itself. */
const fatal: ReadonlyArray<number> = [1040, 1153, 4031]

interface ServerError {
  readonly errno: number
  readonly sqlState: string
}

/** A rule's action on one statement, other than to rewrite it. */
interface Hit {
  readonly action: Exclude<Rule["action"], { readonly rewrite: unknown }>
  readonly onHit: (() => void) | undefined
}

/** How often each rule was met and has hit, beside the rules themselves. */
export interface Counted {
  readonly rules: ReadonlyArray<Rule>
  readonly hits: Array<number>
  readonly met: WeakMap<Rule, number>
}

export class Link {
  private readonly server: Socket
  private fromClient = Buffer.alloc(0)
  private readonly held: Array<() => void> = []
  private readonly preparing: Array<string> = []
  private readonly texts = new Map<number, string>()
  private loggedIn = false
  /** Whether this client puts attributes before the texts of its queries. */
  private attributes = false
  private muted: Hit | undefined
  /** Takes what the server answers, in place of the client. */
  private instead: ((chunk: Buffer) => void) | undefined
  private delayed = Promise.resolve()

  constructor(
    private readonly client: Socket,
    port: number,
    host: string,
    private readonly counted: Counted,
    private readonly state: { readonly blackHole: boolean; heldBack: number }
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
        if (!this.state.blackHole && this.muted?.action !== "hang") other.destroy()
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

  silence(): void {
    this.muted = { action: "hang", onHit: undefined }
  }

  resume(): void {
    for (const deliver of this.held.splice(0)) deliver()
  }

  private hold(deliver: () => void): void {
    if (this.state.blackHole) {
      this.state.heldBack++
      this.held.push(deliver)
    } else deliver()
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
    const sent = this.rewritten(packet)
    const hit = text === undefined ? undefined : this.firstHit(text)
    if (hit === undefined) {
      this.server.write(sent)
      return
    }
    const { action, onHit } = hit
    if (action === "swallow" || action === "hang") {
      this.muted = hit
      this.server.write(sent)
      return
    }
    if ("delay" in action || "held" in action) {
      const pause = "delay" in action ? Effect.sleep(action.delay) : action.held.await
      return Effect.runPromise(
        Effect.map(pause, () => {
          this.server.write(sent)
          onHit?.()
        })
      )
    }
    if (action.executed === true) return this.executeAndAnswer(sent, action, onHit)
    this.answerError(action)
    onHit?.()
    return
  }

  /** What this statement has to suffer by the first rule that says so; rewrites are apart. */
  private firstHit(text: string): Hit | undefined {
    for (const [index, rule] of this.counted.rules.entries()) {
      if (typeof rule.action === "object" && "rewrite" in rule.action) continue
      if (this.isHit(index, rule, text)) return { action: rule.action, onHit: rule.onHit }
    }
    return undefined
  }

  private isHit(index: number, rule: Rule, text: string): boolean {
    const { hits, met } = this.counted
    if (!rule.matches.test(text) || (rule.times !== undefined && (hits[index] ?? 0) >= rule.times)) return false
    const before = met.get(rule) ?? 0
    met.set(rule, before + 1)
    if (before < (rule.skip ?? 0)) return false
    hits[index] = (hits[index] ?? 0) + 1
    return true
  }

  /** The packet with the text that the server is to see. */
  private rewritten(packet: Buffer): Buffer {
    const command = packet.length < 5 || packet.readUInt8(3) !== 0 ? undefined : packet.readUInt8(4)
    if (command !== query && command !== prepare) return packet
    const start = headOf(packet)
    const before = packet.toString("utf8", start)
    let text = before
    for (const [index, rule] of this.counted.rules.entries()) {
      if (typeof rule.action !== "object" || !("rewrite" in rule.action)) continue
      if (!this.isHit(index, rule, before)) continue
      text = rule.action.rewrite(text)
      rule.onHit?.()
    }
    if (text === before) return packet
    return commandPacket(packet.subarray(4, start), text)
  }

  private answerError(error: ServerError): void {
    this.client.write(errorPacket(1, error))
    if (fatal.includes(error.errno)) this.end()
  }

  /**
   * Lets the server execute the statement, drops its answer, and answers the error. Where the answer ends is known by a
   * second statement behind it, whose row can not be mistaken.
   */
  private executeAndAnswer(packet: Buffer, error: ServerError, onHit?: () => void): Promise<void> {
    const marker = `proxy-${randomUUID()}`
    const head = this.attributes ? Buffer.from([query, ...noAttributes]) : Buffer.from([query])
    const ask = commandPacket(head, `SELECT '${marker}' AS executed`)
    return new Promise((resolve) => {
      let answer = Buffer.alloc(0)
      // A connection that ends meanwhile has nothing more to forward.
      this.onEnd(resolve)
      this.instead = (chunk) => {
        answer = Buffer.concat([answer, chunk])
        const row = answer.indexOf(marker)
        const end = row + marker.length
        // Behind the row comes one more packet, the end of the result.
        if (row < 0 || answer.length < end + 4 || answer.length < end + 4 + answer.readUIntLE(end, 3)) return
        this.instead = undefined
        this.answerError(error)
        onHit?.()
        resolve()
      }
      this.server.write(Buffer.concat([packet, ask]))
    })
  }

  private textOf(packet: Buffer): string | undefined {
    if (packet.length < 5 || packet.readUInt8(3) !== 0) return undefined
    const command = packet.readUInt8(4)
    if (command === query) {
      this.attributes = headOf(packet) > 5
      return packet.toString("utf8", headOf(packet))
    }
    if (command === prepare) {
      this.preparing.push(packet.toString("utf8", 5))
      return undefined
    }
    return command === execute ? this.texts.get(packet.readUInt32LE(5)) : undefined
  }

  private answered(chunk: Buffer): void {
    if (this.muted !== undefined) {
      this.muted.onHit?.()
      if (this.muted.action === "swallow") this.end()
      return
    }
    if (this.instead !== undefined) {
      this.instead(chunk)
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

/** A packet of the client: the command, with what belongs before the text, and the text. */
const commandPacket = (command: Buffer, text: string): Buffer => {
  const body = Buffer.concat([command, Buffer.from(text, "utf8")])
  const head = Buffer.alloc(4)
  head.writeUIntLE(body.length, 0, 3)
  return Buffer.concat([head, body])
}

export const errorPacket = (sequence: number, { errno, sqlState }: ServerError): Buffer => {
  const message = Buffer.from(`#${sqlState}answered by the proxy`)
  const packet = Buffer.alloc(7 + message.length)
  packet.writeUIntLE(3 + message.length, 0, 3)
  packet.writeUInt8(sequence, 3)
  packet.writeUInt8(0xff, 4)
  packet.writeUInt16LE(errno, 5)
  message.copy(packet, 7)
  return packet
}
