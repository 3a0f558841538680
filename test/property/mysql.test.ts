import { store } from "../support/Mysql.js"
import { property } from "./JobStoreProperty.js"

property("on MySQL", store, 40)
