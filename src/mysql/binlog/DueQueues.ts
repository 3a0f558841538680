/**
 * Which queues a committed transaction has given work, read from the rows that it wrote.
 */
import type { Tables } from "../Tables.js"

/** Values of a row by column. Null also where the log leaves a column out (`binlog_row_image`). */
export type Row = Readonly<Record<string, unknown>>

/** All columns that are looked at. Payloads, results and keys are none of them. */
export const columns: ReadonlySet<string> = new Set(["queue", "state", "due_at", "name", "paused"])

const pending = 0

/**
 * Gathers over one transaction. It keeps one time for each queue, however many rows there are.
 *
 * Times are text of the database, compared with the database's time of the commit; the clock of this machine has no say.
 */
export class DueQueues {
  /** The earliest due time of each queue that has got a pending job; milliseconds since 1970. */
  private readonly earliest = new Map<string, number>()

  constructor(private readonly tables: Pick<Tables, "jobs" | "queues">) {}

  /** One row that was inserted, or changed from `before`. */
  add(table: string, after: Row, before?: Row): void {
    if (table === this.tables.jobs) this.addJob(after, before)
    if (table === this.tables.queues && after["paused"] === 0) this.note(after["name"], Number.NEGATIVE_INFINITY)
  }

  /** The queues with a job that was due when the transaction committed. Begins anew. */
  commit(committedAt: number): ReadonlySet<string> {
    const due = new Set<string>()
    for (const [queue, at] of this.earliest) {
      // The log knows the whole second of a commit only.
      if (at < committedAt + 1_000) due.add(queue)
    }
    this.earliest.clear()
    return due
  }

  private addJob(after: Row, before: Row | undefined): void {
    // A new job has the default state, which `binlog_row_image = MINIMAL` leaves out.
    if (after["state"] !== pending && !(before === undefined && after["state"] === null)) return
    if (before !== undefined && before["state"] === pending && before["due_at"] === after["due_at"]) return
    this.note(after["queue"] ?? before?.["queue"], utcMillis(after["due_at"]))
  }

  private note(queue: unknown, at: number): void {
    if (typeof queue !== "string") return
    this.earliest.set(queue, Math.min(at, this.earliest.get(queue) ?? Number.POSITIVE_INFINITY))
  }
}

const utcMillis = (text: unknown): number =>
  typeof text === "string" ? Date.parse(`${text.replace(" ", "T")}Z`) : Number.NEGATIVE_INFINITY
