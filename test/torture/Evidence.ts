/**
 * The records of a torture as files, so that what it found can be looked into when its server is gone.
 */
import { createWriteStream, mkdirSync } from "node:fs"
import { join } from "node:path"
import { pipeline } from "node:stream/promises"
import { Effect } from "effect"

import * as Records from "./Records.js"

/** Writes each table into a file of the folder, one row a line as JSON, in the order of its primary key. */
export const write = (query: Records.Query, folder: string): Effect.Effect<void> =>
  Effect.gen(function* () {
    yield* Effect.sync(() => mkdirSync(folder, { recursive: true }))
    for (const { key, table } of [...Records.keys, { table: "leasehold_jobs", key: "id" }]) {
      const rows = yield* query(`SELECT * FROM ${table} ORDER BY ${key}`)
      yield* Effect.promise(() => pipeline(linesOf(rows), createWriteStream(join(folder, `${table}.jsonl`))))
    }
  })

function* linesOf(rows: ReadonlyArray<Record<string, unknown>>): Generator<string> {
  for (const row of rows) yield `${JSON.stringify(row)}\n`
}
