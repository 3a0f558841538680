import { expect, layer } from "@effect/vitest"
import { Effect } from "effect"
import * as Mysql from "mysql2/promise"
import { Database, database } from "../support/Mysql.js"
import * as Proxy from "../support/Proxy.js"

const connect = (url: string) =>
  Effect.acquireRelease(
    Effect.promise(() => Mysql.createConnection({ uri: url, multipleStatements: true })),
    (connection) => Effect.sync(() => connection.destroy())
  )

/** The number of the error that a statement is answered with; 0 where it succeeds. */
const errnoOf = (statement: () => Promise<unknown>) =>
  Effect.promise(() =>
    statement().then(
      () => 0,
      (error: { readonly errno?: number }) => error.errno ?? -1
    )
  )

layer(database, { excludeTestServices: true, timeout: "1 minute" })("the proxy of the tests", (it) => {
  it.scoped("answers each of its errors to the statement that is to have it, and to no other", () =>
    Effect.gen(function* () {
      const { url } = yield* Database
      const proxy = yield* Proxy.make(url)
      for (const error of Object.values(Proxy.errors)) {
        const connection = yield* connect(proxy.url)
        proxy.rules.splice(0, 1, { matches: /SELECT 7/, action: error, skip: 2, times: 1 })
        proxy.hits.length = 0
        const seen = []
        for (let n = 0; n < 3; n++) seen.push(yield* errnoOf(() => connection.query("SELECT 7")))
        expect(seen).toEqual([0, 0, error.errno])
        // Server and driver agree about what comes next, unless it is an error that ends the connection.
        const next = yield* errnoOf(() => connection.query("SELECT 7"))
        expect(next === 0).toBe(![1040, 1153, 4031].includes(error.errno))
      }
    })
  )

  it.scoped("answers an error to a COMMIT that happened, and to one that did not", () =>
    Effect.gen(function* () {
      const { query, url } = yield* Database
      yield* query("CREATE TABLE deeds (n INT)")
      const proxy = yield* Proxy.make(url)
      for (const [n, executed] of [
        [1, true],
        [2, false]
      ] as const) {
        const connection = yield* connect(proxy.url)
        proxy.rules.splice(0, 1, { matches: /COMMIT/, action: { ...Proxy.errors.deadlock, executed }, times: 1 })
        proxy.hits.length = 0
        const told = yield* errnoOf(() =>
          connection.query(`START TRANSACTION; INSERT INTO deeds VALUES (${n}); COMMIT`)
        )
        expect(told).toBe(1213)
        expect(yield* errnoOf(() => connection.query("SELECT 1"))).toBe(0)
      }
      expect(yield* query("SELECT n FROM deeds")).toEqual([{ n: 1 }])
    })
  )

  it.scoped("refuses logins as a server does that is full", () =>
    Effect.gen(function* () {
      const { url } = yield* Database
      const proxy = yield* Proxy.make(url)
      yield* proxy.full(true)
      expect(yield* errnoOf(() => Mysql.createConnection(proxy.url))).toBe(1040)
      yield* proxy.full(false)
      yield* connect(proxy.url)
    })
  )

  it.scoped("lets the server see another text than the client has sent", () =>
    Effect.gen(function* () {
      const { url } = yield* Database
      const proxy = yield* Proxy.make(url)
      const connection = yield* connect(proxy.url)
      proxy.rules.push({ matches: /SELECT 7/, action: { rewrite: (text) => text.replace("7", "8000 + 8") } })
      const [rows] = yield* Effect.promise(() => connection.query("SELECT 7 AS n"))
      expect(rows).toEqual([{ n: 8008 }])
    })
  )
})
