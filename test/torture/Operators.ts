/**
 * Who else is at work on the same tables in a torture: people who cancel, retry and pause, and programs that migrate.
 */
import { Effect, Random } from "effect"
import { Migrations, Queue } from "../../src/index.js"
import type { Book } from "./Producers.js"
import * as Rolls from "./Rolls.js"
import { Plain } from "./Work.js"

/** Does one act that chance picks. What the database refuses under a fault, it does not repeat. */
export const operate = (book: Book) =>
  Effect.gen(function* () {
    switch (yield* Rolls.pick(["cancel", "cancel", "cancel", "retry", "retry", "pause", "migrate", "look"] as const)) {
      case "cancel":
        return yield* cancel(book)
      case "retry":
        return yield* retry(book, yield* Rolls.pick(["dead", "canceled"] as const))
      case "pause":
        yield* Queue.pause(Plain.queue)
        yield* Effect.sleep("300 millis")
        return yield* Queue.resume(Plain.queue)
      case "migrate":
        yield* Migrations.run()
        return yield* Migrations.verify()
      case "look":
        yield* Queue.counts
        yield* Queue.paused
    }
  }).pipe(Effect.either, Effect.asVoid)

/** One of the latest jobs, so that it may be in any state. */
const cancel = (book: Book) =>
  Effect.gen(function* () {
    const back = yield* Random.nextIntBetween(1, 60)
    const jobId = book.known.at(-back)
    if (jobId === undefined) return
    const { _tag } = yield* Queue.cancel(jobId)
    book.note({ act: "cancel", answer: _tag, ref: null, jobId })
  })

const retry = (book: Book, state: "dead" | "canceled") =>
  Effect.gen(function* () {
    const ended = yield* Queue.list({ state, limit: 20 })
    const [first, ...others] = ended.map(({ id }) => id)
    if (first === undefined) return
    const jobId = yield* Rolls.pick([first, ...others])
    yield* Queue.retry(jobId)
    book.note({ act: "retry", answer: "ended", ref: null, jobId })
  })
