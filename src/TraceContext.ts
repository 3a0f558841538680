/**
 * The trace that an enqueue belonged to, as it travels in the job's row: the text of a W3C `traceparent` header.
 */
import { Context, DefaultServices, Effect, Option, Tracer } from "effect"

const form = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/

/** The trace context of the span that is open here, or none. */
export const current: Effect.Effect<Option.Option<string>> = Effect.map(
  Effect.serviceOption(Tracer.ParentSpan),
  Option.flatMap((span) => {
    const text = `00-${span.traceId}-${span.spanId}-${span.sampled ? "01" : "00"}`
    // A tracer may name its spans as it likes; only what other programs can read is stored.
    return form.test(text) ? Option.some(text) : Option.none()
  })
)

/** The span that a stored trace context names, to link to. None for text that is no trace context. */
export const parse = (text: string): Option.Option<Tracer.ExternalSpan> => {
  const [, traceId, spanId, flags] = form.exec(text) ?? []
  return traceId === undefined || spanId === undefined || flags === undefined
    ? Option.none()
    : Option.some(Tracer.externalSpan({ traceId, spanId, sampled: (Number.parseInt(flags, 16) & 1) === 1 }))
}

/** Whether anybody collects spans: Effect's own tracer, which every program has that provides no other, keeps them to itself. */
export const isCollected: Effect.Effect<boolean> = Effect.map(Effect.tracer, (tracer) => tracer !== uncollected)

const uncollected = Context.get(DefaultServices.liveServices, Tracer.Tracer)
