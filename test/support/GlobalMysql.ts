/**
 * One server for the whole run: started before the first test, gone after the last.
 */
import { Effect, Exit, Scope } from "effect"
import * as Mysql from "mysql2/promise"
import type { TestProject } from "vitest/node"
import { launch } from "../../scripts/mysql/MysqlServer.js"

declare module "vitest" {
  interface ProvidedContext {
    readonly mysqlUrl: string
  }
}

const settings =
  "SELECT @@transaction_isolation AS isolation, @@innodb_flush_log_at_trx_commit AS flush_log,"
  + " @@max_connections AS connections, @@log_bin AS binlog"

export default async (project: TestProject): Promise<() => Promise<void>> => {
  const scope = await Effect.runPromise(Scope.make())
  const server = await Effect.runPromise(Scope.extend(launch(), scope))
  const connection = await Mysql.createConnection(server.url)
  const [rows] = await connection.query(settings)
  await connection.end()
  process.stdout.write(
    `MySQL ${server.version} (${server.source}): ${JSON.stringify(Array.isArray(rows) ? rows[0] : {})};`
      + " the library's own sessions: READ COMMITTED, 4 worker and 8 client connections\n"
  )
  project.provide("mysqlUrl", server.url)
  return () => Effect.runPromise(Scope.close(scope, Exit.void))
}
