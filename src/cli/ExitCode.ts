/**
 * How the command ends, for scripts. The same table is in `docs/command.md` and in `leasehold --help`.
 */
export const ExitCode = {
  done: 0,
  unexpected: 1,
  usage: 2,
  database: 3,
  tables: 4,
  refused: 5,
  problem: 6,
  interrupted: 130,
  terminated: 143
} as const

export type ExitCode = (typeof ExitCode)[keyof typeof ExitCode]

export const meanings: ReadonlyArray<readonly [code: ExitCode, meaning: string]> = [
  [ExitCode.done, "done"],
  [ExitCode.unexpected, "something unexpected: please report it"],
  [ExitCode.usage, "the command line is wrong: unknown option, value out of range, payload that is no JSON"],
  [ExitCode.database, "the database can not be used: no answer, login refused, right missing, server not supported"],
  [ExitCode.tables, "the tables are missing, or are not those of this release"],
  [ExitCode.refused, "the job or key does not allow it: no such job, not ended, key taken"],
  [ExitCode.problem, "doctor found a problem"],
  [ExitCode.interrupted, "stopped by SIGINT before it was done (143: by SIGTERM); work ends with 0"]
]
