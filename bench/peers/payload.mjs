/** The payload of job `n`, which takes `bytes` once it is encoded: the same as this library's own (bench/Work.ts). */
export const payload = (n, bytes) => ({
  n,
  filler: "x".repeat(Math.max(0, bytes - JSON.stringify({ n, filler: "" }).length))
})

export const payloads = (from, count, bytes) =>
  Array.from({ length: count }, (_, index) => payload(from + index, bytes))
