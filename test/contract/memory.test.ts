import { memory } from "../support/StoreHarness.js"
import { contract } from "./JobStoreContract.js"

contract("in memory", memory)
