/**
 * The two ways in which a batch of leases is written, by one statement and row by row, and what comes out where they meet.
 */
import { expect, layer } from "@effect/vitest"
import { Duration, Effect, Option } from "effect"
import type { JobState } from "../../src/JobRecord.js"
import type { Settlement, SettleVerdict } from "../../src/JobStore.js"
import type { Lease } from "../../src/Lease.js"
import * as Settle from "../../src/mysql/statements/settle.js"
import { Database, outside, store as storeOnMysql } from "../support/Mysql.js"
import { tables } from "../support/Plan.js"
import { scene, settlements } from "../support/Scene.js"
import { lockWait } from "../support/ServerState.js"

const hostile = `\u0000 '"\\; -- ? \u{1F468}\u200D\u{1F469}`

const kinds: ReadonlyArray<Settlement> = [
  settlements.Complete,
  settlements.RetryLater,
  settlements.Bury,
  settlements.Snooze,
  settlements.Release,
  { _tag: "Complete", output: null },
  { _tag: "Complete", output: hostile },
  { _tag: "Bury", code: hostile, message: hostile },
  { _tag: "RetryLater", code: hostile, message: "", delay: Duration.millis(0.5) },
  { _tag: "Snooze", delay: Duration.days(3_650) }
]

const nothing: Settlement = { _tag: "Complete", output: null }
/** Small batches of these are prepared. */
const plain = [1, 2, 3, 4].map((size) => Array.from({ length: size }, () => nothing))
const batches = [...kinds.map((kind) => [kind]), ...kinds.map((kind) => [kind, kind]), kinds, ...plain]

layer(storeOnMysql, { excludeTestServices: true, timeout: "2 minutes" })("a batch of settlements", (it) => {
  for (const budget of [2, 65_535, undefined]) {
    it.scoped(`of jobs with ${budget ?? "no end of"} attempts is written by one statement as it is row by row`, () =>
      Effect.gen(function* () {
        const { enqueueMany, queue, take } = yield* scene
        const { query, url } = yield* Database
        const session = yield* outside(url)
        // Each statement has the same time, so that the rows have to be the same to the microsecond.
        yield* session.query(
          "SET SESSION transaction_isolation = 'READ-COMMITTED', time_zone = '+00:00', timestamp = 1800000000.123456,"
            + " sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'"
        )
        const hold = (count: number) =>
          Effect.gen(function* () {
            yield* enqueueMany(count, { maxAttempts: Option.fromNullable(budget) })
            const leases = (yield* take(count)).jobs.map(({ lease }) => lease)
            yield* query(
              "UPDATE leasehold_jobs SET error_code = 'old', error_message = 'older', enqueued_at = '2026-01-01',"
                + " first_due_at = '2026-01-01', due_at = '2099-01-01', attempts = JSON_SET(attempts, '$[0].s', 'then')"
                + ` WHERE queue = ? AND state = 1 AND id IN (${leases.map(({ jobId }) => jobId).join(", ")})`,
              [queue]
            )
            return leases
          })
        // As text: a date of JavaScript would lose the microseconds.
        const columns = (yield* query("SHOW COLUMNS FROM leasehold_jobs"))
          .map(({ Field }) => String(Field))
          .filter((name) => name !== "id")
          .map((name) => `CAST(${name} AS CHAR) AS ${name}`)
          .join(", ")
        type Ends = ReadonlyArray<readonly [Lease, Settlement]>
        const prepared = (ends: Ends) =>
          Option.match(Settle.completeValues(ends), {
            onNone: () => Effect.dieMessage("These are not to be prepared"),
            onSome: ({ size, values }) =>
              Effect.gen(function* () {
                const names = values.map((_, index) => `@value_${index}`)
                yield* session.query("PREPARE complete FROM ?", [Settle.complete(tables, size)])
                yield* session.query(`SET ${names.map((name) => `${name} = ?`).join(", ")}`, values)
                yield* session.query(`EXECUTE complete USING ${names.join(", ")}`)
              })
          })
        const text = (statement: typeof Settle.settle) => (ends: Ends) => session.query(statement(tables, ends))
        const write = (
          send: (ends: Ends) => Effect.Effect<unknown>,
          leases: ReadonlyArray<Lease>,
          batch: ReadonlyArray<Settlement>
        ) =>
          Effect.gen(function* () {
            yield* send(
              leases.flatMap((lease, index) => (batch[index] === undefined ? [] : [[lease, batch[index]] as const]))
            )
            const [counted] = yield* session.query("SELECT ROW_COUNT() AS written")
            expect(counted).toEqual({ written: leases.length })
            return yield* query(
              `SELECT ${columns} FROM leasehold_jobs WHERE id IN (${leases.map(({ jobId }) => jobId).join(", ")})`
                + " ORDER BY id"
            )
          })
        for (const batch of batches) {
          const [fast, slow] = [yield* hold(batch.length), yield* hold(batch.length)]
          const rows = yield* write(text(Settle.writeSettlements), slow, batch)
          expect(yield* write(text(Settle.settle), fast, batch)).toEqual(rows)
          if (plain.some((one) => one === batch))
            expect(yield* write(prepared, yield* hold(batch.length), batch)).toEqual(rows)
          // What is pending again is not to be taken by the next turn.
          yield* query("DELETE FROM leasehold_jobs WHERE queue = ?", [queue])
        }
      })
    )
  }

  it.scoped("of two completions without output, one of which is not as it was, answers both as they are", () =>
    Effect.gen(function* () {
      const { elapse, enqueueMany, store, take } = yield* scene
      const { query, url } = yield* Database
      const stranger = yield* outside(url)
      const fates: ReadonlyArray<
        readonly [(lease: Lease) => Effect.Effect<unknown, unknown>, SettleVerdict, second?: Partial<Lease>]
      > = [
        [() => Effect.void, { _tag: "Recorded", state: "succeeded" }],
        [({ jobId }) => store.cancel(jobId), { _tag: "Recorded", state: "canceled" }],
        [({ jobId }) => query("DELETE FROM leasehold_jobs WHERE id = ?", [jobId]), { _tag: "Unknown" }],
        [() => Effect.void, { _tag: "Lost", reason: "superseded" }, { worker: "worker-z" }],
        [() => Effect.void, { _tag: "Unknown" }, { token: 7 }],
        [
          ({ jobId }) =>
            stranger.query("START TRANSACTION; SELECT 1 FROM leasehold_jobs WHERE id = ? FOR UPDATE", [jobId]),
          { _tag: "Busy" }
        ]
      ]
      for (const [meet, verdict, changes] of fates) {
        yield* enqueueMany(2)
        const [first, second] = (yield* take(2)).jobs.map(({ lease }) => lease)
        if (first === undefined || second === undefined) throw new Error("Two jobs were enqueued")
        yield* meet(second)
        const [took, verdicts] = yield* Effect.timed(
          store.settle([
            [first, nothing],
            [{ ...second, ...changes }, nothing]
          ])
        )
        expect(verdicts).toEqual([{ _tag: "Recorded", state: "succeeded" }, verdict])
        expect(Duration.toMillis(took)).toBeLessThan(lockWait)
      }
      yield* stranger.query("ROLLBACK")
      // One whose lease was taken over, beside the three that are held still.
      yield* enqueueMany(1)
      const { jobs } = yield* take(1)
      yield* elapse("61 seconds")
      yield* take(4, { worker: "heir" })
      expect(yield* store.settle(jobs.map(({ lease }) => [lease, nothing]))).toEqual([
        { _tag: "Lost", reason: "superseded" }
      ])
    })
  )

  it.scoped("of a hundred, of which each has another fate, answers each of them as it is", () =>
    Effect.gen(function* () {
      const { elapse, enqueue, queue, store, take } = yield* scene
      const { query, url } = yield* Database
      const fates = [
        "held",
        "canceled",
        "locked",
        "superseded",
        "spent",
        "deleted",
        "settled",
        "stranger's",
        "twice"
      ] as const
      const small = "1"
      // Alone in its statement.
      const large = JSON.stringify("x".repeat(60_000))
      // Half of the ids are above 2^53.
      for (let n = 0; n < 100; n++) {
        if (n === 50) yield* query("ALTER TABLE leasehold_jobs AUTO_INCREMENT = 9007199254740995")
        yield* enqueue({ maxAttempts: Option.some(fates[n % fates.length] === "spent" ? 1 : 3) })
      }
      const held = (yield* take(100)).jobs
        .map(({ lease }) => lease)
        .sort((a, b) => (BigInt(a.jobId) < BigInt(b.jobId) ? -1 : 1))
        .map((lease, n) => ({ lease, fate: fates[n % fates.length] ?? "held", kind: kinds[n % kinds.length] }))
      const of = (fate: string) => held.filter((one) => one.fate === fate).map(({ lease }) => lease)
      const ids = (leases: ReadonlyArray<Lease>) => leases.map(({ jobId }) => jobId).join(", ")
      yield* store.renew(
        held.filter(({ fate }) => fate !== "superseded").map(({ lease }) => lease),
        Duration.hours(1)
      )
      yield* elapse("61 seconds")
      yield* take(of("superseded").length, { worker: "heir" })
      for (const { jobId } of of("canceled")) yield* store.cancel(jobId)
      yield* query(`DELETE FROM leasehold_jobs WHERE id IN (${ids(of("deleted"))})`)
      yield* store.settle(of("settled").map((lease) => [lease, { _tag: "Snooze", delay: Duration.days(1) }]))
      const stranger = yield* outside(url)
      yield* stranger.query("START TRANSACTION")
      yield* stranger.query(`SELECT 1 FROM leasehold_jobs WHERE id IN (${ids(of("locked"))}) FOR UPDATE`)

      const given = held.map(({ fate, kind = settlements.Complete, lease }, n): readonly [Lease, Settlement] => [
        fate === "stranger's" ? { ...lease, worker: "worker-z" } : lease,
        fate === "spent"
          ? settlements.RetryLater
          : fate === "settled" || fate === "twice"
            ? { _tag: "Complete", output: small }
            : n % 50 === 0
              ? { _tag: "Complete", output: large }
              : kind
      ])
      for (const lease of of("twice")) given.push([lease, settlements.Bury])
      const [took, verdicts] = yield* Effect.timed(store.settle(given))
      expect(Duration.toMillis(took)).toBeLessThan(3_000)
      const fateOf = new Map(held.map((one) => [one.lease.jobId, one.fate]))
      const leadsTo = {
        Complete: "succeeded",
        RetryLater: "pending",
        Bury: "dead",
        Snooze: "pending",
        Release: "pending",
        Cancel: "canceled"
      } as const
      const recorded = (state: JobState): SettleVerdict => ({ _tag: "Recorded", state })
      const lost: SettleVerdict = { _tag: "Lost", reason: "superseded" }
      const expected = given.map(([{ jobId }, { _tag }], index): SettleVerdict => {
        const second = given.findIndex(([other]) => other.jobId === jobId) < index
        const verdicts: { readonly [Fate in (typeof fates)[number]]: SettleVerdict } = {
          held: recorded(leadsTo[_tag]),
          canceled: recorded("canceled"),
          locked: { _tag: "Busy" },
          superseded: lost,
          spent: recorded(_tag === "RetryLater" ? "dead" : leadsTo[_tag]),
          deleted: { _tag: "Unknown" },
          settled: { _tag: "AlreadySettled" },
          "stranger's": lost,
          twice: second ? { _tag: "AlreadySettled" } : recorded("succeeded")
        }
        return verdicts[fateOf.get(jobId) ?? "held"]
      })
      expect(verdicts).toEqual(expected)
      // The rows say the same, and what was to be canceled has no output.
      const rows = yield* query(
        "SELECT CAST(id AS CHAR) AS id, state, output, error_code FROM leasehold_jobs WHERE queue = ?",
        [queue]
      )
      const row = (id: string) => rows.find((one) => one["id"] === id)
      for (const { jobId } of of("canceled")) expect(row(jobId)).toMatchObject({ state: 4, output: null })
      for (const { jobId } of of("twice"))
        expect(row(jobId)).toMatchObject({ state: 2, output: small, error_code: null })
      for (const { jobId } of [...of("locked"), ...of("superseded"), ...of("stranger's")]) {
        expect(row(jobId)).toMatchObject({ state: 1, output: null })
      }
    })
  )
})
