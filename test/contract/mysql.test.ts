import { store } from "../support/Mysql.js"
import { contract } from "./JobStoreContract.js"

contract("on MySQL", store)
