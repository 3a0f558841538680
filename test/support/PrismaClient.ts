/**
 * A Prisma client without models, for raw queries. `prisma generate` would write one, but its command line downloads an engine
 * that it does not need for this; the client's own runtime is all that the adapter meets.
 */
import { createRequire } from "node:module"
import type { PrismaMariaDb } from "@prisma/adapter-mariadb"
import * as runtime from "@prisma/client/runtime/client"
import type { Handle } from "../../src/adapters/prisma.js"

export interface RawClient extends Handle {
  readonly $transaction: <A>(body: (tx: Handle) => Promise<A>) => Promise<A>
  readonly $disconnect: () => Promise<void>
}

const require = createRequire(import.meta.url)
// The runtime ships its query compiler without types, and the types of Node 20 leave WebAssembly to the browser's.
const { WebAssembly } = globalThis as unknown as {
  readonly WebAssembly: { readonly Module: new (bytes: Buffer) => object }
}

const config: runtime.GetPrismaClientConfig = {
  previewFeatures: [],
  clientVersion: "7.10.0",
  engineVersion: "none",
  activeProvider: "mysql",
  inlineSchema: 'datasource db {\n  provider = "mysql"\n}\n',
  runtimeDataModel: { models: {}, enums: {}, types: {} },
  // An empty graph is a header of zeros.
  parameterizationSchema: { strings: [], graph: Buffer.alloc(32).toString("base64") },
  compilerWasm: {
    getRuntime: async () => require("@prisma/client/runtime/query_compiler_fast_bg.mysql.js"),
    getQueryCompilerWasmModule: async () => {
      const { wasm } = require("@prisma/client/runtime/query_compiler_fast_bg.mysql.wasm-base64.js")
      return new WebAssembly.Module(Buffer.from(wasm, "base64"))
    },
    importName: "./query_compiler_fast_bg.js"
  }
}

/** A client on a database, through Prisma's driver adapter for MySQL and MariaDB. */
export const make = (adapter: PrismaMariaDb): RawClient => {
  const Client = runtime.getPrismaClient(config)
  return new Client({ adapter }) as unknown as RawClient
}
