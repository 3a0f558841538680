/**
 * Statements around the binary log. They read settings of the server and no row of a job.
 */
import * as Literal from "../Literal.js"
import type { Tables } from "../Tables.js"

/** The end of the binary log: file, position, and filters. No row where there is none. Needs REPLICATION CLIENT. */
export const end = "SHOW BINARY LOG STATUS"

/** The same before MySQL 8.2. */
export const endBefore82 = "SHOW MASTER STATUS"

/** The database of the session, as events name it; no row where it has no table of jobs. */
export const database = (tables: Tables): string =>
  "SELECT table_schema AS name FROM information_schema.tables"
  + ` WHERE table_schema = DATABASE() AND table_name = ${Literal.text(tables.jobs)}`

/**
 * What a session tells the server before it asks for events. Heartbeats come in a log at rest after so many nanoseconds. A
 * replica with the same UUID replaces the one before; without a UUID, ids would be compared instead, and two programs that
 * chose the same id would end each other for ever. Older servers know the second name of each.
 */
export const announce = (heartbeatNanos: bigint, uuid: string): string =>
  `SET @source_heartbeat_period = ${heartbeatNanos}, @master_heartbeat_period = ${heartbeatNanos},`
  + ` @replica_uuid = ${Literal.text(uuid)}, @slave_uuid = ${Literal.text(uuid)}`
