package main

// The statements of this tool, each with the index that serves it, by the rules
// of internal/operator/statements.go. They are for what stands in one partition
// in the order of its offsets, which package operator does not list.

const nowMillis = `(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)`

const (
	// stmtOfPartition (PRIMARY) reads as many rows as it returns.
	stmtOfPartition = "SELECT `offset`, id, published_at FROM queue_messages FORCE INDEX (PRIMARY)" +
		" WHERE tenant = ? AND topic = ? AND partition_key = ? AND `offset` > ? ORDER BY `offset` LIMIT ?"

	// stmtGroups (PRIMARY) reads the groups registered for a topic.
	stmtGroups = `SELECT consumer_group, offset_acked FROM queue_offsets FORCE INDEX (PRIMARY)` +
		` WHERE tenant = ? AND topic = ? AND partition_key = '' ORDER BY consumer_group`

	// stmtStates (PRIMARY) reads what a group knows of a run of messages.
	stmtStates = `SELECT message_offset, acked, postponed, attempts, visible_at - ` + nowMillis + `, COALESCE(last_error, '')` +
		` FROM queue_delivery_state FORCE INDEX (PRIMARY)` +
		` WHERE tenant = ? AND consumer_group = ? AND topic = ? AND partition_key = ? AND message_offset BETWEEN ? AND ?`

	// stmtHead (PRIMARY of all) reads what the group has settled ahead of its
	// watermark, and the first message that it has not.
	stmtHead = "SELECT m.`offset`, m.id, " + nowMillis + " - m.published_at" +
		" FROM queue_messages AS m FORCE INDEX (PRIMARY) LEFT JOIN queue_delivery_state AS s FORCE INDEX (PRIMARY)" +
		" ON s.tenant = m.tenant AND s.consumer_group = ? AND s.topic = m.topic AND s.partition_key = m.partition_key" +
		" AND s.message_offset = m.`offset` AND s.acked = 1" +
		" WHERE m.tenant = ? AND m.topic = ? AND m.partition_key = ? AND m.`offset` > ? AND m.target_group IN ('', ?) AND s.tenant IS NULL" +
		" ORDER BY m.`offset` LIMIT 1"

	// stmtMark (PRIMARY) is one key read.
	stmtMark = `SELECT offset_acked FROM queue_offsets FORCE INDEX (PRIMARY)` +
		` WHERE tenant = ? AND topic = ? AND partition_key = ? AND consumer_group = ?`
)
