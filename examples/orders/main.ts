/**
 * `npm run demo`: orders, each committed together with the job that exports it, and a worker that does.
 */
import { MysqlClient } from "@effect/sql-mysql2"
import {
  Cause,
  Data,
  Deferred,
  Duration,
  Effect,
  Either,
  Exit,
  Fiber,
  Layer,
  Option,
  Redacted,
  Ref,
  Scope
} from "effect"
import { MysqlQueue, Worker } from "leasehold"
import { launch, type MysqlServer } from "../../scripts/mysql/MysqlServer.js"
import * as Board from "./Board.js"
import { ExportOrder, layer as exportOrderLayer } from "./ExportOrder.js"
import * as Leftovers from "./Leftovers.js"
import * as Options from "./Options.js"
import { Orders } from "./Orders.js"
import { placeOrder } from "./PlaceOrder.js"
import { Screen, layer as screenLayer } from "./Screen.js"
import { seconds } from "./Table.js"

/** How long exports may go on after Ctrl-C. */
const grace = Duration.seconds(2)

const live = (options: Options.Options, server: MysqlServer) =>
  exportOrderLayer({ delay: options.handlerDelay, failRate: options.failRate }).pipe(
    Layer.provideMerge(Orders.Default),
    Layer.provideMerge(MysqlQueue.layer({ migrate: "auto" })),
    Layer.provideMerge(MysqlClient.layer({ url: Redacted.make(server.url), maxConnections: 8 })),
    Layer.provideMerge(screenLayer(options.json ? "json" : process.stdout.isTTY === true ? "table" : "lines"))
  )

const makeWorker = (options: Options.Options) =>
  Worker.make({
    jobs: [ExportOrder],
    // No job is claimed ahead of a free slot, so that the attempts on the screen are those that a handler has really made.
    queues: { orders: { concurrency: options.concurrency, prefetch: 0 } },
    lease: options.lease,
    poll: "200 millis",
    // A job whose export was cut off stays with this worker until its lease has ended, as after a crash: that is what the
    // demo is to show. "release", the default, would give it back at once.
    shutdown: { grace, unfinished: "expire" },
    maintenance: { reap: options.reap }
  })

/** Places orders, works and shows it, until all is done or `stop` is; answers the exit code. */
const run = (options: Options.Options, server: MysqlServer, stop: Effect.Effect<void>) =>
  Effect.gen(function* () {
    const screen = yield* Screen
    const orders = yield* Orders
    yield* orders.prepare
    const board = yield* Board.make
    const worker = yield* makeWorker(options)
    const began = Date.now()
    const ephemeral = server.source !== "url"
    const title = `Leasehold demo · ${showUrl(server.url)} (MySQL ${server.version}) · process ${process.pid}`
    const frame = (lines: ReadonlyArray<Board.Line>, status: string) => ({
      title,
      lines,
      worker: worker.id,
      status
    })

    // The worker runs in a fiber that only this function stops: at the end, or when somebody presses Ctrl-C.
    const working = yield* Effect.forkScoped(worker.run)
    const placed = yield* Ref.make(0)
    const placeOne = Effect.zipRight(
      placeOrder,
      Ref.update(placed, (count) => count + 1)
    )
    const placing = yield* Effect.forkScoped(Effect.replicateEffect(placeOne, options.orders, { discard: true }))

    // What was done before is of no interest to somebody who watches; a run without orders of its own lists it in its JSON.
    const read = Effect.map(board.read, (all) =>
      all.filter(({ old }) => !old || (options.orders === 0 && options.json))
    )
    let lines: ReadonlyArray<Board.Line> = []
    let status = options.orders === 0 ? "Working until Ctrl-C." : "Ctrl-C stops gracefully."
    const look = read.pipe(
      Effect.matchEffect({
        onFailure: (error) => screen.show(frame(lines, `The database can not be read, trying again (${error._tag}).`)),
        onSuccess: (found) => {
          lines = found
          return screen.show(frame(lines, status))
        }
      })
    )
    const watch = Effect.gen(function* () {
      while (true) {
        const all = (yield* Ref.get(placed)) === options.orders
        yield* look
        if (all && options.orders > 0 && lines.every((line) => !Board.isOpen(line))) return
        yield* Effect.sleep("100 millis")
      }
    })
    // Neither fiber ends before it is told to, but by a failure, which is the demo's.
    const failure = Effect.raceFirst(Effect.zipRight(Fiber.join(placing), Effect.never), Fiber.join(working))
    const ending = yield* Effect.raceFirst(
      Effect.raceFirst(Effect.as(watch, "done" as const), Effect.as(stop, "stopped" as const)),
      failure
    )

    if (ending === "stopped") {
      status = `Stopping: nothing more is claimed, exports under way have ${seconds(grace)}. Ctrl-C again stops at once.`
    }
    // Not waited for: a transaction ends when the server answers, and it may not.
    yield* Fiber.interruptFork(placing)
    yield* Effect.raceFirst(Fiber.interrupt(working), Effect.forever(Effect.zipRight(look, Effect.sleep("100 millis"))))
    lines = yield* Effect.orElseSucceed(read, () => lines)
    const took = seconds(Duration.millis(Date.now() - began))
    yield* screen.end(frame(lines, `${ending === "done" ? "Done" : "Stopped"} after ${took}.`))

    const left = Leftovers.describe(lines, { worker: worker.id, ephemeral, url: showUrl(server.url) })
    const lost = lines.filter(({ state }) => state === "dead" || state === "canceled").map(({ order }) => order)
    // A stop may fall between a commit and its count: the rows know better.
    const unplaced = options.orders - Math.max(yield* Ref.get(placed), lines.filter(({ old }) => !old).length)
    if (left.length > 0) yield* screen.say(left.join("\n"))
    if (lost.length > 0) {
      yield* screen.say(`Orders that will not be exported, since their jobs are dead: ${lost.join(", ")}.`)
    }
    if (unplaced > 0) yield* screen.say(`${unplaced} of the ${options.orders} orders were not placed any more.`)
    if (ending === "done" && lost.length === 0 && !options.json) yield* screen.say(summary(lines))
    if (ending === "done") return lost.length === 0 ? 0 : 1
    return options.orders === 0 || (left.length === 0 && unplaced === 0) ? 0 : 130
  })

const summary = (lines: ReadonlyArray<Board.Line>): string => {
  const attempts = lines.reduce((sum, { attempt }) => sum + attempt, 0)
  return [
    `${lines.length} orders, each exported once, in ${attempts} attempts. Next:`,
    "  npm run demo -- --fail-rate 0.4    attempts that fail, before and after their export",
    "  npm run demo -- --help             two workers, Ctrl-C and kill -9"
  ].join("\n")
}

/** A URL without its password. */
const showUrl = (text: string): string => {
  const url = new URL(text)
  if (url.password !== "") url.password = "***"
  return url.href
}

/** Somebody stopped the demo before it had begun. */
class Stopped extends Data.TaggedError("Stopped")<{}> {
  override readonly message = "Stopped before anything was placed."
}

const program = (options: Options.Options, stop: Effect.Effect<void>) => {
  const orStopped = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.raceFirst(effect, Effect.zipRight(stop, new Stopped()))
  const body = Effect.gen(function* () {
    const given = Option.isSome(options.url) || process.env["LEASEHOLD_MYSQL_URL"] !== undefined
    if (!given && !options.json) yield* complain("Starting a MySQL server for this run …")
    const server = yield* orStopped(
      launch(Option.match(options.url, { onNone: () => ({}), onSome: (url) => ({ url }) }))
    )
    if (new URL(server.url).pathname.length < 2) {
      return yield* new Options.UsageError({ message: "LEASEHOLD_MYSQL_URL names no database: it ends in /name." })
    }
    const context = yield* orStopped(Layer.build(live(options, server)))
    return yield* Effect.provide(run(options, server, stop), context)
  })
  return Effect.gen(function* () {
    const scope = yield* Scope.make()
    const exit = yield* Effect.exit(Scope.extend(body, scope))
    // A pool that has lost its server may wait for ever to be closed.
    yield* Scope.close(scope, exit).pipe(Effect.disconnect, Effect.timeoutOption("10 seconds"))
    return yield* exit
  })
}

/** Completes at the first Ctrl-C, SIGTERM or SIGHUP; a later one ends the process at once. */
const listenForStop = Effect.gen(function* () {
  const stopped = yield* Deferred.make<void>()
  let at: number | undefined
  yield* Effect.sync(() => {
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
      process.on(signal, () => {
        // One Ctrl-C can come twice: from the terminal, and from npm, which passes it on.
        if (at !== undefined && Date.now() - at > 500) process.exit(130)
        at ??= Date.now()
        Deferred.unsafeDone(stopped, Exit.void)
      })
    }
    // Whoever read the output has gone, as after `| head`.
    process.stdout.on("error", () => Deferred.unsafeDone(stopped, Exit.void))
  })
  return Deferred.await(stopped)
})

const complain = (text: string) => Effect.sync(() => void process.stderr.write(`${text}\n`))

const main: Effect.Effect<number> = Either.match(Options.parse(process.argv.slice(2)), {
  onLeft: ({ message }) => Effect.as(complain(`${message}\nWith --help it says what it takes.`), 2),
  onRight: (wish) =>
    wish._tag === "Help"
      ? Effect.as(
          Effect.sync(() => void process.stdout.write(`${Options.help}\n`)),
          0
        )
      : Effect.flatMap(listenForStop, (stop) => program(wish.options, stop)).pipe(
          Effect.catchAll((error) => Effect.as(complain(messageOf(error)), error._tag === "Stopped" ? 130 : 1)),
          Effect.catchAllCause((cause) => Effect.as(complain(Cause.pretty(cause)), 1))
        )
})

const messageOf = (error: { readonly _tag: string; readonly message: string; readonly cause?: unknown }): string =>
  error._tag === "SqlError" && error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message

// The end is explicit, and so is the life before it: a pool that could not connect keeps the process alive by a timer that
// nobody ends, and one that has lost its connections keeps nothing alive that somebody may still wait for.
setInterval(() => {}, 60_000)
Effect.runPromise(main).then((code) => process.exit(code))
