/**
 * A MySQL Group Replication cluster on loopback: one primary takes the writes, and another member takes over from it.
 *
 * Single-primary mode. Who takes writes is asked of the members, as a router does in front of a real one.
 */
import { randomUUID } from "node:crypto"
import { Duration, Effect, Schedule, type Scope } from "effect"
import * as Mysql from "mysql2/promise"
import * as Ephemeral from "./Ephemeral.js"

export interface Member {
  /** Of the user root and the database `leasehold`. */
  readonly url: string
  /** Ends the server at once, as a power cut does. It does not come back. */
  readonly kill: Effect.Effect<void>
  readonly leave: Effect.Effect<void, string>
  /** Comes back after it left, and catches up. */
  readonly join: Effect.Effect<void, string>
}

export interface Cluster {
  readonly members: ReadonlyArray<Member>
  /** The member that those who answer call their primary. Fails where there is none at the moment. */
  readonly primary: Effect.Effect<Member, string>
  /** Makes another member the primary, in an orderly way; the old one becomes read-only and keeps its connections. */
  readonly promote: (member: Member) => Effect.Effect<void, string>
  /** Waits until so many members are in the group and up to date. */
  readonly complete: (members: number) => Effect.Effect<void, string>
}

/** Starts a cluster of three; gone when the scope closes. It takes about ten seconds. */
export const start = (binary: string): Effect.Effect<Cluster, string, Scope.Scope> =>
  Effect.gen(function* () {
    const group = randomUUID()
    const places = yield* Effect.forEach([1, 2, 3], (id) => Effect.map(Ephemeral.freePort, (port) => ({ id, port })))
    const seeds = places.map(({ port }) => `127.0.0.1:${port}`).join(",")
    const members = yield* Effect.forEach(
      places,
      (place) => Effect.flatMap(Ephemeral.start(binary, serverArgs(group, seeds, place)), makeMember),
      { concurrency: places.length }
    )
    const cluster = makeCluster(members)
    for (const [index, member] of members.entries()) {
      yield* query(member.url, asMember)
      // The second name is that of MySQL 8.0.
      yield* Effect.orElse(query(member.url, "RESET BINARY LOGS AND GTIDS"), () => query(member.url, "RESET MASTER"))
      yield* index === 0 ? query(member.url, bootstrap) : member.join
    }
    yield* cluster.complete(members.length)
    return cluster
  })

const serverArgs =
  (group: string, seeds: string, own: { readonly id: number; readonly port: number }) => (port: number) => [
    "--innodb-buffer-pool-size=64M",
    "--innodb-redo-log-capacity=64M",
    `--server-id=${own.id}`,
    "--gtid-mode=ON",
    "--enforce-gtid-consistency=ON",
    "--log-bin=binlog",
    "--plugin-load-add=group_replication.so",
    `--loose-group-replication-group-name=${group}`,
    "--loose-group-replication-start-on-boot=OFF",
    `--loose-group-replication-local-address=127.0.0.1:${own.port}`,
    `--loose-group-replication-group-seeds=${seeds}`,
    "--loose-group-replication-ip-allowlist=127.0.0.1",
    // Five seconds until a silent member is suspected; it is expelled as soon as that.
    "--loose-group-replication-member-expel-timeout=0",
    "--loose-group-replication-consistency=BEFORE_ON_PRIMARY_FAILOVER",
    "--report-host=127.0.0.1",
    `--report-port=${port}`
  ]

/** After this each forgets its log: what its own start has written, such as the database, is no change of the group. */
const asMember = [
  "CREATE USER replicator@'%' IDENTIFIED BY 'replicator'",
  "GRANT REPLICATION SLAVE, CONNECTION_ADMIN, BACKUP_ADMIN, GROUP_REPLICATION_STREAM ON *.* TO replicator@'%'",
  "CHANGE REPLICATION SOURCE TO SOURCE_USER = 'replicator', SOURCE_PASSWORD = 'replicator'"
    + " FOR CHANNEL 'group_replication_recovery'",
  "SET GLOBAL group_replication_recovery_get_public_key = 1"
].join("; ")

const bootstrap =
  "SET GLOBAL group_replication_bootstrap_group = ON; START GROUP_REPLICATION;"
  + " SET GLOBAL group_replication_bootstrap_group = OFF"

const makeMember = (url: string): Effect.Effect<Member, string> =>
  Effect.map(Ephemeral.processId(url), (pid) => ({
    url,
    kill: Effect.sync(() => void process.kill(pid, "SIGKILL")),
    leave: Effect.asVoid(query(url, "STOP GROUP_REPLICATION")),
    join: Effect.asVoid(query(url, "START GROUP_REPLICATION"))
  }))

const online =
  "SELECT MEMBER_PORT AS port, MEMBER_ROLE AS role, MEMBER_ID AS id FROM performance_schema.replication_group_members"
  + " WHERE MEMBER_STATE = 'ONLINE'"

const makeCluster = (members: ReadonlyArray<Member>): Cluster => {
  /** As the first member sees the group that still is one of it. */
  const group = Effect.firstSuccessOf(
    members.map(({ url }) =>
      Effect.filterOrFail(
        query(url, online),
        (rows) => rows.some(({ role }) => role === "PRIMARY"),
        () => "there is no primary now"
      )
    )
  )
  const portOf = (member: Member) => Number(new URL(member.url).port)
  return {
    members,
    primary: Effect.flatMap(group, (rows) => {
      const primary = members.find((member) =>
        rows.some(({ port, role }) => role === "PRIMARY" && port === portOf(member))
      )
      return primary === undefined ? Effect.fail("the primary is none of ours") : Effect.succeed(primary)
    }),
    promote: (member) =>
      Effect.flatMap(group, (rows) => {
        const id = rows.find(({ port }) => port === portOf(member))?.["id"]
        return Effect.asVoid(query(member.url, `SELECT group_replication_set_as_primary('${String(id)}')`))
      }),
    complete: (size) =>
      Effect.filterOrFail(
        group,
        (rows) => rows.length === size,
        (rows) => `${rows.length} members of ${size} are online`
      ).pipe(
        Effect.retry(Schedule.intersect(Schedule.spaced(Duration.millis(200)), Schedule.recurs(300))),
        Effect.asVoid
      )
  }
}

const query = (url: string, text: string): Effect.Effect<ReadonlyArray<Readonly<Record<string, unknown>>>, string> =>
  Effect.tryPromise({
    try: async () => {
      const connection = await Mysql.createConnection({ uri: url, multipleStatements: true, connectTimeout: 2_000 })
      try {
        const [rows] = await connection.query<Array<Mysql.RowDataPacket>>(text)
        return Array.isArray(rows) ? rows : []
      } finally {
        connection.destroy()
      }
    },
    catch: (error) => `${text.slice(0, 40)}: ${error instanceof Error ? error.message : String(error)}`
  })
