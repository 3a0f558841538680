/**
 * A wall clock of this process that can be set, as an administrator or a bad time server sets one.
 */
const honest = Date.now
let offset = 0

Date.now = () => honest() + offset
globalThis.Date = new Proxy(Date, {
  construct: (target, args: ReadonlyArray<unknown>, self) =>
    Reflect.construct(target, args.length === 0 ? [honest() + offset] : args, self)
})

/** Puts the clock so many milliseconds beside the true time. */
export const set = (millis: number): void => {
  offset = millis
}
