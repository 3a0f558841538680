/**
 * Enqueue in an interactive transaction of Prisma 7 on MySQL: `prisma.$transaction(async (tx) => …)`.
 *
 * Prisma prepares every raw statement, and MySQL prepares no SAVEPOINT. So an enqueue that has met a deadlock or a lock wait,
 * or a bulk that failed half-way, ends the transaction by ending its connection: `$transaction` rejects, whatever is caught.
 *
 * @module
 */
import * as Executor from "./Executor.js"

/** The `tx` of `prisma.$transaction`, or a `prisma`. */
export interface Handle {
  /** Sends a write; answers how many rows it changed. */
  $executeRawUnsafe(text: string, ...values: Array<string | null>): PromiseLike<number>
  /** Sends a read; answers its rows. */
  $queryRawUnsafe(text: string, ...values: Array<string | null>): PromiseLike<unknown>
}

/** The `tx` of `prisma.$transaction(async (tx) => …)`. */
export const transaction = (tx: Handle): Executor.Executor =>
  Executor.make({
    execute: async (text, values) => {
      if (text.startsWith("SELECT")) return tx.$queryRawUnsafe(text, ...values)
      const affectedRows = await tx.$executeRawUnsafe(text, ...values)
      // Prisma hides the id that the server answers.
      const rows = await tx.$queryRawUnsafe("SELECT CAST(LAST_INSERT_ID() AS CHAR) AS insertId")
      return { affectedRows, insertId: Array.isArray(rows) ? rows[0]?.insertId : 0 }
    },
    causeOf: errorOfServer,
    commands: false
  })

/** A `prisma` that is no transaction: for `Enqueuer.promise({ outside })`. */
export const outside: (prisma: Handle) => Executor.Executor = transaction

/** `PrismaClientKnownRequestError` P2010 keeps the server's error number as text, deep within. */
const errorOfServer = (error: unknown): unknown => {
  const cause = ["meta", "driverAdapterError", "cause"].reduce(Executor.memberOr, error)
  const errno = Number(Executor.memberOr(cause, "originalCode"))
  return Number.isInteger(errno) ? { errno } : error
}
