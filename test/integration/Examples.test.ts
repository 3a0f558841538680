import { execFile } from "node:child_process"
import { promisify } from "node:util"
import { expect, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Database, database } from "../support/Mysql.js"

const run = (file: string) =>
  Effect.flatMap(Database, ({ url }) =>
    Effect.promise(() =>
      promisify(execFile)("npx", ["tsx", `examples/${file}`], { env: { ...process.env, LEASEHOLD_MYSQL_URL: url } })
    )
  )

/** The first words of the lines that are no log. */
const told = (output: string) =>
  output
    .split("\n")
    .filter((line) => /^\w+ /.test(line))
    .map((line) => line.split(" ")[0])

layer(database, { excludeTestServices: true, timeout: "2 minutes" })(
  "the examples of a transactional enqueue",
  (it) => {
    it.effect("with Effect: placed, undone, repeated, and shipped", () =>
      Effect.gen(function* () {
        const { stdout } = yield* run("02-transactional-enqueue/effect.ts")
        expect(told(stdout)).toEqual(["placed", "undone", "repeated", "placed", "shipped", "shipped", "2"])
        expect(stdout).toContain("created: false")
      })
    )

    it.effect("with Drizzle: placed, undone, repeated, and refused outside of a transaction", () =>
      Effect.gen(function* () {
        const { query } = yield* Database
        yield* query("DROP TABLE IF EXISTS example_jobs, example_queues, example_refusals, example_migrations")
        const { stdout } = yield* run("02-transactional-enqueue/drizzle.ts")
        expect(told(stdout)).toEqual(["placed", "undone", "repeated", "refused", "1"])
        expect(stdout).toContain("1 order, 1 job")
      })
    )
  }
)
