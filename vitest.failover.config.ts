import { defineConfig } from "vitest/config"

/** The tests that start a cluster of their own. They need a `mysqld` with its plugins, on PATH or from Debian. */
export default defineConfig({
  test: {
    include: ["test/failover/**/*.test.ts"],
    reporters: ["default", "./test/support/ClosingLine.ts"],
    testTimeout: 120_000,
    hookTimeout: 180_000,
    pool: "forks"
  }
})
