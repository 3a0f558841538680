/**
 * What a matcher answers: whether what was given is as wanted, and what to say where that is not what the test expects.
 */

/** Whether two values are the same to the test runner: it knows its asymmetric matchers, and Effect's own equality. */
export type Equals = (actual: unknown, wanted: unknown) => boolean

export interface Verdict {
  readonly pass: boolean
  /** Only asked for where the assertion fails: an assertion by `.not` fails on what passes. */
  readonly message: () => string
}
