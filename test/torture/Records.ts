/**
 * What a torture leaves behind for the auditor: tables that only grow, filled by others than the library.
 *
 * `audit_changes` is written by triggers, so each change of a job row is there, in the same transaction and with the
 * database's time, whichever statement made it. `audit_history` is what handlers saw of themselves, each row a commit of its
 * own. `audit_effects` and `audit_orders` are rows that belong to a job: written in the transaction that completes it, or that
 * enqueues it. `audit_answers` is what callers were told, `audit_kills` when a worker was killed, `audit_lives` when each
 * process came, was told to stop, and went, and `audit_faults` when each fault was armed, happened and was over.
 */

import type { Effect } from "effect"

/** Answers the rows of a statement. */
export type Query = (text: string) => Effect.Effect<ReadonlyArray<Record<string, unknown>>>

/** Creates the tables; in an empty database. */
export const tables: ReadonlyArray<string> = [
  `CREATE TABLE audit_changes (
    id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, job_id BIGINT UNSIGNED NOT NULL, act VARCHAR(10) NOT NULL,
    at DATETIME(6) NOT NULL, type VARCHAR(64) NULL, priority TINYINT NULL, ref BIGINT NULL, scope_key VARBINARY(511) NULL,
    old_state TINYINT NULL, new_state TINYINT NULL, old_token BIGINT NULL, new_token BIGINT NULL,
    old_attempt INT NULL, new_attempt INT NULL, old_left INT NULL, new_left INT NULL, max_attempts INT NULL,
    old_due DATETIME(6) NULL, new_due DATETIME(6) NULL, old_cancel TINYINT NULL, new_cancel TINYINT NULL,
    owner VARCHAR(64) NULL, entry JSON NULL, entries INT NULL, output LONGTEXT NULL,
    KEY of_job (job_id, new_token, new_state), KEY by_ref (ref), KEY by_key (scope_key)) ENGINE = InnoDB`,
  `CREATE TABLE audit_history (
    id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, job_id BIGINT UNSIGNED NOT NULL, token BIGINT NOT NULL,
    worker VARCHAR(64) NOT NULL, event VARCHAR(10) NOT NULL, at DATETIME(6) NOT NULL,
    KEY of_job (job_id, token)) ENGINE = InnoDB`,
  `CREATE TABLE audit_effects (
    id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, job_id BIGINT UNSIGNED NOT NULL, token BIGINT NOT NULL,
    KEY of_job (job_id)) ENGINE = InnoDB`,
  "CREATE TABLE audit_orders (ref BIGINT PRIMARY KEY) ENGINE = InnoDB",
  `CREATE TABLE audit_answers (
    id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, act VARCHAR(20) NOT NULL, answer VARCHAR(20) NOT NULL,
    ref BIGINT NULL, job_id BIGINT UNSIGNED NULL, KEY by_ref (ref), KEY of_job (job_id)) ENGINE = InnoDB`,
  `CREATE TABLE audit_kills (
    id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, worker VARCHAR(64) NOT NULL, at DATETIME(6) NOT NULL) ENGINE = InnoDB`,
  `CREATE TABLE audit_lives (
    id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, worker VARCHAR(64) NOT NULL, started_at DATETIME(6) NOT NULL,
    ready_at DATETIME(6) NULL, stopped_at DATETIME(6) NULL, ended_at DATETIME(6) NULL, end VARCHAR(20) NOT NULL) ENGINE = InnoDB`,
  `CREATE TABLE audit_faults (
    id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, fault VARCHAR(20) NOT NULL, place VARCHAR(20) NOT NULL,
    armed_at DATETIME(6) NOT NULL, happened_at DATETIME(6) NULL, over_at DATETIME(6) NULL) ENGINE = InnoDB`
]

/** The tables, and what puts the rows of each in order. */
export const keys: ReadonlyArray<{ readonly table: string; readonly key: string }> = [
  "audit_changes",
  "audit_history",
  "audit_effects",
  "audit_orders",
  "audit_answers",
  "audit_kills",
  "audit_lives",
  "audit_faults"
].map((table) => ({ table, key: table === "audit_orders" ? "ref" : "id" }))

/** A time of this process' wall clock, in milliseconds, as the tables have it: the server runs on the same machine. */
export const timeOf = (millis: number | undefined): string =>
  millis === undefined ? "NULL" : `TIMESTAMPADD(MICROSECOND, ${millis * 1_000}, '1970-01-01')`

const refOf = (row: string) => `CAST(JSON_VALUE(${row}.payload, '$.ref') AS SIGNED)`
const keyOf = (row: string) =>
  `IF(${row}.idempotency_key IS NULL, NULL, CONCAT(HEX(${row}.scope), '/', HEX(${row}.idempotency_key)))`
const columns =
  "job_id, act, at, type, priority, ref, scope_key, old_state, new_state, old_token, new_token, old_attempt, new_attempt, old_left,"
  + " new_left, max_attempts, old_due, new_due, old_cancel, new_cancel, owner, entry, entries, output"

/** Watches the table of the jobs, which has to be there. */
export const triggers: ReadonlyArray<string> = [
  `CREATE TRIGGER audit_insert AFTER INSERT ON leasehold_jobs FOR EACH ROW INSERT INTO audit_changes (${columns})
    VALUES (NEW.id, 'insert', UTC_TIMESTAMP(6), NEW.type, NEW.priority, ${refOf("NEW")}, ${keyOf("NEW")}, NULL, NEW.state, NULL, NEW.token,
    NULL, NEW.attempt, NULL, NEW.attempts_left, NEW.max_attempts, NULL, NEW.due_at, NULL, NEW.cancel_requested, NULL, NULL,
    JSON_LENGTH(NEW.attempts), NULL)`,
  `CREATE TRIGGER audit_update AFTER UPDATE ON leasehold_jobs FOR EACH ROW INSERT INTO audit_changes (${columns})
    VALUES (NEW.id, 'update', UTC_TIMESTAMP(6), NEW.type, NEW.priority, ${refOf("NEW")}, NULL, OLD.state, NEW.state, OLD.token, NEW.token,
    OLD.attempt, NEW.attempt, OLD.attempts_left, NEW.attempts_left, NEW.max_attempts, OLD.due_at, NEW.due_at,
    OLD.cancel_requested, NEW.cancel_requested, NEW.lease_owner, JSON_EXTRACT(NEW.attempts, '$[last]'),
    JSON_LENGTH(NEW.attempts), NEW.output)`,
  `CREATE TRIGGER audit_delete AFTER DELETE ON leasehold_jobs FOR EACH ROW INSERT INTO audit_changes (${columns})
    VALUES (OLD.id, 'delete', UTC_TIMESTAMP(6), OLD.type, OLD.priority, ${refOf("OLD")}, ${keyOf("OLD")}, OLD.state, NULL, OLD.token, NULL,
    OLD.attempt, NULL, OLD.attempts_left, NULL, OLD.max_attempts, OLD.due_at, NULL, OLD.cancel_requested, NULL, NULL, NULL,
    NULL, NULL)`
]

/** A word that a handler puts into each failure, so that the ledger tells whose it is. */
export const heldUnder = (token: number): string => `held under ${token}`
