/**
 * What a process holds on to, and its sessions at the server; and which of it has grown.
 */
import { EventEmitter } from "node:events"
import { queryObjects } from "node:v8"
import { Effect, Fiber, Option } from "effect"
import { type Connection, createConnection, type RowDataPacket } from "mysql2/promise"

/** What is counted, and by how much it may differ by chance: a loop that sleeps holds other things than one that asks. */
export const bounds = {
  /** Megabytes after a forced collection: of the JavaScript heap, and of buffers outside of it. */
  heap: 3,
  /** Timers that are set, those too that do not keep the process alive. */
  timers: 12,
  /** Sockets and whatever else keeps the process alive. */
  handles: 8,
  /** Listeners on every event emitter that is not collected. */
  listeners: 40,
  /** Fibers of Effect that are not collected, ended ones too. */
  fibers: 40,
  /** Sessions at the server: the pools may all be filled. */
  sessions: 6,
  /** Prepared statements of these sessions. */
  prepared: 12
} as const

export type Counted = keyof typeof bounds
export type Counts = Readonly<Record<Counted, number>>

export const kinds = Object.keys(bounds) as ReadonlyArray<Counted>

/** What has grown by more than its bound. */
export const grown = (before: Counts, after: Counts): ReadonlyArray<Counted> =>
  kinds.filter((counted) => after[counted] - before[counted] > bounds[counted])

const emitters = new Set<WeakRef<EventEmitter>>()

/** To be called before anything else: an emitter is known from the first listener on that it gets after this. */
export const watchEmitters = (): void => {
  const known = new WeakSet<EventEmitter>()
  for (const method of ["on", "addListener", "prependListener"] as const) {
    const honest = EventEmitter.prototype[method]
    EventEmitter.prototype[method] = function (this: EventEmitter, event, listener) {
      if (!known.has(this)) {
        known.add(this)
        emitters.add(new WeakRef(this))
      }
      return honest.call(this, event, listener)
    }
  }
}

const listeners = (): number => {
  let sum = 0
  for (const reference of emitters) {
    const emitter = reference.deref()
    if (emitter === undefined) emitters.delete(reference)
    else for (const event of emitter.eventNames()) sum += emitter.listenerCount(event)
  }
  return sum
}

/** How many objects of the kind of this one are not collected, after a full collection. */
const alive = (example: object): number => queryObjects(Object.getPrototypeOf(example).constructor, { format: "count" })

const collect = Effect.sync(() => {
  if (globalThis.gc === undefined) throw new Error("to be run with --expose-gc")
  globalThis.gc()
})

const megabytes = (): number => {
  const { external, heapUsed } = process.memoryUsage()
  return Math.round(((heapUsed + external) / 1024 / 1024) * 100) / 100
}

const atServer = (observer: Connection, database: string) =>
  Effect.promise(async () => {
    const [rows] = await observer.query<Array<RowDataPacket>>(
      "SELECT COUNT(DISTINCT t.thread_id) AS sessions, COUNT(p.statement_id) AS prepared"
        + " FROM performance_schema.threads AS t LEFT JOIN performance_schema.prepared_statements_instances AS p"
        + " ON p.owner_thread_id = t.thread_id WHERE t.processlist_db = ?",
      [database]
    )
    return { sessions: Number(rows[0]?.["sessions"]), prepared: Number(rows[0]?.["prepared"]) }
  })

/** Dies where the server does not show its sessions and their prepared statements: counts that are always 0 prove nothing. */
export const checkServer = (observer: Connection, url: string, database: string): Effect.Effect<void> =>
  Effect.acquireUseRelease(
    Effect.promise(() => createConnection(url)),
    (one) =>
      Effect.gen(function* () {
        yield* Effect.promise(() => one.execute("SELECT 1"))
        const { prepared, sessions } = yield* atServer(observer, database)
        if (sessions >= 1 && prepared >= 1) return
        return yield* Effect.dieMessage("performance_schema shows no sessions, or none of their prepared statements")
      }),
    (one) => Effect.promise(() => one.end())
  )

/** How many statements each session that is open now has sent, by its id. */
export const statements = (observer: Connection, database: string): Effect.Effect<ReadonlyMap<number, number>> =>
  Effect.promise(async () => {
    const [rows] = await observer.query<Array<RowDataPacket>>(
      "SELECT t.processlist_id AS id, s.variable_value AS sent FROM performance_schema.threads AS t"
        + " JOIN performance_schema.status_by_thread AS s ON s.thread_id = t.thread_id"
        + " WHERE t.processlist_db = ? AND s.variable_name = 'Questions'",
      [database]
    )
    return new Map(rows.map((row) => [Number(row["id"]), Number(row["sent"])]))
  })

/**
 * Counts some times and takes the least of each: what is held for good is held each time, what a statement holds that is
 * under way is not. Timers and fibers are counted once, since each of them takes a walk through the whole heap. `observer` is a
 * session without a database.
 */
export const take = (observer: Connection, database: string, times: number): Effect.Effect<Counts> =>
  Effect.gen(function* () {
    const self = Option.getOrThrow(Fiber.getCurrentFiber())
    const timer = setTimeout(() => {}, 0)
    clearTimeout(timer)
    const once = Effect.gen(function* () {
      yield* collect
      // What the collector's finalizers let go of, they let go of in a turn of their own.
      yield* Effect.sleep("50 millis")
      yield* collect
      const active = process.getActiveResourcesInfo()
      return {
        heap: megabytes(),
        handles: active.filter((kind) => kind !== "Timeout" && kind !== "Immediate").length,
        listeners: listeners(),
        ...(yield* atServer(observer, database))
      }
    })
    const taken = yield* Effect.replicateEffect(once, times)
    const least = (counted: keyof Effect.Effect.Success<typeof once>) =>
      Math.min(...taken.map((counts) => counts[counted]))
    return {
      heap: least("heap"),
      timers: alive(timer),
      handles: least("handles"),
      listeners: least("listeners"),
      fibers: alive(self),
      sessions: least("sessions"),
      prepared: least("prepared")
    }
  })
