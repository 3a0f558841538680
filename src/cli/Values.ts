/**
 * Options whose values are checked while the command line is parsed, with an error that names the option and what is accepted.
 */
import * as HelpDoc from "@effect/cli/HelpDoc"
import * as Options from "@effect/cli/Options"
import * as ValidationError from "@effect/cli/ValidationError"
import { Effect } from "effect"
import { redactSecrets } from "../Attempt.js"

export const wholeNumber = (name: string, least: number, most: number): Options.Options<number> =>
  Options.text(name).pipe(
    Options.withPseudoName("number"),
    Options.mapEffect((text) => {
      const value = /^[0-9]{1,15}$/.test(text) ? Number(text) : Number.NaN
      return value >= least && value <= most
        ? Effect.succeed(value)
        : Effect.fail(refused(name, text, `a whole number from ${least} to ${most}`))
    })
  )

const refused = (name: string, text: string, accepted: string) =>
  ValidationError.invalidValue(
    HelpDoc.p(`Option --${name} is ${JSON.stringify(redactSecrets(text).slice(0, 80))}; accepted: ${accepted}.`)
  )
