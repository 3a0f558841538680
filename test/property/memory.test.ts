import { memory } from "../support/StoreHarness.js"
import { property } from "./JobStoreProperty.js"

property("in memory", memory, 300)
