/**
 * Whether a drain is as fast in a large table as in a small one: backlog, delayed, snapshot, history.
 */
import { Effect, Option } from "effect"
import type { Case, Settings } from "../Case.js"
import { drain } from "../Prepared.js"
import { insert } from "../Seed.js"
import { connect } from "../Server.js"

const million = 1_000_000

const read = ({ concurrency, jobs, payload }: Settings, fallback: number) => ({
  jobs: Option.getOrElse(jobs, () => fallback),
  concurrency: Option.getOrElse(concurrency, () => 32),
  payload
})

export const backlog: Case = {
  name: "backlog",
  about: "a drain while 1,000, 100,000 and 1,000,000 jobs are due",
  variants: (settings) => {
    const setup = read(settings, 20_000)
    // A thousand jobs are run before a process is warm, so they are replaced as they are run.
    return [1_000, 100_000, million].map((size) =>
      drain({
        ...setup,
        ...(size < setup.jobs ? { refill: size } : {}),
        name: `${size.toLocaleString("en-US")} due`,
        prepare: (database) => Effect.as(insert(database, { count: size, payload: setup.payload }), size)
      })
    )
  }
}

export const delayed: Case = {
  name: "delayed",
  about: "a drain while a million jobs are due later, half of them at a higher priority",
  variants: (settings) => {
    const setup = read(settings, 20_000)
    return [0, million].map((later) =>
      drain({
        ...setup,
        name: `${later.toLocaleString("en-US")} delayed`,
        prepare: (database) =>
          Effect.gen(function* () {
            const due = "UTC_TIMESTAMP(6) + INTERVAL 1 DAY + INTERVAL n SECOND"
            for (const priority of [0, 5]) {
              const from = setup.jobs + (priority * later) / 10
              yield* insert(database, { from, count: later / 2, payload: setup.payload, priority, due })
            }
            yield* insert(database, { count: setup.jobs, payload: setup.payload })
            return later + setup.jobs
          })
      })
    )
  }
}

export const snapshot: Case = {
  name: "snapshot",
  about: "a drain while another session holds an old snapshot, with and without a write of its own",
  variants: (settings) => {
    const setup = read(settings, 50_000)
    return (["none", "a snapshot", "a snapshot and a write"] as const).map((held) =>
      drain({
        ...setup,
        name: `held: ${held}`,
        prepare: (database) =>
          Effect.gen(function* () {
            yield* insert(database, { count: setup.jobs, payload: setup.payload })
            yield* database.query("CREATE TABLE elsewhere (id INT PRIMARY KEY)")
            if (held !== "none") {
              const holder = yield* connect(database.url)
              yield* holder.query("SET SESSION transaction_isolation = 'REPEATABLE-READ'")
              yield* holder.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
              yield* holder.query("SELECT COUNT(*) FROM elsewhere")
              if (held === "a snapshot and a write") yield* holder.query("INSERT INTO elsewhere VALUES (1)")
            }
            return setup.jobs
          })
      })
    )
  }
}

export const history: Case = {
  name: "history",
  about: "a drain while a million jobs have ended and are kept",
  variants: (settings) => {
    const setup = read(settings, 20_000)
    return [0, million].map((ended) =>
      drain({
        ...setup,
        name: `${ended.toLocaleString("en-US")} ended`,
        prepare: (database) =>
          Effect.gen(function* () {
            yield* insert(database, { count: ended, payload: setup.payload, state: "succeeded" })
            yield* insert(database, { count: setup.jobs, payload: setup.payload })
            return setup.jobs
          })
      })
    )
  }
}
