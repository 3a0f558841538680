import { describe, expect, layer } from "@effect/vitest"
import { Effect, Ref } from "effect"
import * as Mysql from "mysql2/promise"
import { Database, database } from "../support/Mysql.js"
import * as Proxy from "../support/Proxy.js"
import type { Member } from "../torture/Crew.js"
import { type Fault, type MemberFault, toMember } from "../torture/Faults.js"
import type { Server } from "../torture/Server.js"
import { Tally } from "../torture/Tally.js"

/** A place without a process, its proxy, and a tally of what is done to it. */
const stage = Effect.gen(function* () {
  const { query, url } = yield* Database
  const server: Server = {
    url,
    version: "",
    query,
    lock: () => Effect.die("not for a member"),
    bounce: () => Effect.die("not for a member")
  }
  const proxy = yield* Proxy.make(url)
  const member: Member = { proxy, process: yield* Ref.make<Effect.Effect.Success<Member["process"]>>(undefined) }
  const tally = new Tally<Fault>()
  const suffer = (fault: MemberFault) =>
    Effect.flatMap(tally.arm(fault, "worker-1"), (entry) => toMember(fault, server, member, entry))
  const connect = Effect.acquireRelease(
    Effect.promise(() => Mysql.createConnection(proxy.url)),
    (connection) => Effect.sync(() => connection.destroy())
  )
  return { proxy, tally, suffer, connect }
})

// Side by side, since each has a proxy and a tally of its own, and waits until its faults are over.
describe("the tally of a torture", { concurrent: true }, () => {
  layer(database, { excludeTestServices: true, timeout: "1 minute" })((it) => {
    it.scoped("does not count a fault that meets nobody", () =>
      Effect.gen(function* () {
        const { proxy, suffer, tally } = yield* stage
        const faults = ["kill", "stop", "suspend", "clock", "cut", "black_hole", "full", "error", "hang"] as const
        yield* Effect.forEach(faults, suffer, { concurrency: "unbounded" })
        expect(proxy.rules).toHaveLength(2)
        expect(Object.values(tally.armed)).toEqual(faults.map(() => 1))
        expect(tally.happened).toEqual({})
      })
    )

    it.scoped("counts a connection that is cut, and traffic that is held back", () =>
      Effect.gen(function* () {
        const { connect, suffer, tally } = yield* stage
        yield* connect
        yield* suffer("cut")
        const other = yield* connect
        const asked = yield* Effect.forkScoped(Effect.either(Effect.tryPromise(() => other.query("SELECT 1"))))
        yield* suffer("black_hole")
        expect((yield* asked.await)._tag).toBe("Success")
        expect(tally.happened).toEqual({ cut: 1, black_hole: 1 })
      })
    )

    it.scoped("counts a rule once it has hit, and not before", () =>
      Effect.gen(function* () {
        const { connect, proxy, suffer, tally } = yield* stage
        const connection = yield* connect
        yield* suffer("error")
        const rule = proxy.rules[0]
        expect(rule).toBeDefined()
        if (rule === undefined) return
        proxy.rules[0] = { ...rule, matches: /SELECT 7/, skip: 1, times: 2 }
        const ask = Effect.either(Effect.tryPromise(() => connection.query("SELECT 7")))
        expect((yield* ask)._tag).toBe("Right")
        expect(tally.happened).toEqual({})
        expect((yield* ask)._tag).toBe("Left")
        yield* ask
        expect(tally.happened).toEqual({ error: 1 })
      })
    )
  })
})
