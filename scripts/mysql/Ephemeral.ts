/**
 * A MySQL server that lives as long as this process, whatever ends it.
 */

import { type ChildProcess, spawn } from "node:child_process"
import { mkdtempSync, readFileSync } from "node:fs"
import { createServer } from "node:net"
import { tmpdir, userInfo } from "node:os"
import { join } from "node:path"
import { Duration, Effect, Schedule, type Scope } from "effect"
import * as Mysql from "mysql2/promise"
import { run } from "./Command.js"

/** Durable as a production server is: `innodb_flush_log_at_trx_commit` and the doublewrite buffer keep their defaults. */
const serverArgs = [
  "--bind-address=127.0.0.1",
  "--mysqlx=OFF",
  "--skip-log-bin",
  "--innodb-buffer-pool-size=1G",
  "--innodb-redo-log-capacity=1G",
  "--max-connections=300",
  "--performance-schema=ON"
]

/** For making the data only, which saves a second: a folder that was not finished is thrown away. */
const initArgs = ["--skip-log-bin", "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF"]

/** The `mysqld` on PATH, where it is a MySQL that the library supports. */
export const findOnPath: Effect.Effect<string, string> = Effect.flatMap(
  Effect.mapError(run("mysqld", ["--no-defaults", "--version"]), () => "there is none"),
  (text) => {
    const version = /Ver (\d+)\.(\d+)\.(\d+)/.exec(text)
    if (version === null || /mariadb/i.test(text)) return Effect.fail(`it is no MySQL (${text.trim().slice(0, 100)})`)
    const [major = 0, , patch = 0] = version.slice(1).map(Number)
    return major > 8 || (major === 8 && (!version[0].startsWith("Ver 8.0.") || patch >= 13))
      ? Effect.succeed("mysqld")
      : Effect.fail(`it is too old (${version[0]})`)
  }
)

/**
 * The watchdog: a shell that holds the other end of a pipe from this process. The pipe closes when this process ends, in
 * whatever way, `kill -9` too; then the shell kills what it runs and removes the files.
 *
 * It ignores SIGPIPE, since it complains on a stderr whose reader is dead by then: dash's own "Killed" ended it before it had
 * removed a gigabyte of data.
 *
 * With LEASEHOLD_RESTARTS it starts a server anew that has ended, as a service manager does, but not while a file `down` lies
 * beside the data.
 */
const watchdog = `
trap '' PIPE
exec 3<&0
(cat <&3 >/dev/null; : > "$LEASEHOLD_DIR/ended"; kill -KILL "$(cat "$LEASEHOLD_DIR/child")" 2>/dev/null) & waiter=$!
guarded() {
  "$@" </dev/null & echo $! > "$LEASEHOLD_DIR/child"
  [ -e "$LEASEHOLD_DIR/ended" ] && kill -KILL $!
  wait $!
}
serve() {
  while guarded "$@"; code=$?; [ -n "$LEASEHOLD_RESTARTS" ] && [ ! -e "$LEASEHOLD_DIR/ended" ]; do
    while [ -e "$LEASEHOLD_DIR/down" ] && [ ! -e "$LEASEHOLD_DIR/ended" ]; do sleep 0.1; done
  done
  return $code
}
guarded "$1" --no-defaults --initialize-insecure $LEASEHOLD_INIT && [ ! -e "$LEASEHOLD_DIR/ended" ] && serve "$@"
code=$?
kill $waiter 2>/dev/null
tail -n 8 "$LEASEHOLD_DIR/error.log" >&2
rm -rf "$LEASEHOLD_DIR"
exit $code
`

const startWatchdog = (
  binary: string,
  dir: string,
  common: ReadonlyArray<string>,
  args: ReadonlyArray<string>,
  restarts: boolean
): ChildProcess =>
  spawn("sh", ["-c", watchdog, "leasehold-watchdog", binary, "--no-defaults", ...common, ...args], {
    stdio: ["pipe", "ignore", "pipe"],
    // A process group of its own: Ctrl-C in the terminal must reach the program, and not the server under it.
    detached: true,
    env: {
      ...process.env,
      LEASEHOLD_DIR: dir,
      LEASEHOLD_INIT: [...common, ...initArgs].join(" "),
      LEASEHOLD_RESTARTS: restarts ? "1" : ""
    }
  })

const stop = (child: ChildProcess): Effect.Effect<void> =>
  Effect.async((resume) => {
    if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
    // `start` let go of it; without this the event loop may run empty and the process end in the middle of its finalizers.
    child.ref()
    child.on("exit", () => resume(Effect.void))
    child.stdin?.end()
  })

/** More arguments for a `mysqld`, which may depend on the port that it gets. They win over the defaults. */
export type ExtraArgs = ReadonlyArray<string> | ((port: number) => ReadonlyArray<string>)

/**
 * Initialises and starts `binary` on a free port with a database `leasehold`; answers its URL once it takes connections. Where
 * another program was faster to take the port, it starts again on the next one, three times at most. With `restarts`, one that
 * ends is started anew on the same port and data until the scope closes.
 */
export const start = (
  binary: string,
  extraArgs: ExtraArgs,
  restarts = false
): Effect.Effect<string, string, Scope.Scope> =>
  Effect.retry(startOnce(binary, extraArgs, restarts), {
    times: 2,
    while: (reason) => /address already in use/i.test(reason)
  })

const startOnce = (
  binary: string,
  extraArgs: ExtraArgs,
  restarts: boolean
): Effect.Effect<string, string, Scope.Scope> =>
  Effect.gen(function* () {
    const dir = yield* Effect.sync(() => mkdtempSync(join(tmpdir(), "leasehold-mysql-")))
    const port = yield* freePort
    const asRoot = userInfo().uid === 0 ? ["--user=root"] : []
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        startWatchdog(
          binary,
          dir,
          [`--datadir=${join(dir, "data")}`, `--log-error=${join(dir, "error.log")}`, ...asRoot],
          [
            `--port=${port}`,
            `--socket=${join(dir, "s.sock")}`,
            `--pid-file=${join(dir, "pid")}`,
            ...serverArgs,
            ...(typeof extraArgs === "function" ? extraArgs(port) : extraArgs)
          ],
          restarts
        )
      ),
      stop
    )
    let lastWords = ""
    child.stderr?.on("data", (chunk: Buffer) => {
      lastWords += chunk
    })
    yield* Effect.mapError(
      ready(port, join(dir, "s.sock"), child),
      (reason) => `${reason}; its log ends: ${lastWords.trim().replaceAll("\n", " | ")}`
    )
    // A program that has nothing more to do must not wait for its server; the pipe tells the watchdog when it is gone.
    child.unref()
    return `mysql://root@127.0.0.1:${port}/leasehold`
  })

/** A port that nobody listens on at this moment. */
export const freePort: Effect.Effect<number, string> = Effect.async((resume) => {
  const server = createServer()
  server.on("error", (error) => resume(Effect.fail(error.message)))
  server.listen(0, "127.0.0.1", () => {
    const address = server.address()
    server.close(() =>
      resume(
        typeof address === "object" && address !== null ? Effect.succeed(address.port) : Effect.fail("no free port")
      )
    )
  })
})

/** Ready is our own server, and not another one that was faster to take the port. */
const ready = (port: number, socket: string, child: ChildProcess): Effect.Effect<void, string> =>
  Effect.tryPromise({
    try: async () => {
      const connection = await Mysql.createConnection({ host: "127.0.0.1", port, user: "root", connectTimeout: 2_000 })
      try {
        const [rows] = await connection.query("SELECT 1 FROM DUAL WHERE @@socket = ?", [socket])
        if (!Array.isArray(rows) || rows.length === 0) throw new Error("another server answers on its port")
        await connection.query("CREATE DATABASE IF NOT EXISTS leasehold")
      } finally {
        connection.destroy()
      }
    },
    catch: (error) => (error instanceof Error ? error.message : String(error))
  }).pipe(
    Effect.retry({ schedule: Schedule.spaced(Duration.millis(100)), while: () => child.exitCode === null }),
    Effect.timeoutFail({
      duration: Duration.seconds(60),
      onTimeout: () => "the server did not start within 60 seconds"
    }),
    Effect.mapError((reason) => (child.exitCode === null ? reason : `the server ended with ${child.exitCode}`))
  )

/** Sees to it that a server which something else has started does not outlive this process. */
export const guard = (url: string): Effect.Effect<void, string, Scope.Scope> =>
  Effect.gen(function* () {
    const pid = yield* processId(url)
    yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn("sh", ["-c", 'cat >/dev/null; kill -KILL "$1" 2>/dev/null', "leasehold-watchdog", String(pid)], {
          stdio: ["pipe", "ignore", "ignore"],
          detached: true
        })
      ),
      stop
    )
  })

/** The process of a server on this machine. */
export const processId = (url: string): Effect.Effect<number, string> =>
  Effect.tryPromise({
    try: async () => {
      const connection = await Mysql.createConnection(url)
      const [rows] = await connection.query("SELECT @@pid_file AS file, @@datadir AS dir")
      await connection.end()
      const row: unknown = Array.isArray(rows) ? rows[0] : undefined
      if (typeof row !== "object" || row === null || !("file" in row) || !("dir" in row)) throw new Error("no pid file")
      const file = String(row.file)
      return Number(readFileSync(file.startsWith("/") ? file : join(String(row.dir), file), "utf8"))
    },
    catch: (error) => `its process is not known (${String(error)})`
  })
