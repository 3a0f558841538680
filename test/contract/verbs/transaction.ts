import { expect } from "@effect/vitest"
import { Effect, Exit } from "effect"
import { type It, scene } from "../../support/Scene.js"

export const transaction = (it: It): void => {
  it.effect("a transaction answers what its effect does, and its jobs are there after it", () =>
    Effect.gen(function* () {
      const { enqueue, record, store } = yield* scene
      const id = yield* store.transaction(enqueue())
      expect(yield* record(id)).toMatchObject({ id, state: "pending" })
    })
  )

  it.effect(
    "within a transaction one is required and refused as it should, outside and detached the other way round",
    () =>
      Effect.gen(function* () {
        const { store } = yield* scene
        const ask = Effect.all([
          Effect.exit(store.requireTransaction("enqueue")),
          Effect.exit(store.refuseTransaction("result"))
        ])
        const outside = yield* ask
        const [inside, detached] = yield* store.transaction(Effect.all([ask, store.detached(ask)]))
        for (const exits of [outside, detached]) {
          expect(exits).toMatchObject([{ cause: { error: { _tag: "NotInTransaction", verb: "enqueue" } } }, Exit.void])
        }
        expect(inside).toMatchObject([Exit.void, { cause: { error: { _tag: "InTransaction", verb: "result" } } }])
      })
  )

  it.effect("a transaction within another one is refused, and the outer one goes on", () =>
    Effect.gen(function* () {
      const { enqueue, record, store } = yield* scene
      const id = yield* store.transaction(
        Effect.gen(function* () {
          expect(yield* Effect.flip(store.transaction(enqueue()))).toMatchObject({ _tag: "InTransaction" })
          return yield* enqueue()
        })
      )
      expect((yield* record(id)).state).toBe("pending")
    })
  )

  it.effect("failures and defects of its effect pass through a transaction as they are", () =>
    Effect.gen(function* () {
      const { store } = yield* scene
      expect(yield* Effect.exit(store.transaction(Effect.fail("no")))).toEqual(Exit.fail("no"))
      expect(yield* Effect.exit(store.transaction(Effect.die("bug")))).toEqual(Exit.die("bug"))
      expect(yield* Effect.exit(store.transaction(Effect.interrupt))).toMatchObject({ _tag: "Failure" })
    })
  )
}
