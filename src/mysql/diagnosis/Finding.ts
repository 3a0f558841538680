/**
 * One thing that the doctor found.
 */
export interface Finding {
  readonly check: string
  readonly level: "ok" | "warning" | "problem"
  readonly says: string
  /** What to do about it; every warning and problem has some. */
  readonly advice?: string
}

export const ok = (check: string, says: string): Finding => ({ check, level: "ok", says })

export const warning = (check: string, says: string, advice: string): Finding => ({
  check,
  level: "warning",
  says,
  advice
})

export const problem = (check: string, says: string, advice: string): Finding => ({
  check,
  level: "problem",
  says,
  advice
})
