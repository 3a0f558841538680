import { configDefaults, defineConfig } from "vitest/config"
import { LongestFirst } from "./test/support/LongestFirst.js"

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    // Three servers of its own: `npm run test:failover`.
    exclude: [...configDefaults.exclude, "test/failover/**"],
    globalSetup: ["test/support/GlobalMysql.ts"],
    reporters: ["default", "./test/support/ClosingLine.ts"],
    typecheck: { enabled: true, include: ["test/types/**/*.test-d.ts"], tsconfig: "./tsconfig.json" },
    // Only for what hangs: on a busy machine a test may take several times as long as on an idle one.
    testTimeout: 180_000,
    hookTimeout: 120_000,
    sequence: { sequencer: LongestFirst },
    pool: "forks",
    // All suites share one server on what may be two cores: more of them at once only wait for each other.
    poolOptions: { forks: { maxForks: 2 } }
  }
})
