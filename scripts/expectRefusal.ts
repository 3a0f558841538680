/**
 * Ends with 0 where the server of `LEASEHOLD_MYSQL_URL` is refused at start as unsupported, and with 1 in every other case.
 */
import { MysqlClient } from "@effect/sql-mysql2"
import { Effect, Layer, Redacted } from "effect"
import { MysqlQueue } from "../src/index.js"

const url = process.env["LEASEHOLD_MYSQL_URL"] ?? ""

const start = Layer.build(MysqlQueue.layer().pipe(Layer.provide(MysqlClient.layer({ url: Redacted.make(url) }))))

const verdict = Effect.scoped(start).pipe(
  Effect.match({
    onFailure: (error) => ({ refused: error._tag === "UnsupportedServer", said: error.message }),
    onSuccess: () => ({ refused: false, said: "The server was accepted." })
  })
)

const { refused, said } = await Effect.runPromise(verdict)
process.stdout.write(`${said}\n`)
process.exit(refused ? 0 : 1)
