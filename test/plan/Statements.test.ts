/**
 * Scenario A4: what names a few jobs reads and locks those, and no neighbour, whatever the table holds and the statistics say.
 *
 * Every statement of `src/mysql/statements` that touches jobs is here; the first test fails where one is added and left out.
 * Each is also run with its index forbidden, or its key hidden in an expression: the measure has to see that (ruling 22).
 */
import { expect, layer } from "@effect/vitest"
import { Duration, Effect, Option } from "effect"
import type { JobId } from "../../src/JobRecord.js"
import type { NewJob } from "../../src/JobStore.js"
import type { Lease } from "../../src/Lease.js"
import * as Claim from "../../src/mysql/statements/claim.js"
import * as Diagnose from "../../src/mysql/statements/diagnose.js"
import * as Enqueue from "../../src/mysql/statements/enqueue.js"
import * as Maintain from "../../src/mysql/statements/maintain.js"
import * as Migrate from "../../src/mysql/statements/migrate.js"
import * as Operate from "../../src/mysql/statements/operate.js"
import * as Read from "../../src/mysql/statements/read.js"
import * as Settle from "../../src/mysql/statements/settle.js"
import { Database, type Outside, outside, store } from "../support/Mysql.js"
import {
  freezeStatistics,
  isolations,
  type Measured,
  measure,
  numbers,
  patience,
  rowsAround,
  seedMany,
  tables
} from "../support/Plan.js"

/** So many ended jobs lie around; a million of them with LEASEHOLD_PLAN_ROWS=1000000. */
const history = rowsAround(100_000)
const batch = 10

interface Scene {
  /** Ten jobs that somebody holds. */
  readonly held: ReadonlyArray<JobId>
  /** Ten jobs that ended long ago. */
  readonly ended: ReadonlyArray<JobId>
}

interface Subject {
  readonly statement: string
  readonly values?: ReadonlyArray<unknown>
  /** How many rows it names. */
  readonly rows: number
  /** Whether it locks them. */
  readonly locks: boolean
  /** The same with a bad plan; left out where the table is so small that there is none. */
  readonly planted?: string
}

/** A look at the refusals of one job, as the library writes them: 20 at the most. */
const refusalsOfOne = 20

const hideJobId = (statement: string) => statement.replace(/\bjob_id (=|IN)/, "job_id + 0 $1")
const hideId = (statement: string) => statement.replace(/\bid = CAST/, "id + 0 = CAST").replace("id IN", "id + 0 IN")
const forbidPrimary = (statement: string) =>
  statement.includes("FORCE INDEX (PRIMARY)")
    ? statement.replace("FORCE INDEX (PRIMARY)", "IGNORE INDEX (PRIMARY)")
    : hideId(statement)

const leases = (ids: ReadonlyArray<JobId>): ReadonlyArray<Lease> =>
  ids.map((jobId) => ({ jobId, token: 1, attempt: 1, worker: "worker-1" }))

const endsOf = (ids: ReadonlyArray<JobId>, output: (index: number) => string | null) =>
  leases(ids).map((lease, index) => [lease, { _tag: "Complete", output: output(index) }] as const)

const retention = { succeeded: Duration.days(7), dead: Duration.days(30) }
const claim = {
  queue: "plan.held",
  types: [{ type: "count", version: 1 }],
  worker: "worker-1",
  lease: Duration.seconds(30),
  limit: batch
}

/** Statements by primary key: the bad plan is planted by forbidding it, or by hiding the id where no index is named. */
const byPrimary = (statement: string, locks: boolean, rows = batch): Subject => ({
  statement,
  rows,
  locks,
  planted: forbidPrimary(statement)
})

/** Statements on one job, whose id is bound. */
const onOne = (statement: string, id: JobId | undefined, locks: boolean): Subject => ({
  statement,
  values: [id],
  rows: 1,
  locks,
  planted: hideId(statement)
})

/** Statements by the job of a refusal. */
const byRefusals = (statement: string): Subject => ({
  statement,
  rows: refusalsOfOne,
  locks: false,
  planted: hideJobId(statement)
})

/** Reads along the claim's index. */
const inClaimOrder = (statement: string, rows: number): Subject => ({
  statement,
  rows,
  locks: false,
  planted: statement.replaceAll("FORCE INDEX (jobs_claim)", "FORCE INDEX (PRIMARY)")
})

/** Writes on the record of one migration step. */
const byStep = (statement: string): Subject => ({ statement, rows: 1, locks: true })

/** The key of a job that is there. */
const taken = { scope: "", key: "key-1", fingerprint: "00".repeat(32) }

const job = (n: number, keyed: boolean): NewJob => ({
  queue: "plan.insert",
  type: "count",
  priority: 5,
  payload: "{}",
  payloadVersion: 1,
  maxAttempts: Option.some(3),
  due: Option.none(),
  idempotency: keyed ? Option.some({ scope: "", key: `insert-${n}`, fingerprint: "00".repeat(32) }) : Option.none(),
  traceContext: Option.none()
})

const nobody: Lease = { jobId: "0" as JobId, token: 0, attempt: 1, worker: "nobody" }

const subjects = ({ ended, held }: Scene): { readonly [name: string]: Subject } => {
  const before = String(BigInt(ended[0] ?? "1") - 1n)
  const find = Enqueue.findKeys(tables, batch, "")
  const keys = Array.from({ length: batch }, (_, n) => ["", Buffer.from(`key-${n + 1}`).toString("hex")]).flat()
  const hideKey = (text: string) => text.replace("FORCE INDEX (jobs_idempotency)", "IGNORE INDEX (jobs_idempotency)")
  return {
    "claim.take": byPrimary(Claim.take(tables, claim, held, true), true),
    "claim.takeLone": {
      ...byPrimary(Claim.takeLone(tables), true, 1),
      planted: Claim.takeLone(tables).replace("jobs.id =", "jobs.id + 0 ="),
      values: Claim.loneValues(claim, { id: held[0] ?? nobody.jobId, job: job(0, false) })
    },
    "settle.lockHeld NOWAIT": byPrimary(Settle.lockHeld(tables, leases(held), "NOWAIT"), true),
    "settle.lockHeld SKIP LOCKED": byPrimary(Settle.lockHeld(tables, leases(held), "SKIP LOCKED"), true),
    "settle.lockHeld WAIT": byPrimary(Settle.lockHeld(tables, leases(held), "WAIT"), true),
    "settle.readHeld": byPrimary(Settle.readHeld(tables, leases(held)), false),
    "settle.settle of alike": byPrimary(
      Settle.settle(
        tables,
        endsOf(held, () => null)
      ),
      true
    ),
    "settle.complete": {
      ...byPrimary(Settle.complete(tables, 4), true, 4),
      values: Option.match(Settle.completeValues(endsOf(held.slice(0, 4), () => null)), {
        onNone: () => [],
        onSome: ({ values }) => values
      })
    },
    "settle.settle": byPrimary(Settle.settle(tables, endsOf(held, String)), true),
    "settle.renew": byPrimary(Settle.renew(tables, leases(held), Duration.seconds(30)), true),
    "settle.writeSettlements": byPrimary(
      Settle.writeSettlements(
        tables,
        endsOf(held, () => null)
      ),
      true
    ),
    "settle.extend": byPrimary(Settle.extend(tables, leases(held), Duration.seconds(30)), true),
    "maintain.walkVanished": byPrimary(Maintain.walkVanished(tables, before, batch), false),
    "maintain.lockVanished": byPrimary(Maintain.lockVanished(tables, held), true),
    "maintain.endVanished": byPrimary(Maintain.endVanished(tables, held), true),
    "maintain.walkOutlived": byPrimary(Maintain.walkOutlived(tables, retention, before, batch), false),
    "maintain.lockOutlived": byPrimary(Maintain.lockOutlived(tables, retention, ended), true),
    "maintain.deleteJobs": byPrimary(Maintain.deleteJobs(tables, ended), true),
    "maintain.deleteRefusals": {
      ...byRefusals(Maintain.deleteRefusals(tables, held)),
      planted: Maintain.deleteRefusals(tables, held).replace("FORCE INDEX", "IGNORE INDEX"),
      // The entry of each row in the index, and the gap behind each job's last one at REPEATABLE READ.
      rows: (refusalsOfOne + 1) * batch,
      locks: true
    },
    "maintain.refusals": byRefusals(Maintain.refusals(tables, held[0] ?? ("0" as JobId))),
    // At REPEATABLE READ, which the library's own sessions never have, an INSERT locks what its SELECT reads.
    "maintain.recordRefusal": {
      ...byRefusals(Maintain.recordRefusal(tables, { lease: leases(held.slice(1, 2))[0] ?? nobody, verb: "complete" })),
      locks: true
    },
    "claim.paused": {
      statement: Claim.paused(tables, "plan.3"),
      rows: 1,
      locks: false,
      planted: Claim.paused(tables, "plan.3").replace("name =", "CONCAT(name) =")
    },
    // It names a row that there never is.
    "claim.tryWrite": {
      ...byPrimary(Claim.tryWrite(tables), true, 1),
      planted: Claim.tryWrite(tables).replace("id =", "id + 0 =")
    },
    "operate.setPaused": { statement: Operate.setPaused(tables, "plan.3", true), rows: 1, locks: true },
    "diagnose.nextQueue from the first": inClaimOrder(Diagnose.nextQueue(tables, undefined), 1),
    "diagnose.nextQueue": inClaimOrder(Diagnose.nextQueue(tables, "plan.3"), 1),
    "diagnose.dueTypes": inClaimOrder(Diagnose.dueTypes(tables, "plan.held"), 40),
    "migrate.recordDone": byStep(Migrate.recordDone(tables, 1)),
    "migrate.withdraw": byStep(Migrate.withdraw(tables, 1)),
    "operate.lockOne": onOne(Operate.lockOne(tables), held[0], true),
    "operate.cancelPending": onOne(Operate.cancelPending(tables), held[0], true),
    "operate.requestCancel": onOne(Operate.requestCancel(tables), held[0], true),
    "operate.retryOne": onOne(Operate.retryOne(tables), ended[0], true),
    "operate.retryMany": byPrimary(Operate.retryMany(tables, ended), true),
    "read.get": onOne(Read.get(tables), held[0], false),
    "read.find": {
      statement: Read.find(tables),
      values: keys.slice(0, 2),
      rows: 1,
      locks: false,
      planted: hideKey(Read.find(tables))
    },
    "read.list": byPrimary(Read.list(tables, {}, before, batch), false),
    "read.walkRetryable": byPrimary(Read.walkRetryable(tables, {}, before, batch), false),
    "enqueue.findKeys": { statement: find, values: keys, rows: batch, locks: false, planted: hideKey(find) },
    "enqueue.findKeys FOR SHARE": {
      statement: Enqueue.findKeys(tables, batch, "FOR SHARE"),
      values: keys,
      rows: batch,
      locks: true,
      planted: hideKey(Enqueue.findKeys(tables, batch, "FOR SHARE"))
    }
  }
}

/** What is measured elsewhere, or reads as much as it says. */
const elsewhere = new Set([
  // The claim's own test.
  ...["claim.look", "claim.lock"],
  // Has a row for each queue that was ever paused, and reads them all.
  "read.paused",
  // Reads the whole table, and says so.
  "read.counts",
  // What the inserts do is measured in a test of its own.
  ...["enqueue.insert", "enqueue.insertTogether", "enqueue.setTrace", "enqueue.insertAlike"],
  // They ask the server about itself, or explain a statement that stands here.
  ...["diagnose.variables", "diagnose.status", "diagnose.explain", "diagnose.locks"],
  // Statements of which each touches no row: the doctor's own test runs them all.
  "diagnose.tries",
  // Definitions of tables; the test of the migrations runs them.
  ...["migrate.definition", "migrate.asTemporary", "migrate.dropTemporary", "migrate.dropAll"]
])

/** These make values and names, no statements. */
const hasNoPlan = (name: string) => /(Values|Name|Of)$/.test(name)

/**
 * As many locks as it names rows, and of reads no more than a few for each of them: a statement that joins a list reads the
 * list, too. Rows read are what counts: a sort of the ten named rows is no harm, and a sort of more has to read them.
 */
const isCheap = ({ locks, plans, read }: Measured, subject: Subject): boolean =>
  plans.every((plan) => !plan.startsWith("ALL") && !plan.startsWith("index "))
  && read <= 6 * subject.rows + 5
  && Object.values(locks).every((count) => count <= (subject.locks ? subject.rows + 1 : 0))

/** Jobs that ended in every queue, then forty that are held, and twenty with keys. */
const seed = (session: Outside) =>
  Effect.gen(function* () {
    const { query } = session
    const columns =
      "queue, type, priority, state, token, attempt, attempts_left, max_attempts, due_at, enqueued_at,"
      + " first_due_at, finished_at, idempotency_key, attempts"
    const now = "UTC_TIMESTAMP(6)"
    const entry = `JSON_ARRAY(JSON_OBJECT('n', 1, 't', 1, 'w', 'worker-1', 's', CAST(${now} AS CHAR)))`
    const past = `${now} - INTERVAL 60 DAY`
    yield* seedMany(
      session,
      history,
      columns,
      `CONCAT('plan.', n % 5), 'count', n % 6, 2 + n % 3, 1, 1, 2, 3, NULL, ${past}, ${past}, ${past}, NULL, ${entry}`
    )
    yield* query(
      `INSERT INTO leasehold_jobs (${columns}) ${numbers(40)} 'plan.held', 'count', 5, 1, 1, 1, 0, 3,`
        + ` ${now} - INTERVAL 1 SECOND, ${now}, ${now}, NULL, NULL, ${entry} FROM numbers`
    )
    yield* query(
      `INSERT INTO leasehold_jobs (${columns}) ${numbers(20)} 'plan.keyed', 'count', 5, 0, 0, 0, 3, 3,`
        + ` ${now}, ${now}, ${now}, NULL, CONCAT('key-', n), JSON_ARRAY() FROM numbers`
    )
    // One of the held jobs has all the refusals that are kept; as many lie around as the walks of others left there.
    yield* query(
      `INSERT INTO leasehold_refusals (job_id, token, verb, worker, refused_at) ${numbers(20_000)} n DIV 20 + 1, 1,`
        + ` 'complete', 'worker-1', ${now} FROM numbers`
    )
    yield* query(
      "INSERT INTO leasehold_refusals (job_id, token, verb, worker, refused_at)"
        + ` SELECT id, 1, 'complete', 'worker-1', ${now} FROM leasehold_jobs JOIN (${numbers(refusalsOfOne)} n FROM numbers)`
        + " AS twenty WHERE state = 1"
    )
    yield* query(
      `INSERT INTO leasehold_queues (name, paused, changed_at) ${numbers(500)} CONCAT('plan.', n), n % 2, ${now} FROM numbers`
    )
    yield* query("ANALYZE TABLE leasehold_jobs, leasehold_refusals, leasehold_queues")
    const ids = (condition: string) =>
      Effect.map(
        query(`SELECT CAST(id AS CHAR) AS id FROM leasehold_jobs WHERE ${condition} ORDER BY id LIMIT ${batch}`),
        (rows) => rows.map((row) => String(row["id"]) as JobId)
      )
    return { held: yield* ids("state = 1"), ended: yield* ids("state IN (3, 4)") }
  })

layer(store, { excludeTestServices: true, timeout: "3 minutes" })("the plans of all other statements", (it) => {
  it.effect("no statement is left out", () =>
    Effect.sync(() => {
      const rooms = {
        claim: Claim,
        diagnose: Diagnose,
        enqueue: Enqueue,
        maintain: Maintain,
        migrate: Migrate,
        operate: Operate,
        read: Read,
        settle: Settle
      }
      const statements = Object.entries(rooms).flatMap(([room, exports]) =>
        Object.entries(exports).flatMap(([name, value]) => (typeof value === "function" ? [`${room}.${name}`] : []))
      )
      const measured = Object.keys(subjects({ ended: [], held: [] })).map((name) => name.split(" ")[0])
      expect(statements.filter((name) => !measured.includes(name) && !elsewhere.has(name) && !hasNoPlan(name))).toEqual(
        []
      )
    })
  )

  it.scoped(
    "each reads and locks the jobs that it names, with true and with frozen statistics, at both isolation levels",
    () =>
      Effect.gen(function* () {
        const session = yield* outside((yield* Database).url)
        const scene = yield* seed(session)
        const dear: Array<string> = []
        for (const rows of [undefined, 1, 10 * history]) {
          if (rows !== undefined) yield* freezeStatistics(session, rows)
          for (const [name, subject] of Object.entries(subjects(scene))) {
            for (const isolation of isolations) {
              const measured = yield* measure(session, { ...subject, isolation })
              if (!isCheap(measured, subject)) {
                dear.push(`${name}, ${rows ?? "true"} statistics, ${isolation}: ${JSON.stringify(measured)}`)
              }
            }
          }
        }
        expect(dear).toEqual([])
        for (const [name, subject] of Object.entries(subjects(scene))) {
          if (subject.planted === undefined) continue
          expect(subject.planted, name).not.toBe(subject.statement)
          const measured = yield* measure(session, {
            ...subject,
            statement: subject.planted,
            isolation: "READ-COMMITTED"
          })
          expect(isCheap(measured, subject), `planted ${name}: ${JSON.stringify(measured)}`).toBe(false)
        }
      }),
    patience
  )

  it.scoped("pages follow each other by number, not by text", () =>
    Effect.gen(function* () {
      const { query } = yield* outside((yield* Database).url)
      const expected = Array.from({ length: batch }, (_, index) => String(96 + index))
      for (const statement of [
        Read.list(tables, {}, "95", batch),
        Read.walkRetryable(tables, {}, "95", batch),
        Maintain.walkVanished(tables, "95", batch),
        Maintain.walkOutlived(tables, retention, "95", batch)
      ]) {
        expect((yield* query(statement)).map(({ id }) => id)).toEqual(expected)
      }
    })
  )

  it.scoped("an enqueue reads nothing and locks nothing of others, with keys and without, alone and in bulk", () =>
    Effect.gen(function* () {
      const session = yield* outside((yield* Database).url)
      for (const isolation of isolations) {
        for (const count of [...Enqueue.rowSizes]) {
          for (const keyed of [false, true]) {
            const jobs = Array.from({ length: count }, (_, n) => job(n, keyed))
            const measured = yield* measure(session, {
              statement: Enqueue.insert(tables, count, "now"),
              values: jobs.flatMap((each) => Enqueue.insertValues(each, "now")),
              isolation
            })
            expect({ isolation, count, keyed, read: measured.read, locks: measured.locks }).toEqual({
              isolation,
              count,
              keyed,
              read: 0,
              locks: {}
            })
          }
        }
        const together = yield* measure(session, {
          statement: Enqueue.insertTogether(tables, [job(1, false), job(2, false)]),
          isolation
        })
        expect(together).toMatchObject({ read: 0, locks: {} })
        const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        yield* session.query(Enqueue.setTrace(trace))
        for (const traceContext of [Option.none(), Option.some(trace)]) {
          const common = Option.getOrThrow(Enqueue.commonOf([{ ...job(0, false), traceContext }]))
          for (const count of Enqueue.alikeSizes) {
            const values = Array.from({ length: count }, () => "{}")
            const statement = Enqueue.insertAlike(tables, count, common)
            expect(yield* measure(session, { statement, values, isolation })).toMatchObject({ read: 0, locks: {} })
          }
        }
        // What the measure sees of the shapes that are never to be used: a lock on an entry of somebody else.
        const planted = yield* measure(session, {
          statement: Enqueue.insert(tables, 1, "now").replace("INSERT", "INSERT IGNORE"),
          values: Enqueue.insertValues({ ...job(0, true), idempotency: Option.some(taken) }, "now"),
          isolation
        })
        expect(planted.locks).not.toEqual({})
      }
    })
  )
})
