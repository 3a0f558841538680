/**
 * Debian's own MySQL server, fetched and unpacked into a cache folder by apt's tools, without root and without a trace in the
 * system: for machines that reach Debian's packages and nothing else.
 */

import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { homedir } from "node:os"
import { join } from "node:path"
import { Effect } from "effect"
import { run } from "./Command.js"

// Debian's stable releases have no MySQL; unstable has the current LTS.
const suite = "sid"

const cacheFolder = (): string =>
  process.env["LEASEHOLD_CACHE"] ?? join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "leasehold")

const architectures: { readonly [arch: string]: { readonly triplet: string; readonly loader: string } } = {
  x64: { triplet: "x86_64-linux-gnu", loader: "ld-linux-x86-64.so.2" },
  arm64: { triplet: "aarch64-linux-gnu", loader: "ld-linux-aarch64.so.1" }
}

const say = (text: string) => Effect.sync(() => process.stderr.write(`${text}\n`))

/** The path of a `mysqld` that runs with the libraries beside it; downloads about 60 MB the first time. */
export const install: Effect.Effect<string, string> = Effect.gen(function* () {
  const architecture = architectures[process.arch]
  if (process.platform !== "linux" || architecture === undefined) {
    return yield* Effect.fail(`it needs Linux on x64 or arm64, and this is ${process.platform} on ${process.arch}`)
  }
  const root = join(cacheFolder(), `mysql-debian-${suite}-${process.arch}`)
  const binary = join(root, "mysqld")
  // The folder gets its name when it is complete, so a half-finished one is never taken for it.
  if (existsSync(binary)) return binary
  const work = yield* Effect.sync(() => {
    const folder = `${root}.${process.pid}.part`
    rmSync(folder, { recursive: true, force: true })
    for (const part of ["lists/partial", "cache/archives/partial", "root"])
      mkdirSync(join(folder, part), { recursive: true })
    return folder
  })
  return yield* unpack(work, architecture).pipe(
    Effect.zipRight(Effect.try({ try: () => publish(work, root), catch: (error) => String(error) })),
    Effect.as(binary),
    Effect.ensuring(Effect.sync(() => rmSync(work, { recursive: true, force: true })))
  )
})

const unpack = (work: string, architecture: { readonly triplet: string; readonly loader: string }) =>
  Effect.gen(function* () {
    const mirror = yield* findMirror
    yield* Effect.sync(() => {
      writeFileSync(join(work, "sources.list"), `deb ${mirror} ${suite} main\n`)
      writeFileSync(join(work, "status"), "")
    })
    const apt = [
      `Dir::Etc::sourcelist=${join(work, "sources.list")}`,
      "Dir::Etc::sourceparts=-",
      `Dir::State=${work}`,
      `Dir::State::lists=${join(work, "lists")}`,
      `Dir::State::status=${join(work, "status")}`,
      `Dir::Cache=${join(work, "cache")}`,
      "APT::Sandbox::User=root",
      "Acquire::Retries=3"
    ].flatMap((option) => ["-o", option])
    yield* say("Fetching Debian's MySQL server (about 60 MB, kept for the next time): the list of packages …")
    yield* run("apt-get", [...apt, "update"]).pipe(
      Effect.mapError((reason) => `the package list cannot be had (${reason})`)
    )
    yield* say("Fetching the packages …")
    yield* run("apt-get", [
      ...apt,
      "-y",
      "--no-install-recommends",
      "--download-only",
      "install",
      "mysql-server-core"
    ]).pipe(Effect.mapError((reason) => `the packages cannot be had (${reason})`))
    const archives = join(work, "cache", "archives")
    const packages = readdirSync(archives).filter((file) => file.endsWith(".deb"))
    yield* say(`Unpacking ${packages.length} packages …`)
    yield* Effect.forEach(packages, (file) => run("dpkg-deb", ["-x", join(archives, file), join(work, "root")]), {
      discard: true
    })
    yield* Effect.sync(() => writeWrapper(work, architecture))
    yield* run(join(work, "mysqld"), ["--no-defaults", "--version"]).pipe(
      Effect.mapError((reason) => `what was unpacked does not run (${reason})`)
    )
  })

/** Debian's mirror as apt itself is set up to use it. */
const findMirror: Effect.Effect<string, string> = Effect.flatMap(
  Effect.mapError(run("apt-get", ["indextargets", "--format", "$(REPO_URI)"]), () => "this system has no apt"),
  (printed) => {
    const mirror = printed
      .split("\n")
      .map((line) => line.trim())
      .find((uri) => /\/debian\/?$/.test(uri))
    return mirror === undefined ? Effect.fail("apt is not set up with a Debian mirror") : Effect.succeed(mirror)
  }
)

/** The server finds its libraries, messages and plugins beside itself, wherever the folder lies. */
const writeWrapper = (
  work: string,
  { loader, triplet }: { readonly triplet: string; readonly loader: string }
): void => {
  const wrapper = join(work, "mysqld")
  writeFileSync(
    wrapper,
    [
      "#!/bin/sh",
      'root=$(CDPATH= cd "$(dirname "$0")" && pwd)/root',
      `lib=$root/usr/lib/${triplet}`,
      `exec "$lib/${loader}" --library-path "$lib" "$root/usr/sbin/mysqld" "$@" --basedir="$root/usr" \\`,
      '  --lc-messages-dir="$root/usr/share/mysql" --character-sets-dir="$root/usr/share/mysql/charsets" \\',
      '  --plugin-dir="$root/usr/lib/mysql/plugin" --secure-file-priv=NULL',
      ""
    ].join("\n")
  )
  chmodSync(wrapper, 0o755)
}

/** Gives the finished folder its name. Where another process was faster, its folder is as good. */
const publish = (work: string, root: string): void => {
  rmSync(join(work, "cache"), { recursive: true, force: true })
  rmSync(join(work, "lists"), { recursive: true, force: true })
  try {
    renameSync(work, root)
  } catch (error) {
    if (!existsSync(join(root, "mysqld"))) throw error
  }
}
