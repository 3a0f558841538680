import { MysqlClient } from "@effect/sql-mysql2"
import { expect, it } from "@effect/vitest"
import { Context, Effect, Layer, Redacted, Schema } from "effect"
import { describe } from "vitest"
import * as Job from "../../src/Job.js"
import * as MysqlQueue from "../../src/MysqlQueue.js"
import * as Queue from "../../src/Queue.js"
import * as Worker from "../../src/Worker.js"
import { emptyDatabase } from "../support/Mysql.js"

class Orders extends Context.Tag("test/Orders")<Orders, Queue.Queue["Type"]>() {}
class Mail extends Context.Tag("test/Mail")<Mail, Queue.Queue["Type"]>() {}

const Export = Job.make("export", { payload: { id: Schema.Number }, success: Schema.String })
const Send = Job.make("send", { payload: { id: Schema.Number }, success: Schema.String })

const on = (url: string) => MysqlQueue.layer().pipe(Layer.provide(MysqlClient.layer({ url: Redacted.make(url) })))

describe("several queues in one program", () => {
  it.scopedLive("each write to their own database, and have workers of their own", () =>
    Effect.gen(function* () {
      const first = yield* emptyDatabase()
      const second = yield* emptyDatabase()
      const orders = on(first.url)
      const mail = on(second.url)
      // One layer for all of it: what the two have in common by its code must not be made once for both.
      const program = Layer.mergeAll(
        Layer.effect(Orders, Queue.Queue).pipe(Layer.provide(orders)),
        Layer.effect(Mail, Queue.Queue).pipe(Layer.provide(mail)),
        Layer.discard(Worker.layer({ jobs: [Export], poll: "50 millis" })).pipe(
          Layer.provide([Export.toLayer(() => Effect.succeed("exported")), orders])
        ),
        Layer.discard(Worker.layer({ jobs: [Send], poll: "50 millis" })).pipe(
          Layer.provide([Send.toLayer(() => Effect.succeed("sent")), mail])
        )
      )
      yield* Effect.gen(function* () {
        const exporting = yield* Effect.flatMap(Orders, (queue) => queue.enqueue(Export, { id: 1 }))
        const sending = yield* Effect.flatMap(Mail, (queue) => queue.enqueue(Send, { id: 1 }))
        const types = "SELECT type FROM leasehold_jobs"
        expect(yield* first.query(types)).toEqual([{ type: "export" }])
        expect(yield* second.query(types)).toEqual([{ type: "send" }])
        expect(yield* Effect.flatMap(Orders, (queue) => queue.result(Export, exporting.id))).toBe("exported")
        expect(yield* Effect.flatMap(Mail, (queue) => queue.result(Send, sending.id))).toBe("sent")
      }).pipe(Effect.provide(program))
    })
  )
})
