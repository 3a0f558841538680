/**
 * A measured process of a peer: `main.mjs <peer> <setup as JSON>`. It speaks as this library's own process does
 * (bench/process): words on its standard input, a JSON object a line on its standard output.
 *
 * A peer is a room of this folder that exports `open(setup, handle)`. `setup.settings` is `best`, or `default`: as its own README
 * starts it, only with as many handlers as asked for. What `open` answers:
 * - `enqueue(n)` adds job `n`, durable once it is resolved
 * - `bulk(from, count)` adds many by whatever the peer has for it; left out where it has nothing
 * - `start()` begins to run jobs, with at most `setup.concurrency` handlers at once; each calls `handle(n)`
 * - `stop()` is resolved once all that handlers have answered is written
 * - `count()` is `[left, completed]`: jobs that are not completed, and jobs that were at their first attempt
 */
import { createInterface } from "node:readline"

const [name, text] = process.argv.slice(2)
const setup = JSON.parse(text)

const chunk = 10_000
const fillers = 16

const now = () => Number(process.hrtime.bigint()) / 1e6
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`)

const makeTally = (wanted) => {
  const seen = new Uint8Array(wanted)
  const tally = { handled: 0, repeated: 0 }
  const full = new Promise((resolve) => {
    tally.count = (n) => {
      if (seen[n] === 1) tally.repeated++
      seen[n] = 1
      if (++tally.handled === wanted) resolve()
    }
  })
  return { tally, full }
}

const { full, tally } = makeTally(setup.jobs)
const { open } = await import(`./${name}.mjs`)
const peer = await open(setup, tally.count)

const singly = async (concurrency) => {
  let next = 0
  const add = async () => {
    while (next < setup.jobs) await peer.enqueue(next++)
  }
  await Promise.all(Array.from({ length: concurrency }, add))
}

const inBulk = async () => {
  for (let from = 0; from < setup.jobs; from += chunk) await peer.bulk(from, Math.min(chunk, setup.jobs - from))
}

const acts = {
  fill: () => (peer.bulk === undefined ? singly(fillers) : inBulk()),
  bulk: inBulk,
  enqueue: () => singly(setup.concurrency),
  drain: async () => {
    await peer.start()
    await full
    await peer.stop()
  },
  count: () => peer.count()
}

let cpuAtGo = process.cpuUsage()
const usage = () => {
  const { system, user } = process.cpuUsage(cpuAtGo)
  const heap = process.memoryUsage().heapUsed / 2 ** 20
  return { cpu: user + system, heap, handled: tally.handled, repeated: tally.repeated }
}

const input = createInterface({ input: process.stdin })
// A parent that was killed closes the pipe: nobody would stop this process otherwise.
input.on("close", () => process.exit(1))
input.on("line", async (word) => {
  if (word !== "go") return
  cpuAtGo = process.cpuUsage()
  const began = now()
  const samples = (await acts[setup.act]()) ?? []
  const elapsed = now() - began
  process.stdout.write(`${JSON.stringify({ _tag: "Done", ...usage(), elapsed, samples })}\n`, () => process.exit(0))
})
say({ _tag: "Ready" })
