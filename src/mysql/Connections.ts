/**
 * The library's own connections: a small pool beside the application's, opened with the same configuration.
 *
 * Why not the application's pool: handlers may hold all of its connections just when a lease has to be renewed; a statement
 * there can be neither cut off nor its broken connection thrown away (T9 to T13); and session settings would leak (T8). Here
 * every wait is bounded, a session that failed to answer is destroyed, and the settings that statements rely on are pinned.
 */
import type { MysqlClientConfig } from "@effect/sql-mysql2/MysqlClient"
import { Duration, Effect, Exit, Redacted, type Scope } from "effect"
import * as Mysql from "mysql2"
import { breaksSession, fromDriver, MysqlFault } from "./MysqlFault.js"
import { type OwnSession, toAnswer } from "./Session.js"
import * as TransactionConnection from "./TransactionConnection.js"

export interface Connections {
  /**
   * Runs `use` on a session of its own. It ends within the waits that bound the pool and each statement, and can not be
   * interrupted before: a caller that goes away never leaves a statement behind whose end nobody awaits. A session on which a
   * statement failed in a way that leaves it unusable is destroyed; every other one goes back without an open transaction.
   */
  readonly use: <A, E, R>(
    use: (session: OwnSession) => Effect.Effect<A, E, R>,
    statementTimeout?: Duration.Duration
  ) => Effect.Effect<A, E | MysqlFault, R>
}

export interface ConnectionOptions {
  readonly size: number
  /** The longest that a statement may take, and that a session may be waited for. */
  readonly statementTimeout: Duration.Duration
  /** The first statement of each session: {@link pinned} or {@link forCallers}. */
  readonly settings: string
  /** What pools with the same address know together about the server behind it. Default: each finds out for itself. */
  readonly failover?: Failover
}

/**
 * Whether the address leads elsewhere now. A server that answers a write as read-only has handed its role to another one, and
 * all connections that were open at that moment lead to it still: they would go on to answer reads, ever more out of date
 * (scenario F3). So none of them is used again; new ones are led to the new primary by whatever the address stands for.
 */
export interface Failover {
  /** `performance.now()` of the last such answer. */
  at: number
}

export const makeFailover = (): Failover => ({ at: Number.NEGATIVE_INFINITY })

/**
 * READ COMMITTED: claims and settlements rely on it (SCHEMA: gap locks of REPEATABLE READ gave 137 deadlocks in 5 s). Strict
 * mode without NO_BACKSLASH_ESCAPES and ANSI_QUOTES: statements mean the same on every server. UTC: times are bound and read
 * as they are stored. `innodb_lock_wait_timeout` bounds the few statements that wait for a row. `wait_timeout`, in seconds: a
 * host that vanishes between the packets of a transaction says no goodbye, and its session would keep due rows locked, which
 * every claim skips, until TCP notices after hours. A session that only rested is opened anew when it is needed. Character sets:
 * a server may answer the driver's with its own (`init_connect`, `character_set_client_handshake`), which would change texts.
 */
export const pinned =
  "SET SESSION transaction_isolation = 'READ-COMMITTED', transaction_read_only = 0, "
  + "sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', autocommit = 1, "
  + "innodb_lock_wait_timeout = 3, wait_timeout = 30, sql_safe_updates = 0, sql_select_limit = DEFAULT, "
  + "character_set_client = utf8mb4, character_set_connection = utf8mb4, character_set_results = utf8mb4"

/**
 * For transactions that hold statements of the caller: they keep the server's `sql_mode`, time zone and lock wait, as on his
 * own connections. READ COMMITTED, since a completion locks the row of a job.
 */
export const forCallers =
  "SET SESSION transaction_isolation = 'READ-COMMITTED', transaction_read_only = 0, autocommit = 1"

/** A session that rested this long may have been closed by the server or a firewall: it is pinged before it is used (F4). */
const restBeforePing = 1_000

/**
 * When a ping last failed, by `performance.now()`. What broke that connection while it rested has most likely broken all that
 * rested then: they are thrown away without one more ping each, which would take a whole timeout where packets just vanish.
 */
interface Doubt {
  since: number
}

export const make = (
  config: MysqlClientConfig,
  options: ConnectionOptions
): Effect.Effect<Connections, never, Scope.Scope> =>
  Effect.map(openPool(config, options), (pool) => {
    const failover = options.failover ?? makeFailover()
    const rested = new WeakMap<Mysql.Connection, number>()
    const doubt: Doubt = { since: Number.NEGATIVE_INFINITY }
    const opened = new WeakMap<Mysql.Connection, number>()
    pool.on("connection", (connection) => opened.set(connection, performance.now()))
    const isPassedBy = (connection: Mysql.Connection) => (opened.get(connection) ?? 0) <= failover.at
    const noteReadOnly = () => {
      failover.at = performance.now()
    }
    const use: Connections["use"] = (body, statementTimeout = options.statementTimeout) =>
      Effect.uninterruptible(
        Effect.flatMap(acquire(pool, rested, doubt, isPassedBy, statementTimeout), (connection) => {
          const session = makeSession(connection, statementTimeout, noteReadOnly)
          return Effect.onExit(body(session), (exit) => {
            session.end()
            return session.broken()
              ? destroy(connection)
              : giveBack(connection, session, rested, Exit.isFailure(exit) || session.failed())
          })
        })
      )
    return { use }
  })

/** The application's configuration for the driver, but for how the application likes its own rows. */
export const driverOptions = (config: MysqlClientConfig): Mysql.PoolOptions => ({
  ...config.poolConfig,
  ...(config.url === undefined
    ? {
        ...(config.host === undefined ? {} : { host: config.host }),
        ...(config.port === undefined ? {} : { port: config.port }),
        ...(config.database === undefined ? {} : { database: config.database }),
        ...(config.username === undefined ? {} : { user: config.username }),
        ...(config.password === undefined ? {} : { password: Redacted.value(config.password) })
      }
    : { uri: Redacted.value(config.url) }),
  supportBigNumbers: true,
  bigNumberStrings: false,
  // With typeCast false, mysql2 3.24 even loses its place in prepared ones.
  rowsAsArray: false,
  nestTables: false,
  typeCast: true,
  namedPlaceholders: false,
  charset: "utf8mb4"
})

const forOwnStatements = {
  // The driver would search each text for places to put values, of which the library's own statements have none.
  queryFormat: (text: string) => text,
  // They are few, and the driver keeps 32 bytes on each connection for every one that it may remember, of which it would 16,000.
  maxPreparedStatements: 100
} as const satisfies Mysql.PoolOptions

const openPool = (
  config: MysqlClientConfig,
  options: ConnectionOptions
): Effect.Effect<Mysql.Pool, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const pool = Mysql.createPool({
        ...driverOptions(config),
        multipleStatements: true,
        connectTimeout: Duration.toMillis(options.statementTimeout),
        connectionLimit: options.size,
        waitForConnections: true,
        queueLimit: 0,
        ...(options.settings === pinned ? forOwnStatements : {})
      })
      // The settings are the first statement of each connection; one that refuses them must not be used with others.
      pool.on("connection", (connection) => {
        connection.query(options.settings, (error) => {
          if (error) connection.destroy()
        })
      })
      return pool
    }),
    // `end` waits for statements in flight, which are bounded by their timeout, but not on a server that is gone.
    (pool) =>
      Effect.async<void>((resume) => {
        pool.end(() => resume(Effect.void))
      }).pipe(Effect.interruptible, Effect.timeoutOption("2 seconds"), Effect.asVoid)
  )

const acquire = (
  pool: Mysql.Pool,
  rested: WeakMap<Mysql.Connection, number>,
  doubt: Doubt,
  isPassedBy: (connection: Mysql.Connection) => boolean,
  timeout: Duration.Duration
): Effect.Effect<Mysql.PoolConnection, MysqlFault> =>
  Effect.flatMap(takeFrom(pool, timeout), (connection) => {
    const next = Effect.suspend(() => acquire(pool, rested, doubt, isPassedBy, timeout))
    if (isPassedBy(connection)) return Effect.zipRight(destroy(connection), next)
    const since = rested.get(connection)
    if (since === undefined || performance.now() - since < restBeforePing) return Effect.succeed(connection)
    if (since <= doubt.since) return Effect.zipRight(destroy(connection), next)
    return answerOf(timeout, connection, (callback) => connection.ping(callback)).pipe(
      Effect.as(connection),
      Effect.catchAll(() => {
        doubt.since = performance.now()
        return Effect.zipRight(destroy(connection), next)
      })
    )
  })

const takeFrom = (pool: Mysql.Pool, timeout: Duration.Duration): Effect.Effect<Mysql.PoolConnection, MysqlFault> =>
  Effect.async((resume) => {
    let waiting = true
    const timer = setTimeout(() => {
      waiting = false
      resume(Effect.fail(new MysqlFault({ kind: "timeout", code: "no free connection in time", ambiguous: false })))
    }, Duration.toMillis(timeout))
    pool.getConnection((error, connection) => {
      clearTimeout(timer)
      // A connection that comes after its time is given to the next one.
      if (!waiting) return connection?.release()
      resume(error ? Effect.fail(fromDriver(error, false)) : Effect.succeed(connection))
    })
  })

/** Waits for a callback of the driver; where it does not come in time, destroys the connection, which ends the wait. */
const answerOf = (
  timeout: Duration.Duration,
  connection: Mysql.PoolConnection,
  send: (callback: (error: unknown, result?: unknown) => void) => void
): Effect.Effect<unknown, MysqlFault> =>
  Effect.async((resume) => {
    const timer = setTimeout(() => {
      connection.destroy()
      resume(Effect.fail(new MysqlFault({ kind: "timeout", code: "no answer in time", ambiguous: true })))
    }, Duration.toMillis(timeout))
    send((error, result) => {
      clearTimeout(timer)
      resume(error ? Effect.fail(fromDriver(error, true)) : Effect.succeed(result))
    })
  })

const makeSession = (
  connection: Mysql.PoolConnection,
  timeout: Duration.Duration,
  noteReadOnly: () => void
): OwnSession & { readonly broken: () => boolean; readonly failed: () => boolean; readonly end: () => void } => {
  let broken = false
  let failed = false
  let undone = false
  const noteNow = (fault: MysqlFault) => {
    failed = true
    if (breaksSession(fault.kind)) broken = true
    if (fault.kind === "deadlock") undone = true
    if (fault.kind === "read_only") noteReadOnly()
  }
  const note = (fault: MysqlFault) => Effect.sync(() => noteNow(fault))
  let forCaller: TransactionConnection.TransactionConnection | undefined
  return {
    end: () => forCaller?.end(),
    broken: () => broken,
    failed: () => failed,
    undone: () => undone,
    // Few uses of a session hold statements of a caller.
    get connection() {
      forCaller ??= TransactionConnection.make(connection, noteNow)
      return forCaller.connection
    },
    execute: (text, values) =>
      answerOf(timeout, connection, (callback) => connection.execute(text, [...values], callback)).pipe(
        Effect.map(toAnswer),
        Effect.tapError(note)
      ),
    command: (text) =>
      answerOf(timeout, connection, (callback) => connection.query(text, callback)).pipe(
        Effect.map(toAnswer),
        Effect.tapError(note)
      ),
    script: (statements) =>
      answerOf(timeout, connection, (callback) => connection.query(statements.join(";\n"), callback)).pipe(
        Effect.map((result) =>
          // For one statement the driver answers its result, for more an array of results.
          statements.length === 1 || !Array.isArray(result) ? [toAnswer(result)] : result.map(toAnswer)
        ),
        Effect.tapError(note)
      )
  }
}

const destroy = (connection: Mysql.PoolConnection): Effect.Effect<void> => Effect.sync(() => connection.destroy())

/** Where anything failed, a transaction may be open: it is rolled back, and where even that fails the session is destroyed. */
const giveBack = (
  connection: Mysql.PoolConnection,
  session: OwnSession,
  rested: WeakMap<Mysql.Connection, number>,
  mayBeOpen: boolean
): Effect.Effect<void> => {
  const release = Effect.sync(() => {
    rested.set(connection, performance.now())
    connection.release()
  })
  return mayBeOpen
    ? Effect.matchEffect(session.script(["ROLLBACK"]), {
        onFailure: () => destroy(connection),
        onSuccess: () => release
      })
    : release
}
