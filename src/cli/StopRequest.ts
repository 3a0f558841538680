/**
 * SIGTERM and SIGINT, as an effect that ends with the first of them. `main` provides it; elsewhere it never comes.
 */
import { Context, Effect } from "effect"
import type { ExitCode } from "./ExitCode.js"

export class StopRequest extends Context.Reference<StopRequest>()("leasehold/cli/StopRequest", {
  defaultValue: (): Effect.Effect<ExitCode> => Effect.never
}) {}

/** The code of the signal, once it has come. */
export const requested: Effect.Effect<ExitCode> = Effect.flatMap(StopRequest, (stop) => stop)
