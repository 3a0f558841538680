/**
 * The order of the files: those that take long and mostly wait come first, so that none of them is left alone at the end while
 * the other processes have nothing to do. The runner remembers how long each took, but a fresh checkout remembers nothing.
 */
import { BaseSequencer, type TestSpecification } from "vitest/node"

/**
 * What takes more than ten seconds. A file that is not named costs some time, and nothing else. The first four bear a busy machine, as
 * it is for the first minute while the compiler checks `test/types` beside them. `WorkerProcess` measures how soon jobs go on: behind
 * it, and so beside it, come those that only wait.
 */
const long = [
  "fault/Torture",
  "fault/Soak",
  "integration/Newcomer",
  "integration/Examples",
  "fault/WorkerProcess",
  "fault/IdleFleet",
  "fault/Network",
  "fault/Clocks",
  "fault/Binlog",
  "fault/Fairness",
  "fault/KeyRace",
  "fault/SafeTransactions",
  "fault/Races",
  "fault/Stops",
  "fault/Pools"
].map((name) => `/test/${name}.test.ts`)

/** The place among them, or behind all of them. */
const place = ({ moduleId }: TestSpecification): number => {
  const index = long.findIndex((file) => moduleId.endsWith(file))
  return index === -1 ? long.length : index
}

export class LongestFirst extends BaseSequencer {
  override async sort(files: Array<TestSpecification>): Promise<Array<TestSpecification>> {
    return (await super.sort(files)).sort((a, b) => place(a) - place(b))
  }
}
