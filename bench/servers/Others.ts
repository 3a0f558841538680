/**
 * The servers of peers that do not run on MySQL, set up to keep every commit, as MySQL is here. They are found, not fetched:
 * a distribution's own packages have them.
 */
import { spawnSync } from "node:child_process"
import { existsSync, readdirSync } from "node:fs"
import { delimiter, join } from "node:path"
import { Effect, Option, type Scope } from "effect"
import { freePort } from "../../scripts/mysql/Ephemeral.js"
import { BenchError } from "../BenchError.js"
import * as Guarded from "./Guarded.js"

export interface OtherServer {
  /** What is missing, where it can not be had. */
  readonly missing: Option.Option<string>
  /** Starts one with nothing in it; answers its URL. It is stopped, and its files are removed, when the scope closes. */
  readonly start: Effect.Effect<string, BenchError, Scope.Scope>
}

const find = (program: string, folders: ReadonlyArray<string>): Option.Option<string> =>
  Option.fromNullable(
    [...(process.env["PATH"] ?? "").split(delimiter), ...folders]
      .map((folder) => join(folder, program))
      .find((path) => existsSync(path))
  )

const port = Effect.mapError(freePort, (message) => new BenchError({ message }))

/** Debian keeps the programs of PostgreSQL beside each other by version, and off the PATH. */
const debian = "/usr/lib/postgresql"
const postgresFolders = existsSync(debian) ? readdirSync(debian).map((version) => join(debian, version, "bin")) : []

const notFound = (program: string, packageName: string) =>
  new BenchError({ message: `${program} is not there: install ${packageName}` })

const located = (program: string, packageName: string, folders: ReadonlyArray<string> = []) => {
  const path = find(program, folders)
  return {
    path: Effect.mapError(path, () => notFound(program, packageName)),
    missing: Option.isNone(path) ? Option.some(notFound(program, packageName).message) : Option.none<string>()
  }
}

const initdb = located("initdb", "postgresql", postgresFolders)
const postgresProgram = located("postgres", "postgresql", postgresFolders)
const redisProgram = located("redis-server", "redis-server")

export const postgres: OtherServer = {
  missing: Option.orElse(initdb.missing, () => postgresProgram.missing),
  start: Effect.gen(function* () {
    const init = yield* initdb.path
    const program = yield* postgresProgram.path
    const dir = yield* Guarded.folder("postgres")
    const listening = yield* port
    const data = join(dir, "data")
    yield* Effect.try({
      try: () => {
        const made = spawnSync(init, ["-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C"], {
          cwd: dir,
          encoding: "utf8",
          ...Guarded.identity
        })
        if (made.status !== 0) throw new Error(made.stderr)
      },
      catch: (error) => new BenchError({ message: `initdb failed: ${String(error)}` })
    })
    const settings = ["listen_addresses=127.0.0.1", "fsync=on", "synchronous_commit=on", "shared_buffers=1GB"]
    yield* Guarded.start(dir, listening, [
      program,
      ...["-D", data, "-p", String(listening), "-k", dir],
      ...settings.flatMap((setting) => ["-c", setting])
    ])
    return `postgres://bench@127.0.0.1:${listening}/postgres`
  })
}

export const redis: OtherServer = {
  missing: redisProgram.missing,
  start: Effect.gen(function* () {
    const program = yield* redisProgram.path
    const dir = yield* Guarded.folder("redis")
    const listening = yield* port
    yield* Guarded.start(dir, listening, [
      program,
      ...["--port", String(listening), "--bind", "127.0.0.1", "--dir", dir],
      ...["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    ])
    return `redis://127.0.0.1:${listening}`
  })
}
