/**
 * The ends of attempts, as settlements say them: which values a statement writes, and which of them it has to ask the server for.
 */
import type { Settlement } from "../JobStore.js"
import type { Lease } from "../Lease.js"
import * as Literal from "./Literal.js"

/** How each settlement is written into the ledger, and the state that it leads to where no cancel was requested. */
const written = {
  Complete: { outcome: "completed", state: 2, returned: 0 },
  RetryLater: { outcome: "retry", state: 0, returned: 0 },
  Bury: { outcome: "dead", state: 3, returned: 0 },
  Snooze: { outcome: "snoozed", state: 0, returned: 1 },
  Release: { outcome: "released", state: 0, returned: 1 },
  Cancel: { outcome: "canceled", state: 4, returned: 0 }
} as const

export const outcomeOf = (settlement: Settlement) => written[settlement._tag].outcome

/** What the items of a batch say of one field: in SQL, and where all of them say the same and it is known here, that value. */
export interface Said {
  readonly sql: string
  readonly value?: string | null
}

/** What they say of each field of an end. */
export type Says = (name: keyof End) => Said

/** Whether it is one of these values; undefined where that is not known, or differs. */
export const is = ({ value }: Said, ...values: ReadonlyArray<string | null>): boolean | undefined =>
  value === undefined ? undefined : values.includes(value)

/** One of two, by a condition that may be known to hold or not to. */
export const either = (known: boolean | undefined, condition: string, yes: string, no: string): string =>
  known === undefined ? `IF(${condition}, ${yes}, ${no})` : known ? yes : no

/**
 * What the items of a batch say, as columns.
 *
 * What all of them have in common is no column but a literal: of the server's 65 to 70 µs for each of 64 plain completions, 15
 * went into columns that said the same for all (measured 2026-11-29). The others come from a JSON_TABLE, all ERROR ON ERROR:
 * without it an over-long value would silently become NULL (measured).
 */
export class Items {
  private readonly items: ReadonlyArray<Fields>
  private readonly varying: ReadonlyArray<FieldName>

  constructor(settlements: ReadonlyArray<readonly [Lease, Settlement]>) {
    this.items = toItems(settlements)
    this.varying = fieldNames.filter((name) => this.items.some((item) => item[name] !== this.items[0]?.[name]))
  }

  /** Whether they differ in nothing but their ids. */
  get isUniform(): boolean {
    return this.varying.every((name) => name === "id")
  }

  mayBe(name: FieldName, value: string): boolean {
    return this.items.some((item) => item[name] === value)
  }

  readonly said = (name: FieldName): Said =>
    this.varying.includes(name) ? { sql: `item.${name}` } : known(name, this.items[0]?.[name] ?? null)

  get table(): string {
    const columns = ["id" as const, ...this.varying.filter((name) => name !== "id")]
    const rows = this.items.map((item) => columns.map((name) => item[name]))
    return (
      `JSON_TABLE(${Literal.text(JSON.stringify(rows))}, '$[*]' COLUMNS (`
      + columns.map((name, index) => `${name} ${fieldTypes[name]} PATH '$[${index}]' ERROR ON ERROR`).join(", ")
      + `)) AS item`
    )
  }
}

const fieldTypes = {
  id: "BIGINT UNSIGNED",
  token: "BIGINT UNSIGNED",
  worker: "VARCHAR(64)",
  state: "TINYINT UNSIGNED",
  outcome: "VARCHAR(16)",
  returned: "TINYINT UNSIGNED",
  delay: "BIGINT",
  code: "VARCHAR(64)",
  message: "VARCHAR(1000)",
  output: "LONGTEXT"
} as const

type FieldName = keyof typeof fieldTypes
const fieldNames = Object.keys(fieldTypes) as ReadonlyArray<FieldName>
/** Numbers as digits: a JSON number above 2^53 would lose some on the way. */
type Fields = { readonly [Name in FieldName]: string | null }

type End = Omit<Fields, "id" | "token" | "worker">

const isNumber = (name: FieldName): boolean => fieldTypes[name].includes("INT")

const toItems = (settlements: ReadonlyArray<readonly [Lease, Settlement]>): ReadonlyArray<Fields> =>
  [...settlements]
    .sort(([a], [b]) => a.jobId.length - b.jobId.length || (a.jobId < b.jobId ? -1 : 1))
    .map(([{ jobId, token, worker }, settlement]) => ({
      id: jobId,
      token: String(token),
      worker,
      ...toEnd(settlement)
    }))

const toEnd = (settlement: Settlement): End => {
  const { outcome, returned, state } = written[settlement._tag]
  return {
    state: String(state),
    outcome,
    returned: String(returned),
    delay: "delay" in settlement ? Literal.microseconds(settlement.delay) : "0",
    code: "code" in settlement ? settlement.code : null,
    message: "message" in settlement ? settlement.message : null,
    output: settlement._tag === "Complete" ? settlement.output : null
  }
}

const known = (name: FieldName, value: string | null): Said => ({
  sql: value === null ? "NULL" : isNumber(name) ? Literal.digits(value) : Literal.name(value),
  value
})

/** What settlements say that are all as this one. */
export const saidBy = (settlement: Settlement): Says => {
  const end = toEnd(settlement)
  return (name) => known(name, end[name])
}
