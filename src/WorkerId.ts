/**
 * The name of a holder of leases, where the program gives none.
 */
import { randomUUID } from "node:crypto"
import { hostname } from "node:os"

/** Host, process and a random part: no two are the same, and an operator finds the process. A valid worker id. */
export const make = (): string =>
  `${
    hostname()
      .replace(/[^A-Za-z0-9_.-]/g, "_")
      .slice(0, 40) || "host"
  }-${process.pid}-${randomUUID().slice(0, 8)}`
