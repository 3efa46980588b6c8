package operator

// Every statement on the queue's tables is in this file, each with the index
// that serves it, by the rules of backend/mysql/statements.go: all of them carry
// the tenant; what locks, changes or deletes rows names them by full primary
// key, one by one or as a [rowList]; times are the server's clock.
//
// Listings step: `> ? ORDER BY … LIMIT` finds the next topic, group or partition
// by a seek. GROUP BY would have the server skip from one to the next only if its
// statistics make rows of a group look many, and read all of them otherwise.

// As in backend/mysql.
const (
	nowMillis = `(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)`
	nowMicros = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

	// stmtNow is vtgate's clock on Vitess; stmtNowOf (PRIMARY, "no matching row") is
	// that of the server with the tenant's rows, by which their times are.
	stmtNow   = `SELECT ` + nowMillis
	stmtNowOf = `SELECT ` + nowMillis + ` FROM (SELECT COUNT(*) FROM queue_offsets FORCE INDEX (PRIMARY) WHERE tenant = ? AND topic = '') AS o`
)

const (
	ofTenant    = ` WHERE tenant = ?`
	ofTopic     = ` WHERE tenant = ? AND topic = ?`
	ofGroup     = ` WHERE tenant = ? AND consumer_group = ? AND topic = ?`
	ofPartition = ` WHERE tenant = ? AND topic = ? AND partition_key = ?`
	keyBehind   = ` AND partition_key > ?`
	keyPage     = ` ORDER BY partition_key LIMIT ?`
	keyIn       = ` AND partition_key IN `
)

// ---- Topics and groups ------------------------------------------------------

const (
	// stmtMessageTopic and stmtGroupTopic (PRIMARY) are followed by topicBehind
	// from the second step on, and nextTopic: one key read.
	stmtMessageTopic = `SELECT topic FROM queue_messages FORCE INDEX (PRIMARY)` + ofTenant
	stmtGroupTopic   = `SELECT topic FROM queue_offsets FORCE INDEX (PRIMARY)` + ofTenant
	topicBehind      = ` AND topic > ?`
	nextTopic        = ` ORDER BY topic LIMIT 1`

	// Steps to the next group of a topic with rows in a table (PRIMARY), in the
	// same way with pairBehind and nextPair.
	stmtLeasePair = `SELECT consumer_group, topic FROM queue_partition_leases FORCE INDEX (PRIMARY)` + ofTenant
	stmtStatePair = `SELECT consumer_group, topic FROM queue_delivery_state FORCE INDEX (PRIMARY)` + ofTenant
	stmtBeatPair  = `SELECT consumer_group, topic FROM queue_subscriber_heartbeats FORCE INDEX (PRIMARY)` + ofTenant
	pairBehind    = ` AND (consumer_group > ? OR (consumer_group = ? AND topic > ?))`
	nextPair      = ` ORDER BY consumer_group, topic LIMIT 1`

	// stmtRegistrations (PRIMARY) reads the groups of a topic.
	stmtRegistrations = `SELECT consumer_group, paused, updated_at, offset_acked FROM queue_offsets FORCE INDEX (PRIMARY)` + ofTopic +
		` AND partition_key = ''`

	// stmtCountMessages (uq_message, covering) reads as many entries as it
	// counts at most.
	stmtCountMessages = `SELECT COUNT(*) FROM (SELECT 1 FROM queue_messages FORCE INDEX (uq_message)` + ofTopic + ` LIMIT ?) AS m`
	stmtCountOfKey    = `SELECT COUNT(*) FROM (SELECT 1 FROM queue_messages FORCE INDEX (uq_message)` + ofPartition + ` LIMIT ?) AS m`
)

// ---- Partitions -------------------------------------------------------------

const (
	// stmtKeys (uq_message, covering) is followed by keyBehind from the second
	// page on, and keyPage. It has an entry a message: what comes after a page
	// begins with the next partition.
	stmtKeys = `SELECT partition_key FROM queue_messages FORCE INDEX (uq_message)` + ofTopic

	// stmtCountKeys is put around a page of stmtKeys.
	stmtCountKeys = `SELECT COUNT(DISTINCT p.partition_key), COUNT(*), COALESCE(MAX(p.partition_key), '') FROM (`
	countKeysEnd  = `) AS p`

	// stmtEnds (PRIMARY, "Select tables optimized away") is two key reads; a
	// UNION ALL of one each.
	stmtEnds = "(SELECT ?, MIN(`offset`), MAX(`offset`) FROM queue_messages FORCE INDEX (PRIMARY)" + ofPartition + ")"

	// stmtMarks (PRIMARY) is followed by a list of partition keys.
	stmtMarks = `SELECT partition_key, offset_acked FROM queue_offsets FORCE INDEX (PRIMARY)` + ofTopic + ` AND consumer_group = ?` + keyIn

	// stmtMarkAges (PRIMARY) is followed by a list of partition keys. It tells when
	// a watermark has moved last.
	stmtMarkAges = `SELECT partition_key, offset_acked, ` + nowMillis + ` - updated_at FROM queue_offsets FORCE INDEX (PRIMARY)` + ofTopic +
		` AND consumer_group = ?` + keyIn

	// stmtPending (PRIMARY of both, "Not exists") reads as many messages above a
	// watermark as it counts at most, and leaves out what the group has settled
	// ahead of it; a UNION ALL of one each.
	stmtPending = "(SELECT ?, COUNT(*), COALESCE(MAX(p.age), 0) FROM (SELECT " + nowMillis + " - m.published_at AS age" +
		" FROM queue_messages AS m FORCE INDEX (PRIMARY) LEFT JOIN queue_delivery_state AS s FORCE INDEX (PRIMARY)" +
		" ON s.tenant = m.tenant AND s.consumer_group = ? AND s.topic = m.topic AND s.partition_key = m.partition_key" +
		" AND s.message_offset = m.`offset` AND s.acked = 1" +
		" WHERE m.tenant = ? AND m.topic = ? AND m.partition_key = ? AND m.`offset` > ? AND m.target_group IN ('', ?) AND s.tenant IS NULL" +
		" LIMIT ?) AS p)"
)

// stmtHead (PRIMARY of both) reads the messages above a watermark up to the first
// that the group has not settled, with what is known of it; a UNION ALL of one
// each.
const stmtHead = "(SELECT ?, m.`offset`, m.id, " + nowMillis + " - m.published_at, s.tenant IS NOT NULL, COALESCE(s.attempts, 0)," +
	" COALESCE(s.visible_at, 0) - " + nowMillis + ", COALESCE(s.last_error, '')" +
	" FROM queue_messages AS m FORCE INDEX (PRIMARY) LEFT JOIN queue_delivery_state AS s FORCE INDEX (PRIMARY)" +
	" ON s.tenant = m.tenant AND s.consumer_group = ? AND s.topic = m.topic AND s.partition_key = m.partition_key AND s.message_offset = m.`offset`" +
	" WHERE m.tenant = ? AND m.topic = ? AND m.partition_key = ? AND m.`offset` > ? AND m.target_group IN ('', ?) AND COALESCE(s.acked, 0) = 0" +
	" ORDER BY m.`offset` LIMIT 1)"

// stmtTargets (PRIMARY) looks at the first rows of a topic for messages that go to
// one group only.
const stmtTargets = `SELECT m.target_group, COUNT(*), MIN(m.partition_key), MIN(m.id) FROM (SELECT target_group, partition_key, id
 FROM queue_messages FORCE INDEX (PRIMARY)` + ofTopic + ` LIMIT ?) AS m WHERE m.target_group <> '' GROUP BY m.target_group ORDER BY m.target_group`

// stmtLag (PRIMARY of all, "Not exists") reads all messages of a topic, with the
// group's watermark of each one's partition and what it has settled ahead.
const stmtLag = "SELECT COUNT(*), COALESCE(MAX(" + nowMillis + " - m.published_at), 0)" +
	" FROM queue_messages AS m FORCE INDEX (PRIMARY) LEFT JOIN queue_offsets AS o FORCE INDEX (PRIMARY)" +
	" ON o.tenant = m.tenant AND o.topic = m.topic AND o.partition_key = m.partition_key AND o.consumer_group = ?" +
	" LEFT JOIN queue_delivery_state AS s FORCE INDEX (PRIMARY)" +
	" ON s.tenant = m.tenant AND s.consumer_group = ? AND s.topic = m.topic AND s.partition_key = m.partition_key" +
	" AND s.message_offset = m.`offset` AND s.acked = 1" +
	" WHERE m.tenant = ? AND m.topic = ? AND m.`offset` > COALESCE(o.offset_acked, ?) AND m.target_group IN ('', ?) AND s.tenant IS NULL"

// ---- Leases and subscribers -------------------------------------------------

const (
	// stmtLeases (PRIMARY) is followed by ifStale, keyBehind, and keyPage, or by
	// a list of partition keys.
	stmtLeases = `SELECT partition_key, leased_by, lease_epoch, leased_at, lease_expires_at - ` + nowMillis + `, lease_expires_at > 0,
 claimed_offset, suspect_offset FROM queue_partition_leases FORCE INDEX (PRIMARY)` + ofGroup
	ifStale = ` AND lease_expires_at > 0 AND lease_expires_at <= ` + nowMillis
	ifHeld  = ` AND lease_expires_at > ` + nowMillis

	// stmtCountLeases (PRIMARY) reads as many leases as it counts at most.
	stmtCountLeases = `SELECT COUNT(*) FROM (SELECT 1 FROM queue_partition_leases FORCE INDEX (PRIMARY)` + ofGroup
	countLeasesEnd  = ` LIMIT ?) AS l`

	// stmtOwners (PRIMARY) passes over the leases that were given back, and reads
	// as many others as it counts at most.
	stmtOwners = `SELECT l.leased_by, SUM(l.held), SUM(1 - l.held) FROM (SELECT leased_by, lease_expires_at > ` + nowMillis + ` AS held
 FROM queue_partition_leases FORCE INDEX (PRIMARY)` + ofGroup + ` AND lease_expires_at > 0 LIMIT ?) AS l GROUP BY l.leased_by`

	// stmtSubscribers (PRIMARY) is followed by nameBehind and namePage.
	stmtSubscribers = `SELECT subscriber_name, started_at, ` + nowMillis + ` - heartbeat_at, expires_at > ` + nowMillis + `
 FROM queue_subscriber_heartbeats FORCE INDEX (PRIMARY)` + ofGroup
	nameBehind = ` AND subscriber_name > ?`
	namePage   = ` ORDER BY subscriber_name LIMIT ?`

	// stmtCountAlive (PRIMARY) reads the members of one group.
	stmtCountAlive = `SELECT COUNT(*) FROM queue_subscriber_heartbeats FORCE INDEX (PRIMARY)` + ofGroup + ` AND expires_at > ` + nowMillis

	// stmtEndLease (PRIMARY) locks one record. The epoch rises, so that nothing its
	// owner sends counts any more, and the lease is free at once. The assignments
	// run from left to right.
	stmtEndLease = `UPDATE queue_partition_leases SET `
	keepSuspects = `suspect_offset = GREATEST(suspect_offset, claimed_offset), `
	endLeaseSet  = `lease_epoch = GREATEST(lease_epoch + 1, ` + nowMicros + `), claimed_offset = 0, lease_expires_at = 0`
	ofLease      = ofGroup + ` AND partition_key = ? AND lease_expires_at > 0`
	ifEpoch      = ` AND lease_epoch = ? AND lease_expires_at <= ` + nowMillis
)

// ---- Messages and dead letters ----------------------------------------------

const (
	messageColumns = "partition_key, `offset`, id, published_at, target_group, original_topic, original_id, original_offset," +
		" failed_group, failed_at, failure_count, last_error"

	// stmtHasDead (PRIMARY) looks at the first rows of a topic.
	stmtHasDead = `SELECT COUNT(*) FROM (SELECT original_topic FROM queue_messages FORCE INDEX (PRIMARY)` + ofTopic +
		` LIMIT ?) AS m WHERE m.original_topic <> ''`

	// stmtDead (PRIMARY) is followed by deadBehind from the second page on, and
	// deadPage.
	stmtDead   = `SELECT ` + messageColumns + ` FROM queue_messages FORCE INDEX (PRIMARY)` + ofTopic + ` AND original_topic <> ''`
	deadBehind = " AND (partition_key > ? OR (partition_key = ? AND `offset` > ?))"
	deadPage   = " ORDER BY partition_key, `offset` LIMIT ?"

	// stmtCountDead (PRIMARY) reads as many rows as it counts at most. Its group
	// is "" for all.
	stmtCountDead = `SELECT COUNT(*), COALESCE(SUM(m.original_topic <> '' AND (? = '' OR m.failed_group = ?)), 0)
 FROM (SELECT original_topic, failed_group FROM queue_messages FORCE INDEX (PRIMARY)` + ofTopic + ` LIMIT ?) AS m`

	// stmtOldestDead (PRIMARY) reads all of a topic and sorts it: no index has
	// the order of time. It is followed by ofFailed and oldestPage. What fails
	// after the time given is not in it.
	stmtOldestDead = "SELECT partition_key, id, `offset` FROM queue_messages FORCE INDEX (PRIMARY)" + ofTopic +
		" AND original_topic <> '' AND failed_at <= ? AND `offset` > ?"
	ofFailed   = ` AND failed_group = ?`
	oldestPage = " ORDER BY `offset` LIMIT ?"

	// stmtDestinations (PRIMARY) reads all of a topic. It is followed by ofFailed
	// for one group, and destinationsEnd.
	stmtDestinations = `SELECT original_topic, failed_group, COUNT(*) FROM queue_messages FORCE INDEX (PRIMARY)` + ofTopic +
		` AND original_topic <> ''`
	destinationsEnd = ` GROUP BY original_topic, failed_group ORDER BY original_topic, failed_group`

	// stmtDestination (uq_message) is one key read.
	stmtDestination = `SELECT original_topic, failed_group FROM queue_messages FORCE INDEX (uq_message)` + ofPartition + ` AND id = ?`

	// stmtMessage and stmtMessageAt (uq_message) are one key read.
	stmtMessage   = `SELECT ` + messageColumns + `, payload, metadata, publish_id FROM queue_messages FORCE INDEX (uq_message)` + ofPartition + ` AND id = ?`
	stmtMessageAt = "SELECT `offset` FROM queue_messages FORCE INDEX (uq_message)" + ofPartition + ` AND id = ?`

	// stmtState (PRIMARY) is one key read.
	stmtState = `SELECT acked, postponed, attempts, deliveries, visible_at - ` + nowMillis + `, last_error
 FROM queue_delivery_state FORCE INDEX (PRIMARY)` + ofState
	ofState = ofGroup + ` AND partition_key = ? AND message_offset = ?`

	// stmtDropState and stmtDropMessage (PRIMARY) lock one record.
	stmtDropState   = `DELETE FROM queue_delivery_state` + ofState
	stmtDropMessage = "DELETE FROM queue_messages" + ofPartition + " AND `offset` = ?"
)

// ---- Purge ------------------------------------------------------------------

const (
	// stmtTake is followed by rows of takeRow and takeEnd. It ends the leases of
	// partitions and, since it makes those that are missing, keeps anybody else
	// from taking one before commit.
	stmtTake = `INSERT INTO queue_partition_leases
 (tenant, consumer_group, topic, partition_key, leased_by, lease_epoch, instance, leased_at, lease_expires_at) VALUES `
	takeRow = `(?, ?, ?, ?, '', ` + nowMicros + `, 0, ` + nowMillis + `, 0)`
	takeEnd = ` ON DUPLICATE KEY UPDATE lease_epoch = GREATEST(lease_epoch + 1, VALUES(lease_epoch)), claimed_offset = 0, lease_expires_at = 0`

	// stmtUpTo (PRIMARY) is followed by an OR-list of upTo and upToPage.
	stmtUpTo = "SELECT partition_key, `offset` FROM queue_messages FORCE INDEX (PRIMARY)" + ofTopic + ` AND (`
	upTo     = "(partition_key = ? AND `offset` <= ?)"
	upToPage = ") ORDER BY partition_key, `offset` LIMIT ?"

	// stmtStatesUpTo (PRIMARY) is followed by an OR-list of stateUpTo and
	// statesPage.
	stmtStatesUpTo = `SELECT partition_key, message_offset FROM queue_delivery_state FORCE INDEX (PRIMARY)` + ofGroup + ` AND (`
	stateUpTo      = `(partition_key = ? AND message_offset <= ?)`
	statesPage     = `) ORDER BY partition_key, message_offset LIMIT ?`

	// Partitions that have no messages and other rows of a group (PRIMARY), each
	// followed by keyBehind from the second page on, and keyPage.
	stmtMarkKeys  = `SELECT partition_key FROM queue_offsets FORCE INDEX (PRIMARY)` + ofTopic + ` AND partition_key <> ''`
	stmtLeaseKeys = `SELECT partition_key FROM queue_partition_leases FORCE INDEX (PRIMARY)` + ofGroup
	stmtStateKeys = `SELECT partition_key FROM queue_delivery_state FORCE INDEX (PRIMARY)` + ofGroup

	// stmtMarkGroups (PRIMARY) is followed by a list of partition keys.
	stmtMarkGroups = `SELECT consumer_group FROM queue_offsets FORCE INDEX (PRIMARY)` + ofTopic + keyIn

	// stmtCountStates (PRIMARY) reads as many rows as it counts at most; it is
	// followed by ofKey for one partition, and countEnd.
	stmtCountStates = `SELECT COUNT(*) FROM (SELECT 1 FROM queue_delivery_state FORCE INDEX (PRIMARY)` + ofGroup
	ofKey           = ` AND partition_key = ?`
	countEnd        = ` LIMIT ?) AS s`
)

// The lists, each over the primary key of its table.
var (
	messageList = rowList{table: "queue_messages", fixed: "tenant = ? AND topic = ?", columns: []string{"partition_key", "`offset`"}}
	stateList   = rowList{
		table: "queue_delivery_state", fixed: "tenant = ? AND consumer_group = ? AND topic = ?", columns: []string{"partition_key", "message_offset"},
	}
	markList  = rowList{table: "queue_offsets", fixed: "tenant = ? AND topic = ? AND consumer_group = ?", columns: []string{"partition_key"}}
	leaseList = rowList{
		table: "queue_partition_leases", fixed: "tenant = ? AND consumer_group = ? AND topic = ?", columns: []string{"partition_key"},
	}
	// takenList are the leases that stmtTake has made.
	takenList = rowList{
		table: "queue_partition_leases", fixed: "leased_by = '' AND tenant = ? AND consumer_group = ? AND topic = ?", columns: []string{"partition_key"},
	}
)

// ---- Server -----------------------------------------------------------------

// These have no tenant. On Vitess they go to one shard after the other, see
// [examination.eachServer]. Those on information_schema see other sessions only
// with the privilege PROCESS.
const (
	// stmtShards is what only vtgate understands.
	stmtShards   = `SHOW VITESS_SHARDS`
	stmtDatabase = `SELECT DATABASE()`

	// stmtUse is followed by a shard. Statements on the connection go there.
	stmtUse = `USE `

	// stmtVariables reads variables that exist under different names on different
	// servers.
	stmtVariables = `SHOW SESSION VARIABLES WHERE Variable_name IN ('version', 'version_comment', 'transaction_isolation', 'tx_isolation',
 'sql_mode', 'max_allowed_packet', 'read_only', 'super_read_only', 'innodb_read_only')`

	stmtTransactions = `SELECT t.trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, t.trx_started, NOW()), t.trx_rows_locked, t.trx_rows_modified,
 COALESCE(p.user, ''), COALESCE(p.host, '')
 FROM information_schema.innodb_trx AS t LEFT JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id
 WHERE t.trx_started <= NOW() - INTERVAL ? SECOND ORDER BY t.trx_started LIMIT 20`

	stmtHistory      = `SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'` // MariaDB
	stmtHistoryMySQL = `SELECT name, count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'`

	stmtSizes = `SELECT table_name, COALESCE(table_rows, 0), COALESCE(data_length, 0) + COALESCE(index_length, 0), COALESCE(data_free, 0)
 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE 'queue\_%' ORDER BY table_name`

	stmtUser = `SELECT CURRENT_USER()`

	stmtReplica    = `SHOW REPLICA STATUS`
	stmtReplicaOld = `SHOW SLAVE STATUS` // MySQL before 8.0.22
)

// stmtWriteProbes need the privileges to write, and do nothing: see
// [examination.privileges].
var stmtWriteProbes = []string{
	`INSERT INTO queue_messages SELECT * FROM queue_messages WHERE FALSE`,
	`UPDATE queue_messages SET target_group = '' WHERE FALSE`,
	`DELETE FROM queue_messages WHERE FALSE`,
	`INSERT INTO queue_delivery_state SELECT * FROM queue_delivery_state WHERE FALSE`,
	`UPDATE queue_delivery_state SET acked = 0 WHERE FALSE`,
	`DELETE FROM queue_delivery_state WHERE FALSE`,
	`INSERT INTO queue_offsets SELECT * FROM queue_offsets WHERE FALSE`,
	`UPDATE queue_offsets SET paused = 0 WHERE FALSE`,
	`DELETE FROM queue_offsets WHERE FALSE`,
	`INSERT INTO queue_partition_leases SELECT * FROM queue_partition_leases WHERE FALSE`,
	`UPDATE queue_partition_leases SET instance = 0 WHERE FALSE`,
	`DELETE FROM queue_partition_leases WHERE FALSE`,
	`INSERT INTO queue_subscriber_heartbeats SELECT * FROM queue_subscriber_heartbeats WHERE FALSE`,
	`UPDATE queue_subscriber_heartbeats SET expires_at = 0 WHERE FALSE`,
	`DELETE FROM queue_subscriber_heartbeats WHERE FALSE`,
}
