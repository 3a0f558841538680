import { inspect } from "node:util"
import { expect, layer } from "@effect/vitest"
import { PrismaMariaDb } from "@prisma/adapter-mariadb"
import { sql as drizzleSql } from "drizzle-orm"
import { drizzle } from "drizzle-orm/mysql2"
import { Effect, Option, Schema } from "effect"
import Knex from "knex"
import { Kysely, sql as kyselySql, MysqlDialect } from "kysely"
import { createPool as createCallbackPool } from "mysql2"
import { createPool } from "mysql2/promise"
import { DataSource } from "typeorm"
import * as Drizzle from "../../src/adapters/drizzle.js"
import type { Executor } from "../../src/adapters/Executor.js"
import * as KnexAdapter from "../../src/adapters/knex.js"
import * as KyselyAdapter from "../../src/adapters/kysely.js"
import * as Mysql2 from "../../src/adapters/mysql2.js"
import * as PrismaAdapter from "../../src/adapters/prisma.js"
import * as TypeOrm from "../../src/adapters/typeorm.js"
import { Enqueuer, Job, Queue, QueueError } from "../../src/index.js"
import { Database, outside } from "../support/Mysql.js"
import * as PrismaClient from "../support/PrismaClient.js"
import { queue } from "../support/QueueOnMysql.js"

/** What a transaction of a library offers to a test. */
interface Transaction {
  readonly executor: Executor
  readonly run: (text: string) => PromiseLike<unknown>
}

/** A library on a pool of its own. */
interface Library {
  /** Runs `use` in a transaction that the library opens, and ends as it does. */
  readonly transact: <A>(use: (transaction: Transaction) => Promise<A>) => Promise<A>
  /** A handle that is in no transaction. */
  readonly outside: Executor
  /** The same as if it were in one. */
  readonly unopened: ReadonlyArray<Executor>
  readonly close: () => PromiseLike<unknown>
}

const libraries: { readonly [name: string]: (url: string) => Promise<Library> } = {
  mysql2: async (url) => {
    // Settings that change what rows look like, for the caller's own statements.
    const pool = createPool({ uri: url, rowsAsArray: true, typeCast: false, namedPlaceholders: true })
    return {
      transact: async (use) => {
        const connection = await pool.getConnection()
        try {
          await connection.beginTransaction()
          const run = (text: string) => connection.query(text)
          const answer = await use({ executor: Mysql2.transaction(connection), run })
          await connection.commit()
          return answer
        } catch (error) {
          await connection.rollback()
          throw error
        } finally {
          connection.release()
        }
      },
      outside: Mysql2.outside(pool),
      unopened: [Mysql2.transaction(pool)],
      close: () => pool.end()
    }
  },
  Drizzle: async (url) => {
    const pool = createPool({ uri: url })
    const db = drizzle(pool)
    return {
      transact: (use) =>
        db.transaction((tx) =>
          use({ executor: Drizzle.transaction(tx), run: (text) => tx.execute(drizzleSql.raw(text)) })
        ),
      outside: Drizzle.outside(db),
      unopened: [Drizzle.transaction(db)],
      close: () => pool.end()
    }
  },
  Kysely: async (url) => {
    const db = new Kysely<unknown>({ dialect: new MysqlDialect({ pool: createCallbackPool({ uri: url }) }) })
    return {
      transact: (use) =>
        db
          .transaction()
          .execute((trx) =>
            use({ executor: KyselyAdapter.transaction(trx), run: (text) => kyselySql.raw(text).execute(trx) })
          ),
      outside: KyselyAdapter.outside(db),
      unopened: [KyselyAdapter.transaction(db)],
      close: () => db.destroy()
    }
  },
  Knex: async (url) => {
    const knex = Knex({ client: "mysql2", connection: url, pool: { min: 0, max: 4 } })
    return {
      transact: (use) =>
        knex.transaction((trx) => use({ executor: KnexAdapter.transaction(trx), run: (text) => trx.raw(text) })),
      outside: KnexAdapter.outside(knex),
      unopened: [KnexAdapter.transaction(knex)],
      close: () => knex.destroy()
    }
  },
  Prisma: async (url) => {
    const { hostname, password, pathname, port, username } = new URL(url)
    const adapter = new PrismaMariaDb({
      host: hostname,
      port: Number(port),
      user: username,
      password,
      database: pathname.slice(1),
      connectionLimit: 4
    })
    const prisma = PrismaClient.make(adapter)
    return {
      transact: (use) =>
        prisma.$transaction((tx) =>
          use({
            executor: PrismaAdapter.transaction(tx),
            run: (text) => (text.startsWith("SELECT") ? tx.$queryRawUnsafe(text) : tx.$executeRawUnsafe(text))
          })
        ),
      outside: PrismaAdapter.outside(prisma),
      unopened: [PrismaAdapter.transaction(prisma)],
      close: () => prisma.$disconnect()
    }
  },
  TypeORM: async (url) => {
    const dataSource = await new DataSource({ type: "mysql", url }).initialize()
    return {
      transact: (use) =>
        dataSource.transaction((manager) =>
          use({ executor: TypeOrm.transaction(manager), run: (text) => manager.query(text) })
        ),
      outside: TypeOrm.outside(dataSource),
      unopened: [TypeOrm.transaction(dataSource), TypeOrm.transaction(dataSource.manager)],
      close: () => dataSource.destroy()
    }
  }
}

const ShipOrder = Job.make("order.ship", {
  payload: { order: Schema.Number, note: Schema.optional(Schema.String) },
  queue: "adapters"
})
const BillOrder = Job.make("order.bill", { payload: { order: Schema.Number }, queue: "adapters" })

const enqueuer = Enqueuer.promise()

for (const [name, open] of Object.entries(libraries)) {
  layer(queue(), { excludeTestServices: true, timeout: "1 minute" })(`the adapter for ${name}`, (it) => {
    const scene = Effect.gen(function* () {
      const { query, url } = yield* Database
      yield* query(
        "CREATE TABLE IF NOT EXISTS orders (id INT PRIMARY KEY, note TEXT);"
          + " DELETE FROM orders; DELETE FROM leasehold_jobs"
      )
      const library = yield* Effect.acquireRelease(
        Effect.promise(() => open(url)),
        ({ close }) => Effect.promise(async () => close())
      )
      const transact = <A>(use: (transaction: Transaction) => Promise<A>) =>
        Effect.tryPromise({ try: () => library.transact(use), catch: (error) => error })
      const orders = Effect.map(query("SELECT id FROM orders ORDER BY id"), (rows) => rows.map(({ id }) => id))
      const jobs = Effect.map(
        query("SELECT type, payload, priority, CAST(id AS CHAR) AS id FROM leasehold_jobs ORDER BY id"),
        (rows) => rows.map(({ id, payload, priority, type }) => ({ id, type, payload, priority }))
      )
      return { library, transact, orders, jobs, query, url }
    })

    it.scoped("commits the order and its job together", () =>
      Effect.gen(function* () {
        const { jobs, orders, query, transact } = yield* scene
        const hostile = "'; DROP TABLE leasehold_jobs; -- \\ ? :x \" \u{1F600} \u0000"
        const { created, id } = yield* transact(async ({ executor, run }) => {
          await run("INSERT INTO orders (id) VALUES (1)")
          return enqueuer.enqueue(executor, ShipOrder, { order: 1, note: hostile }, { priority: 2, delay: "1 hour" })
        })
        expect(created).toBe(true)
        expect(yield* orders).toEqual([1])
        expect(yield* jobs).toEqual([
          { id, type: "order.ship", payload: JSON.stringify({ order: 1, note: hostile }), priority: 2 }
        ])
        expect(yield* query("SELECT TIMESTAMPDIFF(SECOND, enqueued_at, due_at) AS delay FROM leasehold_jobs")).toEqual([
          { delay: 3600 }
        ])
        const record = yield* Queue.get(id)
        expect(yield* ShipOrder.payload.decode(record.payload)).toEqual({ order: 1, note: hostile })
      })
    )

    it.scoped("leaves neither of them where the transaction rolls back", () =>
      Effect.gen(function* () {
        const { jobs, orders, transact } = yield* scene
        const failure = new Error("no money")
        const failed = yield* Effect.flip(
          transact(async ({ executor, run }) => {
            await run("INSERT INTO orders (id) VALUES (1)")
            await enqueuer.enqueue(executor, ShipOrder, { order: 1 })
            throw failure
          })
        )
        expect(failed).toBe(failure)
        expect(yield* orders).toEqual([])
        expect(yield* jobs).toEqual([])
      })
    )

    it.scoped("refuses a handle that has no transaction open, and writes nothing", () =>
      Effect.gen(function* () {
        const { jobs, library, transact } = yield* scene
        for (const executor of library.unopened) {
          const refused = yield* Effect.promise(() =>
            enqueuer.enqueue(executor, ShipOrder, { order: 1 }).catch((e) => e)
          )
          expect(refused).toMatchObject({ _tag: "NotInTransaction", verb: "enqueue" })
        }
        // Also one whose transaction was ended behind its back, as a deadlock does.
        const ended = yield* Effect.flip(
          transact(async ({ executor, run }) => {
            await run("ROLLBACK")
            return enqueuer.enqueueAll(executor, ShipOrder, [{ order: 1 }, { order: 2 }])
          })
        )
        expect(ended).toMatchObject({ _tag: "NotInTransaction" })
        expect(yield* jobs).toEqual([])
      })
    )

    it.scoped("answers a replay with the first job's id, and another payload with a conflict", () =>
      Effect.gen(function* () {
        const { jobs, library, transact } = yield* scene
        for (const given of [{}, { outside: library.outside }]) {
          const door = Enqueuer.promise(given)
          const idempotency = { scope: "adapters", key: `key of ${Object.keys(given)}` }
          const replay = yield* transact(async ({ executor, run }) => {
            // The snapshot of REPEATABLE READ begins before the first job is there.
            await run("SELECT COUNT(*) FROM leasehold_jobs")
            const first = await library.transact((other) =>
              door.enqueue(other.executor, ShipOrder, { order: 1 }, { idempotency })
            )
            const again = await door.enqueue(executor, ShipOrder, { order: 1 }, { idempotency })
            const conflict = await door
              .enqueue(executor, ShipOrder, { order: 2 }, { idempotency })
              .catch((error) => error)
            return { first, again, conflict }
          })
          expect(replay.first.created).toBe(true)
          expect(replay.again).toEqual({ id: replay.first.id, created: false })
          expect(replay.conflict).toMatchObject({
            _tag: "IdempotencyConflict",
            jobId: Option.some(replay.first.id)
          })
        }
        expect(yield* jobs).toHaveLength(2)
      })
    )

    it.scoped("adds a bulk as a whole or not at all, and the transaction goes on", () =>
      Effect.gen(function* () {
        const { jobs, transact } = yield* scene
        const answers = yield* transact(async ({ executor }) => {
          const many = await enqueuer.enqueueAll(
            executor,
            ShipOrder,
            Array.from({ length: 312 }, (_, order) => ({ order }))
          )
          const idempotency = { key: "held" }
          const mixed = await enqueuer.enqueueMany(executor, [
            Enqueuer.request(BillOrder, { order: 1 }, { idempotency }),
            Enqueuer.request(ShipOrder, { order: 1 }),
            Enqueuer.request(BillOrder, { order: 1 }, { idempotency })
          ])
          const conflict = await enqueuer
            .enqueueMany(executor, [
              Enqueuer.request(ShipOrder, { order: 9 }),
              Enqueuer.request(BillOrder, { order: 2 }, { idempotency })
            ])
            .catch((error) => error)
          expect(conflict).toMatchObject({ _tag: "IdempotencyConflict" })
          expect(await enqueuer.enqueueAll(executor, ShipOrder, [])).toEqual([])
          return [...many, ...mixed]
        })
        expect(answers.map(({ created }) => created).filter((created) => !created)).toHaveLength(1)
        const rows = yield* jobs
        expect(rows).toHaveLength(314)
        const payloadOf = new Map(rows.map(({ id, payload }) => [id, payload]))
        expect(answers.map(({ id }) => payloadOf.get(id))).toEqual([
          ...Array.from({ length: 312 }, (_, order) => JSON.stringify({ order })),
          '{"order":1}',
          '{"order":1}',
          '{"order":1}'
        ])
      })
    )

    it.scoped("rejects with the library's own errors: what is refused before any SQL, and a lock wait", () =>
      Effect.gen(function* () {
        const { jobs, orders, transact, url } = yield* scene
        const stranger = yield* outside(url)
        yield* stranger.query(
          "START TRANSACTION; INSERT INTO leasehold_jobs (queue, type, first_due_at, due_at, enqueued_at, scope,"
            + " idempotency_key) VALUES ('stranger', 't', NOW(6), NOW(6), NOW(6), '', 'locked')"
        )
        const locked = { idempotency: { key: "locked" } }
        const passed = yield* Effect.flip(
          transact(async ({ executor, run }) => {
            await run("SET SESSION innodb_lock_wait_timeout = 1")
            await run("INSERT INTO orders (id) VALUES (1)")
            return enqueuer.enqueue(executor, ShipOrder, { order: 1 }, locked)
          })
        )
        expect(passed).toBeInstanceOf(QueueError.TransactionAborted)
        expect(passed).toMatchObject({ reason: "lock_wait" })
        const met: Array<unknown> = []
        const failed = yield* Effect.flip(
          transact(async ({ executor, run }) => {
            await run("SET SESSION innodb_lock_wait_timeout = 1")
            const note = (promise: Promise<unknown>) => promise.catch((error) => void met.push(error))
            await note(enqueuer.enqueue(executor, ShipOrder, { order: Number.NaN }))
            await note(enqueuer.enqueue(executor, ShipOrder, { order: 1 }, { idempotency: { key: "" } }))
            await note(Enqueuer.promise({ payloadLimit: 20 }).enqueue(executor, ShipOrder, { order: 1, note: "long" }))
            await note(Enqueuer.promise({ tablePrefix: "x'" }).enqueue(executor, ShipOrder, { order: 1 }))
            await note(Enqueuer.promise({ tablePrefix: "none_" }).enqueue(executor, ShipOrder, { order: 1 }))
            await run("INSERT INTO orders (id) VALUES (1)")
            await note(enqueuer.enqueue(executor, ShipOrder, { order: 1 }, locked))
            // It was caught: what is written after it is refused, so nothing can commit.
            await run("INSERT INTO orders (id) VALUES (2)")
          })
        )
        expect(met).toMatchObject([
          { _tag: "PayloadInvalid" },
          { _tag: "KeyInvalid" },
          { _tag: "PayloadTooLarge", limit: 20 },
          { _tag: "InvalidName" },
          { _tag: "StoreRejected", code: expect.stringContaining("1146") },
          { _tag: "TransactionAborted", reason: "lock_wait" }
        ])
        expect(inspect(failed)).toMatch(/READ ONLY transaction|EPIPE|ECONNRESET|closed/)
        yield* stranger.query("ROLLBACK")
        expect(yield* orders).toEqual([])
        expect(yield* jobs).toEqual([])
      })
    )

    it.scoped("gives exact ids above 2^53", () =>
      Effect.gen(function* () {
        const { jobs, query, transact } = yield* scene
        yield* query("ALTER TABLE leasehold_jobs AUTO_INCREMENT = 9007199254741003")
        const [one, ...more] = yield* transact(async ({ executor }) => [
          await enqueuer.enqueue(executor, ShipOrder, { order: 0 }),
          ...(await enqueuer.enqueueAll(executor, ShipOrder, [{ order: 1 }, { order: 2 }]))
        ])
        expect([one, ...more].map((answer) => answer?.id)).toEqual([
          "9007199254741003",
          "9007199254741004",
          "9007199254741005"
        ])
        expect((yield* jobs).map(({ id }) => id)).toEqual(["9007199254741003", "9007199254741004", "9007199254741005"])
      })
    )
  })
}
