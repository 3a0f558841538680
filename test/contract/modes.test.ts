/**
 * Scenario L5: the whole contract where the server gives hostile settings to every new session.
 */
import { storeOn } from "../support/Mysql.js"
import { contract } from "./JobStoreContract.js"

/** One after the other with LEASEHOLD_SQL_MODES=all; else all that can be had together. */
const modes =
  process.env["LEASEHOLD_SQL_MODES"] === "all"
    ? [
        "",
        "ANSI",
        "ANSI_QUOTES",
        "NO_BACKSLASH_ESCAPES",
        "TRADITIONAL",
        "PIPES_AS_CONCAT",
        "HIGH_NOT_PRECEDENCE",
        "PAD_CHAR_TO_FULL_LENGTH"
      ]
    : ["ANSI,NO_BACKSLASH_ESCAPES,TRADITIONAL,HIGH_NOT_PRECEDENCE,PAD_CHAR_TO_FULL_LENGTH"]

const others =
  "SESSION autocommit = 0, SESSION innodb_strict_mode = 0, SESSION sql_require_primary_key = 1, SESSION time_zone = '+05:30',"
  + " SESSION sql_safe_updates = 1, SESSION sql_select_limit = 1, SESSION transaction_isolation = 'SERIALIZABLE'"

for (const mode of modes) {
  contract(
    `on a MySQL whose sessions begin with sql_mode '${mode}' and no autocommit`,
    storeOn(`SET SESSION sql_mode = '${mode}', ${others};`)
  )
}
