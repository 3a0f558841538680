/**
 * Who enqueues in a torture, in every way there is, and keeps a book of what it was told.
 */
import { SqlClient } from "@effect/sql"
import { type Duration, Effect, Random } from "effect"
import { Queue } from "../../src/index.js"
import * as Rolls from "./Rolls.js"
import { Ending, Exact, type Payload, Plain, Watched } from "./Work.js"

/** `acknowledged`: it is durable, says the library. `refused`: nothing was written, says the library. */
export interface Answer {
  readonly act: "single" | "watched" | "keyed" | "bulk" | "delayed" | "transactional" | "cancel" | "retry"
  readonly answer: "acknowledged" | "refused" | "unknown" | "rolled back" | "canceled" | "requested" | "ended"
  readonly ref: number | null
  readonly jobId: string | null
}

/** What callers were told, and the ids that they know of. */
export class Book {
  readonly answers: Array<Answer> = []
  readonly known: Array<string> = []
  private refs = 0

  nextRef(): number {
    this.refs++
    return this.refs
  }

  note(answer: Answer): void {
    this.answers.push(answer)
    if (answer.answer === "acknowledged" && answer.jobId !== null) this.known.push(answer.jobId)
  }
}

/** Of jobs with keys, which are asked for again and again. */
const keys = 150
const keyedRefs = 1_000_000_000

const payloadOf = (ref: number): Effect.Effect<Payload> =>
  Effect.gen(function* () {
    const long = yield* Rolls.oneIn(25)
    const millis = long ? yield* Random.nextIntBetween(1_500, 6_000) : yield* Random.nextIntBetween(0, 150)
    const special = yield* Rolls.oneIn(4)
    const ending = special ? yield* Rolls.pick(Ending.literals) : "succeed"
    return { ref, millis: ending === "spin" ? Math.min(millis, 3_000) : millis, ending }
  })

type Which = "plain" | "exact" | "watched"

const either: Effect.Effect<Which> = Effect.map(Rolls.oneIn(2), (isExact) => (isExact ? "exact" : "plain"))

const requestOf = (which: Which, payload: Payload, options: Queue.EnqueueOptions = {}) => {
  switch (which) {
    case "plain":
      return Queue.request(Plain, payload, options)
    case "exact":
      return Queue.request(Exact, payload, options)
    case "watched":
      return Queue.request(Watched, payload, options)
  }
}

const enqueueOne = (which: Which, payload: Payload, options: Queue.EnqueueOptions) =>
  Effect.map(Queue.enqueueMany([requestOf(which, payload, options)], options), ([enqueued]) => enqueued?.id ?? null)

/** Does one enqueue of a kind that chance picks, and notes its answer. Never fails. */
export const produce = (book: Book) =>
  Effect.flatMap(Rolls.pick(["single", "keyed", "bulk", "delayed", "joined", "own"] as const), (kind) => {
    switch (kind) {
      case "single":
        return single(book, "single", {})
      case "delayed":
        return Effect.flatMap(Random.nextIntBetween(50, 3_000), (delay) => single(book, "delayed", { delay }))
      case "keyed":
        return keyed(book)
      case "bulk":
        return bulk(book)
      default:
        return transactional(book, kind)
    }
  })

const single = (book: Book, act: "single" | "delayed", options: { readonly delay?: Duration.DurationInput }) =>
  Effect.gen(function* () {
    const ref = book.nextRef()
    const payload = yield* payloadOf(ref)
    const priority = yield* Random.nextIntBetween(0, 10)
    const which = yield* either
    yield* enqueueAlone(book, act, which, payload, { ...options, priority })
  })

/** A job that runs for some seconds, so that it is held when its worker is killed. */
export const produceWatched = (book: Book) =>
  Effect.flatMap(Random.nextIntBetween(2_000, 6_000), (millis) =>
    enqueueAlone(book, "watched", "watched", { ref: book.nextRef(), millis, ending: "succeed" }, {})
  )

const enqueueAlone = (
  book: Book,
  act: Answer["act"],
  which: Which,
  payload: Payload,
  options: Queue.EnqueueOptions
): Effect.Effect<void, never, Queue.Queue> =>
  Effect.gen(function* () {
    const { ref } = payload
    const told = yield* Effect.either(enqueueOne(which, payload, options))
    book.note(
      told._tag === "Right"
        ? { act, answer: "acknowledged", ref, jobId: told.right }
        : { act, answer: answerOf(told.left), ref, jobId: null }
    )
  })

/** The same key always asks for the same job. */
const keyed = (book: Book) =>
  Effect.gen(function* () {
    const which = yield* Random.nextIntBetween(0, keys)
    const ref = keyedRefs + which
    const payload: Payload = { ref, millis: which, ending: which % 10 === 0 ? "retry" : "succeed" }
    const told = yield* Effect.either(
      enqueueOne(which % 2 === 1 ? "exact" : "plain", payload, {
        idempotency: { scope: `tenant-${which % 3}`, key: `key-${which}` }
      })
    )
    book.note({
      act: "keyed",
      answer: told._tag === "Right" ? "acknowledged" : answerOf(told.left),
      ref,
      jobId: told._tag === "Right" ? told.right : null
    })
  })

const bulk = (book: Book) =>
  Effect.gen(function* () {
    const count = yield* Random.nextIntBetween(2, 20)
    const payloads = yield* Effect.replicateEffect(
      Effect.suspend(() => payloadOf(book.nextRef())),
      count
    )
    const which = yield* either
    const told = yield* Effect.either(Queue.enqueueMany(payloads.map((payload) => requestOf(which, payload))))
    for (const [index, { ref }] of payloads.entries()) {
      book.note({
        act: "bulk",
        answer: told._tag === "Right" ? "acknowledged" : answerOf(told.left),
        ref,
        jobId: told._tag === "Right" ? (told.right[index]?.id ?? null) : null
      })
    }
  })

/** A row of the caller and a job in one transaction, his own or the library's; a third of them is rolled back. */
const transactional = (book: Book, how: "joined" | "own") =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const ref = book.nextRef()
    const payload = yield* payloadOf(ref)
    const which = yield* either
    const rolledBack = yield* Rolls.oneIn(3)
    const body = Effect.gen(function* () {
      yield* sql`INSERT INTO audit_orders (ref) VALUES (${ref})`
      const id = yield* enqueueOne(which, payload, { requireTransaction: true })
      if (rolledBack) yield* Effect.fail("rolled back" as const)
      return id
    })
    const exit = yield* Effect.exit(how === "own" ? Queue.withTransaction(body) : sql.withTransaction(body))
    // Where a commit failed, @effect/sql dies: whether it happened is not known, and the row tells.
    book.note(
      exit._tag === "Success"
        ? { act: "transactional", answer: "acknowledged", ref, jobId: exit.value }
        : { act: "transactional", answer: rolledBack ? "rolled back" : "unknown", ref, jobId: null }
    )
  })

/** Whether the library says that nothing was written. */
const answerOf = (error: { readonly _tag: string }): "refused" | "unknown" =>
  error._tag === "OutcomeUnknown" ? "unknown" : "refused"
