-- Queues that somebody paused. A queue without a row is open.
CREATE TABLE {prefix}queues (
  name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  paused TINYINT UNSIGNED NOT NULL DEFAULT 0,
  changed_at DATETIME(6) NOT NULL,
  PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin
