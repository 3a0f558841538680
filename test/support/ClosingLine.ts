/**
 * Ends the run with one line that says what it came to: `N passed, N failed`, and `N skipped` where some were.
 */
import type { Reporter, SerializedError, TestModule } from "vitest/node"

export default class ClosingLine implements Reporter {
  onTestRunEnd(modules: ReadonlyArray<TestModule>, unhandled: ReadonlyArray<SerializedError>): void {
    const states = modules.flatMap((module) => [...module.children.allTests()].map((test) => test.result().state))
    const count = (state: string) => states.filter((candidate) => candidate === state).length
    // A file that does not load and an error that no test caught have no test of their own to fail.
    const broken = modules.filter((module) => module.state() === "failed" && !hasFailedTest(module)).length
    const failed = count("failed") + broken + unhandled.length
    const skipped = count("skipped") + count("pending")
    const line = `${count("passed")} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`
    // The other reporters print their summary after this hook: the line waits until the process has nothing more to say.
    // Before the other listeners, since one of vitest's calls `process.exit` again and so skips all that come after it.
    process.prependListener("exit", () => process.stdout.write(`${line}\n`))
  }
}

const hasFailedTest = (module: TestModule): boolean =>
  [...module.children.allTests()].some((test) => test.result().state === "failed")
