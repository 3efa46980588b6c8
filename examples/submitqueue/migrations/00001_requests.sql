-- +goose Up

-- Every key leads with queue, the shard key, as in the message queue's tables.
CREATE TABLE submit_requests (
  queue       VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  change_name VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  state       VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (queue, change_name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE submit_history (
  queue       VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  change_name VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  step        TINYINT UNSIGNED NOT NULL, -- one entry a step: a request ends once
  state       VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  at          BIGINT NOT NULL,           -- epoch milliseconds
  detail      TEXT NOT NULL,
  PRIMARY KEY (queue, change_name, step)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE submit_history;
DROP TABLE submit_requests;
