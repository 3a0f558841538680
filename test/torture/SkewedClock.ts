/**
 * A wall clock of this process that can be set, as an administrator or a bad time server sets one.
 */
const honest = Date
const now = Date.now
let offset = 0

const skewed = new Proxy(honest, {
  construct: (target, args: ReadonlyArray<unknown>, self) =>
    Reflect.construct(target, args.length === 0 ? [now() + offset] : args, self)
})

/** Puts the clock so many milliseconds beside the true time; at 0 it is the process's own again. */
export const set = (millis: number): void => {
  offset = millis
  honest.now = millis === 0 ? now : () => now() + offset
  globalThis.Date = millis === 0 ? honest : skewed
}
