-- One row per job. {prefix} stands for the prefix of the table names.
-- due_at is when the row may be claimed: pending, its time to run; running, the end of its lease; ended, NULL. So one index
-- serves new, retried and expired jobs alike, and ended ones leave it. The CHECK catches an interval that overflowed to NULL.
CREATE TABLE {prefix}jobs (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  queue VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  type VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  priority TINYINT UNSIGNED NOT NULL DEFAULT 5 COMMENT '0 runs first, 9 last',
  state TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '0 pending, 1 running, 2 succeeded, 3 dead, 4 canceled',
  due_at DATETIME(6) NULL,
  token BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'fencing token',
  attempt INT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'attempts started, never lowered',
  attempts_left SMALLINT UNSIGNED NULL COMMENT 'NULL: unlimited',
  max_attempts SMALLINT UNSIGNED NULL COMMENT 'NULL: unlimited',
  cancel_requested TINYINT UNSIGNED NOT NULL DEFAULT 0,
  lease_owner VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  payload_version SMALLINT UNSIGNED NOT NULL DEFAULT 1,
  scope VARBINARY(255) NOT NULL DEFAULT '' COMMENT 'UTF-8 bytes',
  idempotency_key VARBINARY(255) NULL COMMENT 'UTF-8 bytes; NULL: none',
  request_hash BINARY(32) NULL COMMENT 'SHA-256 of type, queue and canonical payload',
  error_code VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin NULL,
  error_message VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin NULL,
  enqueued_at DATETIME(6) NOT NULL,
  first_due_at DATETIME(6) NOT NULL COMMENT 'as it was asked for',
  finished_at DATETIME(6) NULL,
  trace_context VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NULL,
  payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin NULL,
  output LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin NULL,
  attempts JSON NOT NULL DEFAULT (JSON_ARRAY()) COMMENT 'the ledger: the last 50 attempts',
  PRIMARY KEY (id),
  UNIQUE KEY jobs_idempotency (scope, idempotency_key),
  KEY jobs_claim (queue, priority, due_at),
  CONSTRAINT {prefix}jobs_due CHECK ((due_at IS NOT NULL) = (state IN (0, 1)))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin
