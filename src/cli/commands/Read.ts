/**
 * Commands that look: counts, list, show, why.
 */
import * as Args from "@effect/cli/Args"
import * as Options from "@effect/cli/Options"
import { Effect, Option } from "effect"
import { type JobRecord, JobState } from "../../JobRecord.js"
import type { QueueCount } from "../../JobStore.js"
import * as Queue from "../../Queue.js"
import * as Connection from "../Connection.js"
import * as Filter from "../Filter.js"
import * as Output from "../Output.js"
import * as Records from "../Records.js"
import * as Values from "../Values.js"
import * as Verb from "../Verb.js"

export const json = Options.boolean("json").pipe(Options.withDescription("Print JSON"))

export const showPayload = Options.boolean("show-payload").pipe(
  Options.withDescription("Print payloads and results as well, as they are stored")
)

export const id = Args.text({ name: "id" }).pipe(Args.withDescription("The id of a job"))

export const counts = Verb.make(
  "counts",
  {
    summary: "How many jobs each queue has in each state",
    about: ["It reads every job once, so run it by hand and not in a loop."],
    examples: ["leasehold counts", "leasehold counts --json"]
  },
  { ...Connection.options, json },
  (given) =>
    Effect.gen(function* () {
      const all = yield* Queue.counts
      const paused = new Set(yield* Queue.paused)
      const queues = [...new Set([...all.map(({ queue }) => queue), ...paused])].sort()
      const rows = queues.map((queue) => ({ queue, ...byState(queue, all), paused: paused.has(queue) }))
      yield* Output.either(
        given.json,
        () => rows,
        () =>
          rows.length === 0
            ? ["There are no jobs."]
            : Output.table(
                ["queue", ...JobState.literals, ""],
                rows.map((row) => [
                  row.queue,
                  ...JobState.literals.map((state) => row[state]),
                  row.paused ? "paused" : ""
                ])
              )
      )
    }).pipe(Effect.provide(Connection.queue(given)))
)

const byState = (queue: string, all: ReadonlyArray<QueueCount>) => {
  const count = (state: JobState) => all.find((row) => row.queue === queue && row.state === state)?.count ?? 0
  return {
    pending: count("pending"),
    running: count("running"),
    succeeded: count("succeeded"),
    dead: count("dead"),
    canceled: count("canceled")
  }
}

export const list = Verb.make(
  "list",
  {
    summary: "Jobs that match, by id, a page at a time",
    about: [
      "A page ends with the cursor of the next one. It walks over the ids until the page is full, so rare jobs in a large "
        + "table take a while."
    ],
    examples: [
      "leasehold list --state dead",
      "leasehold list --queue orders --type order.export --limit 20 --after 1042",
      "leasehold list --state dead --json | jq -r '.jobs[].id'"
    ]
  },
  {
    ...Connection.options,
    ...Filter.options,
    after: Options.text("after").pipe(
      Options.withPseudoName("id"),
      Options.withDescription("Only jobs after this one: the cursor of the page before"),
      Options.withDefault("")
    ),
    limit: Values.wholeNumber("limit", 1, 1_000).pipe(
      Options.withDescription("Jobs in a page, 1 to 1000. Default: 100"),
      Options.withDefault(100)
    ),
    showPayload,
    json
  },
  (given) =>
    Effect.gen(function* () {
      const filter = yield* Filter.read(given)
      const after = yield* Filter.cursor(given.after)
      yield* Effect.gen(function* () {
        const jobs = yield* Queue.list({ ...filter, after, limit: given.limit })
        const next = jobs.length < given.limit ? null : (jobs.at(-1)?.id ?? null)
        yield* Output.either(
          given.json,
          () => ({ jobs: jobs.map((job) => Records.toJson(job, given.showPayload)), next }),
          () => listed(jobs, next, given.showPayload)
        )
      }).pipe(Effect.provide(Connection.queue(given)))
    })
)

const listed = (jobs: ReadonlyArray<JobRecord>, next: string | null, withPayload: boolean): ReadonlyArray<string> =>
  jobs.length === 0
    ? ["No job matches."]
    : [...Records.toTable(jobs, withPayload), ...(next === null ? [] : ["", `More: add --after ${next}`])]

export const show = Verb.make(
  "show",
  {
    summary: "One job as it stands",
    examples: ["leasehold show 1042", "leasehold show 1042 --show-payload --json"]
  },
  { ...Connection.options, id, showPayload, json },
  (given) =>
    Effect.gen(function* () {
      const job = yield* Queue.get(given.id)
      yield* Output.either(
        given.json,
        () => Records.toJson(job, given.showPayload),
        () => Records.toFields(job, given.showPayload)
      )
    }).pipe(Effect.provide(Connection.queue(given)))
)

export const why = Verb.make(
  "why",
  {
    summary: "The story of one job: its attempts, refused late writes, and where it stands",
    about: ["The ledger keeps the last 50 attempts and 20 refused writes of a job."],
    examples: ["leasehold why 1042", "leasehold why 1042 --json"]
  },
  { ...Connection.options, id, json },
  (given) =>
    Effect.gen(function* () {
      const { events, job, now } = yield* Queue.why(given.id)
      yield* Output.either(
        given.json,
        () => ({
          id: job.id,
          state: job.state,
          now,
          events: events.map(({ at, kind, says, token, worker }) => ({
            at: Records.time(at),
            kind,
            token: Option.getOrNull(token),
            worker: Option.getOrNull(worker),
            says
          }))
        }),
        () => [
          ...Output.fields(events.map(({ at, says }) => [Records.time(at), says] as const)),
          "",
          Output.printable(`Job ${job.id} now: ${now}`)
        ]
      )
    }).pipe(Effect.provide(Connection.queue(given)))
)
