-- +goose NO TRANSACTION
-- +goose Up

-- DDL commits by itself: a run cut short must be able to start again, hence
-- IF NOT EXISTS.

-- Messages in order of offset within (tenant, topic, partition_key).
-- PRIMARY serves discovery (group-by skip scan), fetch, the watermark and every delete.
-- uq_message serves idempotent publish and the receipts of repeats.
-- idx_offset is required by InnoDB for the AUTO_INCREMENT column; with publish_id it tells what a publish has stored.
CREATE TABLE IF NOT EXISTS queue_messages (
  tenant          VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  topic           VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  partition_key   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `offset`        BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  id              VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  payload         MEDIUMBLOB NOT NULL,
  metadata        JSON NOT NULL,
  published_at    BIGINT NOT NULL,                   -- epoch milliseconds, as all times here
  publish_id      BIGINT UNSIGNED NOT NULL,          -- one a publish: tells a new row from a repeat
  target_group    VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '', -- redriven: for this group only
  original_topic  VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '', -- set on dead letters, as all below
  original_id     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '', -- also on redriven messages
  original_offset BIGINT UNSIGNED NOT NULL DEFAULT 0,
  failed_group    VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  failed_at       BIGINT NOT NULL DEFAULT 0,
  failure_count   INT UNSIGNED NOT NULL DEFAULT 0,
  last_error      TEXT NULL,
  PRIMARY KEY (tenant, topic, partition_key, `offset`),
  UNIQUE KEY uq_message (tenant, topic, partition_key, id),
  KEY idx_offset (`offset`, publish_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- What a group knows of a message it has not passed: failures, postponements,
-- and settlements ahead of the watermark. Most messages never have a row.
CREATE TABLE IF NOT EXISTS queue_delivery_state (
  tenant          VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  consumer_group  VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  topic           VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  partition_key   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  message_offset  BIGINT UNSIGNED NOT NULL,
  acked           TINYINT(1) NOT NULL DEFAULT 0,
  postponed       TINYINT(1) NOT NULL DEFAULT 0,     -- the partition waits for it
  attempts        INT UNSIGNED NOT NULL DEFAULT 0,   -- charged to the retry policy
  deliveries      INT UNSIGNED NOT NULL DEFAULT 0,   -- times it may have been handed over
  visible_at      BIGINT NOT NULL DEFAULT 0,
  last_error      TEXT NULL,
  PRIMARY KEY (tenant, consumer_group, topic, partition_key, message_offset)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Watermarks. The row with an empty partition_key registers the group for
-- (tenant, topic) and holds the position of partitions without a row.
CREATE TABLE IF NOT EXISTS queue_offsets (
  tenant          VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  topic           VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  partition_key   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  consumer_group  VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  offset_acked    BIGINT UNSIGNED NOT NULL,
  paused          TINYINT(1) NOT NULL DEFAULT 0,
  updated_at      BIGINT NOT NULL,
  PRIMARY KEY (tenant, topic, partition_key, consumer_group)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Who works on a partition. lease_epoch rises with every change of owner, also
-- across a deletion of the row, since it starts from the clock.
CREATE TABLE IF NOT EXISTS queue_partition_leases (
  tenant           VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  consumer_group   VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  topic            VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  partition_key    VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  leased_by        VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  lease_epoch      BIGINT UNSIGNED NOT NULL,
  instance         BIGINT UNSIGNED NOT NULL,         -- tells two subscribers of one name apart
  leased_at        BIGINT NOT NULL,
  lease_expires_at BIGINT NOT NULL,                  -- 0: released
  claimed_offset   BIGINT UNSIGNED NOT NULL DEFAULT 0, -- the owner may have handed over messages up to here
  suspect_offset   BIGINT UNSIGNED NOT NULL DEFAULT 0, -- an owner that vanished may have
  PRIMARY KEY (tenant, consumer_group, topic, partition_key)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS queue_subscriber_heartbeats (
  tenant           VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  consumer_group   VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  topic            VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  subscriber_name  VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  started_at       BIGINT NOT NULL,
  heartbeat_at     BIGINT NOT NULL,
  expires_at       BIGINT NOT NULL,
  PRIMARY KEY (tenant, consumer_group, topic, subscriber_name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS queue_subscriber_heartbeats;
DROP TABLE IF EXISTS queue_partition_leases;
DROP TABLE IF EXISTS queue_offsets;
DROP TABLE IF EXISTS queue_delivery_state;
DROP TABLE IF EXISTS queue_messages;
