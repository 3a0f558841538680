-- Late writes of holders that had lost their lease: refused, and kept here for whoever asks why.
CREATE TABLE {prefix}refusals (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  job_id BIGINT UNSIGNED NOT NULL,
  token BIGINT UNSIGNED NOT NULL,
  verb VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  worker VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  refused_at DATETIME(6) NOT NULL,
  PRIMARY KEY (id),
  KEY refusals_job (job_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin
