/**
 * Transactions of the library that hold statements of the caller, and what can end them behind the library's back: then nothing
 * may look as if it had been committed.
 */
import { SqlClient } from "@effect/sql"
import { expect, layer } from "@effect/vitest"
import { Chunk, Deferred, Duration, Effect, Exit, Fiber, Layer, Schema, Stream } from "effect"
import { Job, Queue } from "../../src/index.js"
import { Database, outside } from "../support/Mysql.js"
import { queue } from "../support/QueueOnMysql.js"
import { lockWaits } from "../support/ServerState.js"

const notes = Layer.effectDiscard(
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`CREATE TABLE notes (id INT PRIMARY KEY, version INT NOT NULL DEFAULT 0)`
    yield* sql`CREATE TABLE many (id INT PRIMARY KEY, text CHAR(255) NOT NULL)`
    yield* sql`INSERT INTO many (id, text) SELECT @n := @n + 1, REPEAT('x', 255) FROM information_schema.columns, (SELECT @n := 0) AS start LIMIT 3000`
  })
)

const note = (id: number) => Effect.flatMap(SqlClient.SqlClient, (sql) => sql`INSERT INTO notes (id) VALUES (${id})`)

const notesOf = (...ids: ReadonlyArray<number>) =>
  Effect.flatMap(Database, ({ query }) =>
    Effect.map(query("SELECT id FROM notes WHERE id IN (?) ORDER BY id", [ids]), (rows) =>
      rows.map(({ id }) => Number(id))
    )
  )

/** A job of its own, and both ways to run an effect in a transaction of the library. */
const waysOf = (name: string) => {
  const job = Job.make("notes.write", { payload: {}, success: Schema.String, queue: name })
  return {
    job,
    withTransaction: <E, R>(effect: Effect.Effect<string, E, R>) => Queue.withTransaction(effect),
    completeWith: <E, R>(effect: Effect.Effect<string, E, R>) =>
      Effect.scoped(
        Effect.gen(function* () {
          const { id } = yield* Queue.enqueue(job, {})
          const lease = yield* Queue.claim(job)
          const exit = yield* Effect.exit(lease.completeWith(effect))
          return [exit, (yield* Queue.get(id)).state] as const
        })
      )
  }
}

/** Meets a deadlock with a stranger while it reads by a stream, and goes on as if that stream had been empty. */
const deadlockInStream = (id: number) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { query, url } = yield* Database
    yield* query("INSERT INTO notes (id) VALUES (?), (?), (?), (?), (?), (?)", [
      id + 1,
      id + 2,
      id + 3,
      id + 4,
      id + 5,
      id + 6
    ])
    const stranger = yield* outside(url)
    // Has written more, so the server chooses the other one.
    yield* stranger.query("START TRANSACTION; UPDATE notes SET version = version + 1 WHERE id BETWEEN ? AND ?", [
      id + 2,
      id + 6
    ])
    const met = yield* Deferred.make<void>()
    const effect = Effect.gen(function* () {
      yield* note(id)
      if (yield* Deferred.isDone(met)) return "again"
      yield* sql`UPDATE notes SET version = 9 WHERE id = ${id + 1}`
      const closing = yield* Effect.fork(
        Effect.zipRight(
          lockWaits(1),
          stranger.query("UPDATE notes SET version = version + 1 WHERE id = ?; COMMIT", [id + 1])
        )
      )
      yield* Stream.runDrain(sql`SELECT id FROM notes WHERE id = ${id + 2} FOR UPDATE`.stream).pipe(
        Effect.catchAll(() => Deferred.succeed(met, void 0))
      )
      yield* Fiber.join(closing)
      return "the first time"
    })
    return { effect, met: Deferred.isDone(met) }
  })

layer(notes.pipe(Layer.provideMerge(queue({ statementTimeout: "3 seconds" }))), {
  excludeTestServices: true,
  timeout: "1 minute"
})("a transaction of the library", (it) => {
  it.scoped("whose effect met a deadlock in a stream, and caught it, is undone", () =>
    Effect.gen(function* () {
      const { completeWith, withTransaction } = waysOf("stream_deadlock")
      const one = yield* deadlockInStream(100)
      const aborted = yield* Effect.exit(withTransaction(one.effect))
      expect(yield* one.met).toBe(true)
      expect(aborted).toMatchObject(Exit.fail({ _tag: "TransactionAborted", reason: "deadlock" }))
      expect(yield* notesOf(100)).toEqual([])
      // Here the library runs the effect again.
      const other = yield* deadlockInStream(200)
      expect(yield* completeWith(other.effect)).toEqual([Exit.succeed("again"), "succeeded"])
      expect(yield* other.met).toBe(true)
      expect(yield* notesOf(200)).toEqual([200])
    })
  )

  it.effect.each([
    ["ROLLBACK", []],
    // Commits implicitly what came before it.
    ["CREATE TABLE implicit_end (id INT)", [0]]
  ] as const)("that a statement of its effect has ended is never reported as committed: %s", ([ending, kept]) =>
    Effect.gen(function* () {
      const { completeWith, withTransaction } = waysOf("ended")
      const sql = yield* SqlClient.SqlClient
      const { query } = yield* Database
      const effectOf = (id: number) =>
        Effect.gen(function* () {
          yield* query("DROP TABLE IF EXISTS implicit_end")
          yield* note(id)
          // As innodb_rollback_on_timeout does at a lock wait that the effect catches.
          yield* sql.unsafe(ending).unprepared
          yield* note(id + 1)
          return "done"
        })
      yield* query("DELETE FROM notes WHERE id IN (300, 301, 310, 311)")
      expect(yield* Effect.exit(withTransaction(effectOf(300)))).toMatchObject(
        Exit.fail({ _tag: "TransactionAborted", reason: "ended" })
      )
      expect(yield* notesOf(300, 301)).toEqual([...kept.map((offset) => 300 + offset), 301])
      const [exit, state] = yield* completeWith(effectOf(310))
      expect(exit).toMatchObject(Exit.fail({ _tag: "StoreRejected", verb: "completeWith" }))
      expect(state).toBe("running")
    })
  )

  it.scoped("is closed to fibers of its effect that outlive it", () =>
    Effect.gen(function* () {
      const { completeWith, withTransaction } = waysOf("outlived")
      const sql = yield* SqlClient.SqlClient
      for (const [way, id] of [
        [withTransaction, 400],
        [completeWith, 410]
      ] as const) {
        const ended = yield* Deferred.make<void>()
        const stray = yield* way(
          Effect.gen(function* () {
            yield* note(id)
            const late = yield* Effect.forkDaemon(
              Effect.zipRight(
                Deferred.await(ended),
                Effect.all([Effect.exit(note(id + 1)), Effect.exit(Stream.runCollect(sql`SELECT 1`.stream))])
              )
            )
            strays.push(late)
            return "done"
          })
        )
        expect(JSON.stringify(stray)).toContain("done")
        // A stranger's transaction, on the very connection that was given back, and rolled back.
        const late = strays.pop()
        const exits = yield* Queue.withTransaction(
          Effect.gen(function* () {
            yield* Deferred.succeed(ended, void 0)
            return late === undefined ? [] : yield* Fiber.join(late)
          })
        )
        expect(exits.map(Exit.isFailure)).toEqual([true, true])
        expect(yield* notesOf(id, id + 1)).toEqual([id])
      }
    })
  )

  it.effect("streams all rows in order, and fails where a statement does, also in its middle", () =>
    Effect.gen(function* () {
      const { withTransaction } = waysOf("stream_whole")
      const sql = yield* SqlClient.SqlClient
      const ids = yield* Queue.withTransaction(
        Stream.runCollect(Stream.map(sql<{ id: number }>`SELECT id, text FROM many ORDER BY id`.stream, ({ id }) => id))
      )
      expect(Chunk.toReadonlyArray(ids)).toEqual(Array.from({ length: 3000 }, (_, index) => index + 1))
      let seen = 0
      const broken = sql`SELECT id, IF(id = 2900, (SELECT id FROM many), 1) AS one FROM many ORDER BY id`.stream
      const failed = yield* Effect.flip(
        withTransaction(
          Effect.as(
            Stream.runForEach(broken, () => Effect.sync(() => seen++)),
            ""
          )
        )
      )
      expect(failed).toMatchObject({ _tag: "SqlError", cause: { errno: 1242 } })
      expect(seen).toBeGreaterThan(0)
    })
  )

  it.effect("that is interrupted in a stream ends at once, and writes nothing", () =>
    Effect.gen(function* () {
      const { withTransaction } = waysOf("stream_interrupted")
      const sql = yield* SqlClient.SqlClient
      const begun = yield* Deferred.make<void>()
      const fiber = yield* Effect.fork(
        withTransaction(
          Effect.gen(function* () {
            yield* note(600)
            yield* Deferred.succeed(begun, void 0)
            yield* Stream.runDrain(sql`SELECT SLEEP(600)`.stream)
            return ""
          })
        )
      )
      yield* Deferred.await(begun)
      yield* Effect.sleep("200 millis")
      const [time, exit] = yield* Effect.timed(Fiber.interrupt(fiber))
      expect(Duration.toMillis(time)).toBeLessThan(2_000)
      expect(Exit.isInterrupted(exit)).toBe(true)
      expect(yield* notesOf(600)).toEqual([])
    })
  )

  it.effect("goes on after a stream of which only the first rows were taken", () =>
    Effect.gen(function* () {
      const { completeWith } = waysOf("stream_head")
      const sql = yield* SqlClient.SqlClient
      const [exit, state] = yield* completeWith(
        Effect.gen(function* () {
          const some = yield* Stream.runCollect(Stream.take(sql<{ id: number }>`SELECT id, text FROM many`.stream, 2))
          yield* note(500)
          return String(Chunk.size(some))
        })
      )
      expect(exit).toEqual(Exit.succeed("2"))
      expect(state).toBe("succeeded")
      expect(yield* notesOf(500)).toEqual([500])
    })
  )
})

/** Fibers that the tests let go. */
const strays: Array<Fiber.Fiber<ReadonlyArray<Exit.Exit<unknown, unknown>>>> = []
