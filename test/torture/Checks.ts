/**
 * What has to be true of a torture's records, each as a statement that finds the rows where it is not.
 *
 * States: 0 pending, 1 running, 2 succeeded, 3 dead, 4 canceled. The library's own tables are looked at for what is there at
 * the end; everything else is judged by what others have recorded.
 */

/** The four that a torture is judged by, and `other` for everything else that must hold. */
export type Kind = "lost" | "double_owned" | "double_terminal" | "duplicate_effects" | "other"

export interface Check {
  readonly kind: Kind
  /** What was found, where it finds something. */
  readonly finding: string
  /** Answers a job's id and a word about it, for each row that must not be. */
  readonly statement: string
}

const check = (kind: Kind, finding: string, statement: string): Check => ({ kind, finding, statement })

/** Somebody became the holder: a claim of a pending job, or a takeover of one whose holder vanished. */
const claims = "act = 'update' AND new_state = 1 AND new_token <> old_token"
/** The holder wrote the end of his attempt. */
const settles = "act = 'update' AND old_state = 1 AND new_state <> 1 AND new_token = old_token"

const lost: ReadonlyArray<Check> = [
  check(
    "lost",
    "a job whose enqueue was acknowledged was never there",
    `SELECT answers.job_id, answers.act AS detail FROM audit_answers AS answers
      LEFT JOIN audit_changes AS born ON born.job_id = answers.job_id AND born.act = 'insert'
      WHERE answers.answer = 'acknowledged' AND answers.job_id IS NOT NULL AND born.id IS NULL`
  ),
  check(
    "lost",
    "a job has not ended",
    "SELECT id AS job_id, CONCAT('state ', state, ', due ', due_at) AS detail FROM leasehold_jobs WHERE state IN (0, 1)"
  ),
  check(
    "lost",
    "a job was deleted before its end",
    "SELECT job_id, old_state AS detail FROM audit_changes WHERE act = 'delete' AND old_state NOT IN (2, 3, 4)"
  ),
  check(
    "lost",
    "a job vanished without a delete",
    `SELECT born.job_id, born.type AS detail FROM audit_changes AS born
      LEFT JOIN audit_changes AS gone ON gone.job_id = born.job_id AND gone.act = 'delete'
      LEFT JOIN leasehold_jobs AS jobs ON jobs.id = born.job_id
      WHERE born.act = 'insert' AND gone.id IS NULL AND jobs.id IS NULL`
  ),
  check(
    "lost",
    "rows of a caller were committed without the job of the same transaction",
    `SELECT 0 AS job_id, orders.ref AS detail FROM audit_orders AS orders
      LEFT JOIN audit_changes AS born ON born.ref = orders.ref AND born.act = 'insert' WHERE born.id IS NULL`
  )
]

const ownership: ReadonlyArray<Check> = [
  check(
    "double_owned",
    "a job was taken, or ended from outside, before the lease of its holder had ended",
    `SELECT job_id, CONCAT('token ', old_token, ' held it until ', old_due, ', taken at ', at) AS detail FROM audit_changes
      WHERE act = 'update' AND old_state = 1 AND new_token <> old_token AND old_due > at`
  ),
  check(
    "double_owned",
    "a token was given twice",
    `SELECT job_id, CONCAT('token ', new_token) AS detail FROM audit_changes WHERE ${claims}
      GROUP BY job_id, new_token HAVING COUNT(*) > 1`
  ),
  check(
    "double_owned",
    "two handlers started under one token",
    `SELECT job_id, CONCAT('token ', token, ': ', GROUP_CONCAT(worker)) AS detail FROM audit_history WHERE event = 'start'
      GROUP BY job_id, token HAVING COUNT(*) > 1`
  ),
  check(
    "double_owned",
    "a handler started without a claim that was committed",
    `SELECT started.job_id, CONCAT('token ', started.token, ' of ', started.worker) AS detail FROM audit_history AS started
      LEFT JOIN audit_changes AS taken
        ON taken.job_id = started.job_id AND taken.new_token = started.token AND taken.new_state = 1
        AND taken.act = 'update' AND taken.owner = started.worker
      WHERE started.event = 'start' AND taken.id IS NULL`
  ),
  check(
    "double_owned",
    "an attempt was ended by what another holder's handler answered",
    `SELECT job_id, CONCAT('token ', new_token, ', answer of ',
        COALESCE(JSON_VALUE(output, '$.token'), JSON_VALUE(entry, '$.m'))) AS detail FROM audit_changes
      WHERE ${settles} AND (new_state = 2 AND JSON_VALUE(output, '$.token') <> new_token
        OR JSON_VALUE(entry, '$.m') LIKE 'held under %' AND JSON_VALUE(entry, '$.m') <> CONCAT('held under ', new_token))`
  )
]

const terminal: ReadonlyArray<Check> = [
  check(
    "double_terminal",
    "an ended job was changed, other than by an operator's retry",
    `SELECT job_id, CONCAT('from ', old_state, ' to ', new_state) AS detail FROM audit_changes WHERE act = 'update'
      AND old_state IN (2, 3, 4) AND NOT (old_state IN (3, 4) AND new_state = 0 AND new_token = old_token + 1)`
  ),
  check(
    "double_terminal",
    "a job ended more often than it was begun",
    `SELECT job_id, CONCAT(SUM(new_state IN (2, 3, 4)), ' ends') AS detail FROM audit_changes WHERE act = 'update'
      GROUP BY job_id HAVING SUM(new_state IN (2, 3, 4)) > 1 + SUM(old_state IN (3, 4) AND new_state = 0)`
  )
]

const effects: ReadonlyArray<Check> = [
  check(
    "duplicate_effects",
    "the writes of completeWith happened twice",
    "SELECT job_id, CONCAT(COUNT(*), ' times') AS detail FROM audit_effects GROUP BY job_id HAVING COUNT(*) > 1"
  ),
  check(
    "duplicate_effects",
    "writes of completeWith were committed without the completion",
    `SELECT written.job_id, CONCAT('token ', written.token) AS detail FROM audit_effects AS written
      LEFT JOIN audit_changes AS done ON done.job_id = written.job_id AND done.new_token = written.token
        AND done.new_state = 2 AND done.old_state = 1 WHERE done.id IS NULL`
  ),
  check(
    "other",
    "a completion by completeWith was committed without its writes",
    `SELECT done.job_id, CONCAT('token ', done.new_token) AS detail FROM audit_changes AS done
      LEFT JOIN audit_effects AS written ON written.job_id = done.job_id AND written.token = done.new_token
      WHERE done.act = 'update' AND done.type = 'torture.exact' AND done.old_state = 1 AND done.new_state = 2
      AND written.id IS NULL`
  )
]

const bookkeeping: ReadonlyArray<Check> = [
  check(
    "other",
    "a token or an attempt number went down, or rose without reason",
    `SELECT job_id, CONCAT('token ', old_token, ' to ', new_token, ', attempt ', old_attempt, ' to ', new_attempt) AS detail
      FROM audit_changes WHERE act = 'update' AND NOT (
        new_state = 1 AND new_token = old_token + 1 AND new_attempt = old_attempt + 1
        OR new_token IN (old_token, old_token + 1) AND new_state <> 1 AND new_attempt = old_attempt
        OR new_token = old_token AND new_state = 1 AND old_state = 1 AND new_attempt = old_attempt)`
  ),
  check(
    "other",
    "a change is none of those that may happen",
    `SELECT job_id, CONCAT('from ', old_state, ' to ', new_state, ', token ', old_token, ' to ', new_token) AS detail
      FROM audit_changes WHERE act = 'update' AND NOT (
        ${claims} AND (old_state = 0 OR old_state = 1 AND old_cancel = 0) AND old_due <= at AND new_due > at
        OR old_state = 1 AND new_state = 1 AND new_token = old_token
        OR ${settles} AND (new_state = 4 OR old_cancel = 0)
        OR old_state = 1 AND new_state IN (3, 4) AND new_token = old_token + 1 AND (old_left = 0 OR old_cancel = 1)
        OR old_state = 0 AND new_state = 4 AND new_token = old_token + 1
        OR old_state IN (3, 4) AND new_state = 0 AND new_token = old_token + 1 AND new_cancel = 0)`
  ),
  check(
    "other",
    "a budget does not add up",
    `SELECT job_id, CONCAT(old_left, ' to ', new_left, ' in state ', new_state) AS detail FROM audit_changes
      WHERE act = 'update' AND max_attempts IS NOT NULL AND new_left <> CASE
        WHEN new_state = 1 AND new_token <> old_token THEN old_left - 1
        WHEN old_state IN (3, 4) AND new_state = 0 THEN max_attempts
        WHEN ${settles} AND JSON_VALUE(entry, '$.o') IN ('snoozed', 'released') THEN LEAST(max_attempts, old_left + 1)
        ELSE old_left END`
  ),
  check(
    "other",
    "the ledger and the row contradict each other",
    `SELECT job_id, CONCAT('state ', new_state, ', token ', new_token, ', ', entry) AS detail FROM audit_changes
      WHERE act = 'update' AND (
        ${claims} AND NOT (JSON_VALUE(entry, '$.t') = new_token AND JSON_VALUE(entry, '$.n') = new_attempt
          AND JSON_VALUE(entry, '$.w') = owner AND JSON_VALUE(entry, '$.o') IS NULL AND entries = LEAST(50, new_attempt))
        OR ${settles} AND NOT (JSON_VALUE(entry, '$.t') = new_token AND JSON_VALUE(entry, '$.e') IS NOT NULL
          AND COALESCE(JSON_VALUE(entry, '$.o'), '') IN (CASE new_state WHEN 2 THEN 'completed' WHEN 3 THEN 'dead'
            WHEN 4 THEN 'canceled' ELSE 'retry' END, IF(new_state = 0, 'snoozed', '-'), IF(new_state = 0, 'released', '-')))
        OR old_state = 1 AND new_state IN (3, 4) AND new_token = old_token + 1
          AND COALESCE(JSON_VALUE(entry, '$.o'), '') <> 'reaped')`
  ),
  check(
    "other",
    "a refused write was written after all",
    `SELECT refused.job_id, CONCAT(refused.verb, ' under token ', refused.token) AS detail FROM leasehold_refusals AS refused
      JOIN audit_changes AS changed ON changed.job_id = refused.job_id AND changed.new_token = refused.token
        AND changed.old_token = refused.token AND changed.old_state = 1 AND changed.new_state <> 1
        AND changed.at > refused.refused_at`
  )
]

const answers: ReadonlyArray<Check> = [
  check(
    "other",
    "one key had two jobs at once",
    `SELECT later.job_id, CONCAT('beside ', former.job_id) AS detail FROM audit_changes AS later
      JOIN audit_changes AS former ON former.scope_key = later.scope_key AND former.act = 'insert' AND later.act = 'insert'
        AND former.id < later.id
      LEFT JOIN audit_changes AS gone ON gone.job_id = former.job_id AND gone.act = 'delete' AND gone.id < later.id
      WHERE gone.id IS NULL`
  ),
  check(
    "other",
    "a single enqueue made two jobs",
    `SELECT MAX(job_id) AS job_id, CONCAT('ref ', ref) AS detail FROM audit_changes
      WHERE act = 'insert' AND scope_key IS NULL AND ref IS NOT NULL GROUP BY ref HAVING COUNT(*) > 1`
  ),
  check(
    "other",
    "an enqueue made a job although its caller was told that it did not, or had rolled it back",
    `SELECT born.job_id, CONCAT(answers.act, ' ', answers.answer) AS detail FROM audit_answers AS answers
      JOIN audit_changes AS born ON born.ref = answers.ref AND born.act = 'insert' AND born.scope_key IS NULL
      WHERE answers.answer IN ('refused', 'rolled back')`
  ),
  check(
    "other",
    "a job was committed without its caller's rows",
    `SELECT born.job_id, CONCAT('ref ', born.ref) AS detail FROM audit_answers AS answers
      JOIN audit_changes AS born ON born.ref = answers.ref AND born.act = 'insert'
      LEFT JOIN audit_orders AS orders ON orders.ref = answers.ref
      WHERE answers.act = 'transactional' AND orders.ref IS NULL`
  ),
  check(
    "other",
    "a cancel said that the job never runs, and it was not so canceled",
    `SELECT answers.job_id, answers.act AS detail FROM audit_answers AS answers
      LEFT JOIN audit_changes AS changed ON changed.job_id = answers.job_id AND changed.old_state = 0
        AND changed.new_state = 4 WHERE answers.act = 'cancel' AND answers.answer = 'canceled' AND changed.id IS NULL`
  )
]

export const all: ReadonlyArray<Check> = [...lost, ...ownership, ...terminal, ...effects, ...bookkeeping, ...answers]

/**
 * Late: what handlers did after somebody else had taken their job over. The library promises that it stops them in time
 * only where their process runs and its clocks do; what they write to others is for the token to refuse.
 */
export const lateEvents = `SELECT COUNT(*) AS count FROM audit_history AS late WHERE EXISTS (SELECT 1 FROM audit_changes AS taken
  WHERE taken.job_id = late.job_id AND taken.new_token > late.token AND taken.new_state = 1 AND taken.at < late.at)`
