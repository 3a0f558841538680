import { fileURLToPath } from "node:url"
import { defineConfig } from "vitest/config"

const source = (path: string) => fileURLToPath(new URL(`../../src/${path}`, import.meta.url))

// In a project of your own `leasehold` is found in node_modules, without an alias.
export default defineConfig({
  resolve: {
    alias: [
      { find: /^leasehold$/, replacement: source("index.ts") },
      { find: /^leasehold\/testing$/, replacement: source("testing/index.ts") },
      { find: /^leasehold\/testing\/vitest$/, replacement: source("testing/vitest.ts") }
    ]
  },
  // A rehearsal runs a job about a hundred times: see docs/testing.md.
  test: { testTimeout: 60_000 }
})
