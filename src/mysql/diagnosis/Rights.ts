/**
 * What the database user may do, found out by trying: each statement needs one right and matches no row.
 */
import { Effect } from "effect"
import type { MysqlFault } from "../MysqlFault.js"
import type { OwnSession } from "../Session.js"
import * as Statements from "../statements/diagnose.js"
import type { Tables } from "../Tables.js"
import { type Finding, ok, problem, warning } from "./Finding.js"

type Right = keyof ReturnType<typeof Statements.tries>

/** What a user is to do, each with the rights that it needs beside those before it. The README lists the same. */
export const roles = ["produce", "operate", "work"] as const
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
  ]
}

/** A role that was asked for and lacks a right is a problem; without one, what the user may not do is only said. */
export const examine = (
  session: OwnSession,
  tables: Tables,
  role: Role | undefined
): Effect.Effect<ReadonlyArray<Finding>, MysqlFault> =>
  Effect.gen(function* () {
    const missing = new Set<Right>()
    for (const [right, statement] of rightsOf(tables)) {
      const granted = yield* session.script([statement]).pipe(
        Effect.as(true),
        // Another fault, such as that of a read-only server, says nothing about rights.
        Effect.catchAll((fault) =>
          fault.kind === "denied"
            ? Effect.succeed(false)
            : fault.kind === "read_only"
              ? Effect.succeed(true)
              : Effect.fail(fault)
        )
      )
      if (!granted) missing.add(right)
    }
    return (role === undefined ? roles : [role]).map((each) => judge(each, missing, role !== undefined))
  })

const rightsOf = (tables: Tables): ReadonlyArray<readonly [Right, string]> => {
  const tries = Statements.tries(tables)
  return (Object.keys(tries) as ReadonlyArray<Right>).map((right) => [right, tries[right]] as const)
}

const judge = (role: Role, missing: ReadonlySet<Right>, asked: boolean): Finding => {
  const lacks = needs[role].filter((right) => missing.has(right))
  if (lacks.length === 0) return ok("rights", `the user may ${role}`)
  const says = `the user may not ${role}: it lacks ${lacks.join(", ")}`
  return asked
    ? problem("rights", says, "Grant what is missing, on the tables with your prefix.")
    : warning("rights", says, `Grant it if this user is to ${role}; --role asks about one role only.`)
}
