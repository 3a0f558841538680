/**
 * What the database user may do, found out by trying: each statement needs one right and changes nothing.
 */
import { Effect } from "effect"
import type { MysqlFault } from "../MysqlFault.js"
import type { OwnSession } from "../Session.js"
import * as Statements from "../statements/diagnose.js"
import type { Tables } from "../Tables.js"
import { type Finding, ok, problem, warning } from "./Finding.js"

type Right = keyof ReturnType<typeof Statements.tries>

/** What a user is to do, each with the rights that it needs beside those before it. The README lists the same. */
export const roles = ["produce", "operate", "work", "migrate", "repair"] as const
export type Role = (typeof roles)[number]

const needs: { readonly [R in Role]: ReadonlyArray<Right> } = {
  produce: ["SELECT on jobs", "INSERT on jobs", "SELECT on migrations", "UPDATE on migrations"],
  operate: [
    "SELECT on jobs",
    "UPDATE on jobs",
    "SELECT on queues",
    "INSERT on queues",
    "UPDATE on queues",
    "SELECT on refusals",
    "SELECT on migrations"
  ],
  work: [
    "SELECT on jobs",
    "UPDATE on jobs",
    "DELETE on jobs",
    "SELECT on queues",
    "SELECT on refusals",
    "INSERT on refusals",
    "DELETE on refusals",
    "SELECT on migrations",
    "UPDATE on migrations"
  ],
  // What the shipped steps need, each of which creates a table.
  migrate: [
    "CREATE on migrations",
    "CREATE on jobs",
    "CREATE on queues",
    "CREATE on refusals",
    "SELECT on migrations",
    "INSERT on migrations",
    "UPDATE on migrations"
  ],
  repair: [
    "CREATE TEMPORARY TABLES on the database",
    "SELECT on migrations",
    "UPDATE on migrations",
    "DELETE on migrations"
  ]
}

/** What is looked at without a role. Most users should not be allowed to change tables, so nobody hears of that unasked. */
const everyday: ReadonlyArray<Role> = ["produce", "operate", "work"]

/** Roles that are had before there are tables. */
const before: ReadonlyArray<Role> = ["migrate", "repair"]

/** As {@link examine}, where there are no tables of this release: whether the user may change that. */
export const examineBefore = (session: OwnSession, tables: Tables, role: Role | undefined) =>
  role === undefined || before.includes(role)
    ? examineEach(session, tables, [role ?? "migrate"], role !== undefined)
    : Effect.succeed<ReadonlyArray<Finding>>([])

/** A role that was asked for and lacks a right is a problem; without one, what the user may not do is only said. */
export const examine = (
  session: OwnSession,
  tables: Tables,
  role: Role | undefined
): Effect.Effect<ReadonlyArray<Finding>, MysqlFault> =>
  examineEach(session, tables, role === undefined ? everyday : [role], role !== undefined)

const examineEach = (
  session: OwnSession,
  tables: Tables,
  wanted: ReadonlyArray<Role>,
  asked: boolean
): Effect.Effect<ReadonlyArray<Finding>, MysqlFault> =>
  Effect.gen(function* () {
    const tries = Statements.tries(tables)
    const missing = new Set<Right>()
    for (const right of new Set(wanted.flatMap((role) => needs[role]))) {
      if (!(yield* isGranted(session, tries[right]))) missing.add(right)
    }
    return wanted.map((role) => judge(role, missing, asked))
  })

const isGranted = (session: OwnSession, statement: string): Effect.Effect<boolean, MysqlFault> =>
  session.script([statement]).pipe(
    Effect.as(true),
    Effect.catchAll((fault) => {
      if (fault.kind === "denied") return Effect.succeed(false)
      // Rights are looked at before all of these: a read-only server, a table that is not there, one that is there already, and
      // a definition with a column twice.
      const passed = fault.kind === "read_only" || fault.kind === "missing" || / (1050|1060)$/.test(fault.code)
      return passed ? Effect.succeed(true) : Effect.fail(fault)
    })
  )

const judge = (role: Role, missing: ReadonlySet<Right>, asked: boolean): Finding => {
  const lacks = needs[role].filter((right) => missing.has(right))
  if (lacks.length === 0) return ok("rights", `the user may ${role}`)
  const says = `the user may not ${role}: it lacks ${lacks.join(", ")}`
  return asked
    ? problem("rights", says, "Grant what is missing, on the tables with your prefix.")
    : warning("rights", says, `Grant it if this user is to ${role}; --role asks about one role only.`)
}
