/**
 * A peer's server that lives as long as this process, whatever ends it.
 */
import { spawn } from "node:child_process"
import { chownSync, mkdtempSync } from "node:fs"
import { connect } from "node:net"
import { tmpdir, userInfo } from "node:os"
import { join } from "node:path"
import { Duration, Effect, Schedule, type Scope } from "effect"
import { BenchError } from "../BenchError.js"

/**
 * Holds the other end of a pipe from this process; when that closes, it ends what it runs and removes the files. By SIGINT, since
 * PostgreSQL leaves shared memory behind where it is killed.
 */
const guard = `
exec 3<&0
"$@" </dev/null >"$BENCH_DIR/log" 2>&1 & child=$!
cat <&3 >/dev/null
kill -INT $child 2>/dev/null
(sleep 10; kill -KILL $child 2>/dev/null) & killer=$!
wait $child
kill $killer 2>/dev/null
rm -rf "$BENCH_DIR"
`

// PostgreSQL refuses to run as root. Root becomes the user who owns nothing.
const nobody = 65_534
const isRoot = userInfo().uid === 0

export const identity = isRoot ? { uid: nobody, gid: nobody } : {}

/** A folder that the server may write to, and that is removed with it. */
export const folder = (name: string): Effect.Effect<string> =>
  Effect.sync(() => {
    const made = mkdtempSync(join(tmpdir(), `leasehold-bench-${name}-`))
    if (isRoot) chownSync(made, nobody, nobody)
    return made
  })

/** Starts a server and waits until it answers on its port. */
export const start = (
  dir: string,
  port: number,
  command: ReadonlyArray<string>
): Effect.Effect<void, BenchError, Scope.Scope> =>
  Effect.gen(function* () {
    yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn("sh", ["-c", guard, "leasehold-bench-guard", ...command], {
          stdio: ["pipe", "ignore", "ignore"],
          // Ctrl-C in the terminal reaches the program, which then closes the pipe.
          detached: true,
          cwd: dir,
          env: { ...process.env, BENCH_DIR: dir },
          ...identity
        })
      ),
      (shell) =>
        Effect.async<void>((resume) => {
          shell.on("exit", () => resume(Effect.void))
          shell.stdin.end()
        })
    )
    yield* answers(port).pipe(
      Effect.retry(Schedule.spaced("100 millis")),
      Effect.timeoutFail({
        duration: Duration.seconds(30),
        onTimeout: () => new BenchError({ message: `${command[0]} does not answer within 30 seconds` })
      })
    )
  })

const answers = (port: number): Effect.Effect<void, BenchError> =>
  Effect.async((resume) => {
    const socket = connect(port, "127.0.0.1")
    socket.on("connect", () => {
      socket.destroy()
      resume(Effect.void)
    })
    socket.on("error", ({ message }) => resume(Effect.fail(new BenchError({ message }))))
  })
