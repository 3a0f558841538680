/**
 * Statements around the migration steps, whose own texts are in `migrations/`.
 */
import * as Literal from "../Literal.js"
import type { Tables } from "../Tables.js"

/** The definition of a table, temporary or not; the name is of our own making. */
export const definition = (table: string): string => `SHOW CREATE TABLE ${table}`

/** A step that makes a table, as one that makes it for this session only. Other steps change tables that are temporary then. */
export const asTemporary = (step: string): string => step.replace(/^CREATE TABLE /, "CREATE TEMPORARY TABLE ")

/** Drops tables of this session, and no others, whatever their names. */
export const dropTemporary = (tables: ReadonlyArray<string>): string =>
  `DROP TEMPORARY TABLE IF EXISTS ${tables.join(", ")}`

/** Says that a step which was begun is done. By primary key. */
export const recordDone = (tables: Tables, step: number): string =>
  `UPDATE ${tables.migrations} SET done_at = UTC_TIMESTAMP(6) WHERE step = ${Literal.integer(step)} AND done_at IS NULL`

/** Forgets that a step was begun. By primary key. */
export const withdraw = (tables: Tables, step: number): string =>
  `DELETE FROM ${tables.migrations} WHERE step = ${Literal.integer(step)} AND done_at IS NULL`

/** Drops the tables of an install: what a measurement made for itself. */
export const dropAll = (tables: Tables): string =>
  `DROP TABLE IF EXISTS ${tables.jobs}, ${tables.queues}, ${tables.refusals}, ${tables.migrations}`
