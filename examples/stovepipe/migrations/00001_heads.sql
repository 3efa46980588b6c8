-- +goose Up

-- Every key leads with queue, the shard key, as in the message queue's tables.
-- last_green serves "the last green commit of a queue".
CREATE TABLE stovepipe_heads (
  queue     VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  commit_id VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  state     VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  position  BIGINT UNSIGNED NOT NULL DEFAULT 0, -- in the order of ingestion, once decided
  detail    TEXT NOT NULL,
  PRIMARY KEY (queue, commit_id),
  KEY last_green (queue, state, position)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE stovepipe_heads;
