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

/** Jobs that count, and before them those that warm the process. */
const { jobs, warmup } = setup

let start
/** What is measured begins now. */
const begin = () => {
  start = { at: now(), cpu: process.cpuUsage() }
}

const makeTally = (wanted) => {
  const seen = new Uint8Array(wanted)
  const tally = { handled: 0, repeated: 0 }
  const full = new Promise((resolve) => {
    tally.count = (n) => {
      if (seen[n] === 1) tally.repeated++
      seen[n] = 1
      tally.handled++
      if (setup.act === "drain" && tally.handled === warmup) begin()
      if (tally.handled === wanted) resolve()
    }
  })
  return { tally, full }
}

const { full, tally } = makeTally(warmup + jobs)
const { open } = await import(`./${name}.mjs`)
const peer = await open(setup, tally.count)

const singly = (concurrency) => async (first, end) => {
  let next = first
  const add = async () => {
    while (next < end) await peer.enqueue(next++)
  }
  await Promise.all(Array.from({ length: concurrency }, add))
}

const inBulk = async (first, end) => {
  for (let from = first; from < end; from += chunk) await peer.bulk(from, Math.min(chunk, end - from))
}

const warmed = async (add) => {
  if (warmup > 0) {
    await add(0, warmup)
    begin()
  }
  await add(warmup, warmup + jobs)
}

const acts = {
  fill: () => (peer.bulk === undefined ? singly(fillers) : inBulk)(0, jobs),
  bulk: () => warmed(inBulk),
  enqueue: () => warmed(singly(setup.concurrency)),
  drain: async () => {
    await peer.start()
    await full
    await peer.stop()
  },
  count: () => peer.count()
}

const usage = () => {
  const { system, user } = process.cpuUsage(start.cpu)
  const heap = process.memoryUsage().heapUsed / 2 ** 20
  return { cpu: user + system, heap, handled: tally.handled, repeated: tally.repeated }
}

const input = createInterface({ input: process.stdin })
// A parent that was killed closes the pipe: nobody would stop this process otherwise.
input.on("close", () => process.exit(1))
input.on("line", async (word) => {
  if (word !== "go") return
  begin()
  const samples = (await acts[setup.act]()) ?? []
  const elapsed = now() - start.at
  process.stdout.write(`${JSON.stringify({ _tag: "Done", ...usage(), elapsed, samples })}\n`, () => process.exit(0))
})
say({ _tag: "Ready" })
