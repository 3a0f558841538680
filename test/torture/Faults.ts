/**
 * What can go wrong in a torture. Each fault is done to one worker process and its network, or to the server, and mended after
 * a while that chance decides.
 */
import { Clock, Duration, Effect, Random, Ref } from "effect"
import * as Proxy from "../support/Proxy.js"
import type { Member } from "./Crew.js"
import * as Records from "./Records.js"
import * as Rolls from "./Rolls.js"
import type { Server } from "./Server.js"
import { type Entry, happened } from "./Tally.js"

/** To a process and its network. */
export const memberFaults = [
  "kill",
  "stop",
  "suspend",
  "clock",
  "cut",
  "black_hole",
  "down",
  "full",
  "error",
  "executed_error",
  "swallow",
  "hang",
  "delay",
  "kill_session"
] as const
export type MemberFault = (typeof memberFaults)[number]

/** To the server. */
export const serverFaults = ["lock", "lock", "lock", "read_only", "restart", "crash"] as const
export type ServerFault = (typeof serverFaults)[number]

/** To the network of those who enqueue and operate. */
export const callerFaults = ["cut_callers"] as const
export type CallerFault = (typeof callerFaults)[number]

export type Fault = MemberFault | ServerFault | CallerFault

/** The library's statements, and the ends of transactions. */
const targets = {
  look: /UNION ALL/,
  lock: /FORCE INDEX \(jobs_claim\)[\s\S]*FOR UPDATE SKIP LOCKED/,
  take: /JSON_ARRAY_APPEND[\s\S]*COMMIT/,
  takeLone: /AS added\b/,
  renew: /SET jobs\.due_at = UTC_TIMESTAMP\(6\) \+ INTERVAL/,
  settle: /SET jobs\.attempts/,
  commit: /COMMIT/,
  any: /./
} as const

/** Those which the library may repeat or ask about: there an error that came after the deed must do no harm. */
const repeatable = [targets.take, targets.takeLone, targets.renew, targets.settle] as const

/** A duration from a range of milliseconds. */
const between = (least: number, most: number): Effect.Effect<Duration.Duration> =>
  Effect.map(Random.nextIntBetween(least, most), Duration.millis)

const during = <A>(turn: (on: boolean) => Effect.Effect<A>, duration: Effect.Effect<Duration.Duration>) =>
  Effect.acquireUseRelease(
    turn(true),
    () => Effect.flatMap(duration, Effect.sleep),
    () => turn(false)
  )

/** One more rule of a proxy, which stays until it has hit. Rules that have never hit are swept away with the mending. */
const addRule = (proxy: Proxy.Proxy, entry: Entry<Fault>) => (rule: Omit<Proxy.Rule, "onHit">) =>
  Effect.sync(() => void proxy.rules.push({ ...rule, onHit: () => happened(entry) }))

/** It happened where a connection has suffered meanwhile, in whatever way or in this one. */
const suffering = (
  proxy: Proxy.Proxy,
  entry: Entry<Fault>,
  act: Effect.Effect<void>,
  ...ways: ReadonlyArray<keyof Proxy.Suffered>
) =>
  Effect.suspend(() => {
    const before = proxy.suffered()
    const some = ways.length === 0 ? (["cut", "refused", "heldBack"] as const) : ways
    return Effect.ensuring(
      act,
      Effect.sync(() => {
        const after = proxy.suffered()
        if (some.some((way) => after[way] > before[way])) happened(entry)
      })
    )
  })

const matching = Effect.flatMap(
  Rolls.pick(["look", "lock", "take", "renew", "settle", "commit", "any"] as const),
  (name) => Effect.succeed(targets[name])
)
const anError = Effect.map(
  Rolls.pick([
    "deadlock",
    "lockWaitTimeout",
    "tooManyConnections",
    "syntax",
    "packetTooLarge",
    "readOnlyOption",
    "readOnlyMode",
    "idleTimeout"
  ] as const),
  (name) => Proxy.errors[name]
)
const aFew = Effect.all({ skip: Random.nextIntBetween(0, 6), times: Random.nextIntBetween(1, 4) })

/** Does a fault to a worker process or its network; answers when it is over. */
export const toMember = (fault: MemberFault, server: Server, { process, proxy }: Member, entry: Entry<Fault>) =>
  Effect.gen(function* () {
    const now = yield* Ref.get(process)
    const note = Effect.sync(() => happened(entry))
    const rule = addRule(proxy, entry)
    switch (fault) {
      case "kill": {
        if (now === undefined) return
        const at = yield* Clock.currentTimeMillis
        if (!(yield* now.running.signal("SIGKILL")) || (yield* now.running.ended) !== "SIGKILL") return
        yield* note
        yield* server.query(`INSERT INTO audit_kills (worker, at) VALUES ('${now.worker}', ${Records.timeOf(at)})`)
        return
      }
      case "stop":
        if (now === undefined || !(yield* now.running.signal("SIGTERM"))) return
        now.life.stoppedAt ??= yield* Clock.currentTimeMillis
        // It takes its time. What comes to this process meanwhile, comes to one that stops.
        yield* Effect.forkDaemon(
          Effect.flatMap(now.running.ended, (end) => (end === 0 || end === "SIGTERM" ? note : Effect.void))
        )
        return
      case "suspend":
        return yield* during(
          (on) =>
            Effect.flatMap(now?.running.signal(on ? "SIGSTOP" : "SIGCONT") ?? Effect.succeed(false), (isThere) =>
              // Still there at its end: it stood still, and did not end before.
              isThere && !on ? note : Effect.void
            ),
          between(300, 7_000)
        )
      case "clock": {
        const by = yield* Rolls.pick([-3_600_000, 3_600_000, -300_000, 300_000, -2_000, 2_000] as const)
        const nonce = entry.armedAt
        yield* during(
          (on) => now?.running.tell(on ? `clock ${by} ${nonce}` : "clock 0") ?? Effect.void,
          between(500, 5_000)
        )
        if ((yield* now?.running.lastWords ?? Effect.succeed([])).includes(`clock ${by} ${nonce}`)) yield* note
        return
      }
      case "cut":
        return yield* suffering(proxy, entry, proxy.cut)
      case "black_hole":
        return yield* suffering(
          proxy,
          entry,
          Effect.zipRight(during(proxy.blackHole, between(300, 4_000)), proxy.cut),
          "heldBack"
        )
      case "down":
        return yield* suffering(proxy, entry, during(proxy.down, between(300, 4_000)))
      case "full":
        return yield* suffering(
          proxy,
          entry,
          Effect.zipRight(proxy.cut, during(proxy.full, between(300, 3_000))),
          "refused"
        )
      case "error":
        return yield* rule({ matches: yield* matching, action: yield* anError, ...(yield* aFew) })
      case "executed_error": {
        const action = { ...(yield* anError), executed: true }
        return yield* rule({ matches: yield* Rolls.pick(repeatable), action, ...(yield* aFew) })
      }
      case "swallow":
      case "hang":
        return yield* rule({ matches: yield* matching, action: fault, ...(yield* aFew), times: 1 })
      case "delay": {
        const delay = yield* Random.nextIntBetween(20, 2_500)
        return yield* rule({ matches: yield* matching, action: { delay }, ...(yield* aFew) })
      }
      case "kill_session":
        return yield* killSession(server, note)
    }
  })

/** Does a fault to the callers' network. */
export const toCallers = (_fault: CallerFault, proxy: Proxy.Proxy, entry: Entry<Fault>) =>
  suffering(proxy, entry, proxy.cut)

/** Does a fault to the server; answers when it is over. */
export const toServer = (fault: ServerFault, server: Server, entry: Entry<Fault>) =>
  Effect.gen(function* () {
    const note = Effect.sync(() => happened(entry))
    switch (fault) {
      case "lock":
        return yield* lockRows(server, note)
      case "read_only":
        return yield* during(
          (on) =>
            server
              .query(`SET GLOBAL super_read_only = ${on ? 1 : 0}, GLOBAL read_only = ${on ? 1 : 0}`)
              .pipe(Effect.zipLeft(on ? note : Effect.void)),
          between(300, 3_000)
        )
      case "restart":
        return yield* server.bounce("SIGTERM", yield* between(0, 2_000), note)
      case "crash":
        return yield* server.bounce("SIGKILL", yield* between(0, 2_000), note)
    }
  })

/** Makes everything whole again that faults may have left. */
export const mend = (server: Server, members: ReadonlyArray<Member>) =>
  Effect.gen(function* () {
    yield* Effect.forEach(
      members,
      ({ process, proxy }) =>
        Effect.gen(function* () {
          proxy.rules.length = 0
          proxy.hits.length = 0
          yield* proxy.down(false)
          yield* proxy.full(false)
          yield* proxy.blackHole(false)
          yield* proxy.cut
          const now = yield* Ref.get(process)
          yield* now?.running.signal("SIGCONT") ?? Effect.void
          yield* now?.running.tell("clock 0") ?? Effect.void
        }),
      { discard: true }
    )
    yield* server.query("SET GLOBAL super_read_only = 0, GLOBAL read_only = 0")
    yield* server.query("UPDATE leasehold_queues SET paused = 0")
  })

/** The server ends one of the sessions that are at work, whoever's it is. */
const killSession = (server: Server, note: Effect.Effect<void>) =>
  Effect.gen(function* () {
    const sessions = yield* server.query(
      "SELECT id FROM information_schema.processlist WHERE db IS NOT NULL AND id <> CONNECTION_ID()"
    )
    const ids = sessions.map((row) => Object.values(row)[0])
    const [first, ...others] = ids
    if (first === undefined) return
    const id = yield* Rolls.pick([first, ...others])
    // It may have ended by itself meanwhile.
    yield* Effect.ignore(Effect.sandbox(Effect.zipRight(server.query(`KILL ${Number(id)}`), note)))
  })

/** A stranger holds the rows of some running jobs for a while. */
const lockRows = (server: Server, note: Effect.Effect<void>) =>
  Effect.flatMap(between(200, 3_000), (duration) =>
    server.lock(
      "SELECT id FROM leasehold_jobs WHERE state = 1 ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED",
      duration,
      note
    )
  )
