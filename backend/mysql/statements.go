package mysql

// Every statement of this backend is in this file, each with the index that
// serves it. All but those that look at the server carry the tenant, so that
// Vitess sends them to one shard.

// ---- Server and schema ------------------------------------------------------

const (
	// stmtIsolation is understood by every server, unlike the variable.
	stmtIsolation = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"

	// stmtSettings reads session variables that exist under different names on
	// different servers.
	stmtSettings = `SHOW SESSION VARIABLES WHERE Variable_name IN ('version', 'transaction_isolation', 'tx_isolation', 'autocommit',
  'sql_mode', 'max_allowed_packet', 'character_set_client', 'character_set_connection', 'character_set_results')`

	// stmtShards is what only vtgate understands.
	stmtShards = "SHOW VITESS_SHARDS"

	// stmtDatabase tells on Vitess the target of the connection.
	stmtDatabase = "SELECT DATABASE()"

	stmtEngines = `SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE()`

	// stmtVersionTable makes the table that goose would make.
	stmtVersionTable = `CREATE TABLE IF NOT EXISTS ` + versionTable + ` (
  id         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  version_id BIGINT NOT NULL,
  is_applied BOOLEAN NOT NULL,
  tstamp     DATETIME NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (id)
)`
	stmtRecordVersion = `INSERT INTO ` + versionTable + ` (version_id, is_applied) VALUES (%d, TRUE)`
	stmtSchemaVersion = `SELECT MAX(version_id) FROM ` + versionTable

	// The lock's name carries the database, within the 64 characters of MySQL.
	stmtLockMigration   = `SELECT GET_LOCK(CONCAT('mq_schema ', MD5(DATABASE())), 5)`
	stmtUnlockMigration = `DO RELEASE_LOCK(CONCAT('mq_schema ', MD5(DATABASE())))`
)

// stmtProbes fail on a missing table or column. PRIMARY; they read no row.
var stmtProbes = []string{
	"SELECT topic, partition_key, `offset`, id, payload, metadata, published_at, publish_id, target_group, original_topic, original_id, " +
		"original_offset, failed_group, failed_at, failure_count, last_error FROM queue_messages WHERE tenant = '' LIMIT 1",
	"SELECT consumer_group, topic, partition_key, message_offset, acked, postponed, attempts, deliveries, visible_at, last_error " +
		"FROM queue_delivery_state WHERE tenant = '' LIMIT 1",
	"SELECT topic, partition_key, consumer_group, offset_acked, paused, updated_at FROM queue_offsets WHERE tenant = '' LIMIT 1",
	"SELECT consumer_group, topic, partition_key, leased_by, lease_epoch, instance, leased_at, lease_expires_at, claimed_offset, suspect_offset " +
		"FROM queue_partition_leases WHERE tenant = '' LIMIT 1",
	"SELECT consumer_group, topic, subscriber_name, started_at, heartbeat_at, expires_at FROM queue_subscriber_heartbeats WHERE tenant = '' LIMIT 1",
}

// ---- Publish ----------------------------------------------------------------

// nowMillis is the server's clock in epoch milliseconds, whatever the session's
// time zone.
const nowMillis = `(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)`

const (
	// stmtInsert is followed by rows of [insertRow] and stmtInsertEnd, which
	// makes a repeated id (uq_message) a success that writes nothing.
	stmtInsert = `INSERT INTO queue_messages (tenant, topic, partition_key, id, payload, metadata, published_at, publish_id) VALUES `
	insertRow  = `(?, ?, ?, ?, ?, ?, ` + nowMillis + `, ?)`

	insertParams = 7 // of a row

	stmtInsertEnd = ` ON DUPLICATE KEY UPDATE id = id`

	readBackColumns = "SELECT topic, partition_key, id, `offset`, publish_id FROM queue_messages "

	// stmtCountNew (idx_offset, covering) counts what an INSERT has stored among
	// the offsets that were allocated to it. It may be followed by alsoFence, an
	// OR-list of fenceTerm and a closing parenthesis: [stmtFence] by the same round
	// trip. Its own row has no topic.
	stmtCountNew = "SELECT '' AS topic, '' AS partition_key, COUNT(*) AS rows_new, COALESCE(MIN(`offset`), 0) AS low, COALESCE(MAX(`offset`), 0) AS high" +
		" FROM queue_messages FORCE INDEX (idx_offset) WHERE tenant = ? AND `offset` BETWEEN ? AND ? AND publish_id = ?"
	alsoFence = " UNION ALL SELECT topic, partition_key, 0, offset_acked, 0 FROM queue_offsets FORCE INDEX (PRIMARY) WHERE tenant = ? AND offset_acked >= ? AND ("

	// stmtReadNew (idx_offset) reads them, where the counting leaves a doubt.
	stmtReadNew = readBackColumns + "FORCE INDEX (idx_offset) WHERE tenant = ? AND `offset` BETWEEN ? AND ? AND publish_id = ?"

	// stmtReadBack (uq_message) is followed by an OR-list of readBackTerm, each
	// going on with more ids. The index is forced because the backlog of a
	// partition would look cheaper to scan than a long list to look up.
	stmtReadBack = readBackColumns + "FORCE INDEX (uq_message) WHERE tenant = ? AND ("
	readBackTerm = "(topic = ? AND partition_key = ? AND id IN (?"

	// lockInShare makes stmtReadBack see what an older snapshot hides.
	lockInShare = " LOCK IN SHARE MODE"

	// stmtFence (PRIMARY) is followed by an OR-list of fenceTerm, each going on
	// with more partition keys. '' is the row that registers a group.
	stmtFence = "SELECT topic, partition_key, offset_acked FROM queue_offsets FORCE INDEX (PRIMARY) WHERE tenant = ? AND offset_acked >= ? AND ("
	fenceTerm = "(topic = ? AND partition_key IN ('', ?"

	// stmtTail (PRIMARY) is one key read.
	stmtTail = "SELECT COALESCE(MAX(`offset`), 0) FROM queue_messages WHERE tenant = ? AND topic = ? AND partition_key = ?"

	// stmtRaise raises the counter of offsets; the row itself is rolled back.
	stmtRaise = "INSERT INTO queue_messages (tenant, topic, partition_key, `offset`, id, payload, metadata, published_at, publish_id) " +
		"VALUES (?, ?, ?, ?, ?, '', '{}', 0, 0)"

	stmtSavepoint        = "SAVEPOINT mq_publish"
	stmtRollbackTo       = "ROLLBACK TO SAVEPOINT mq_publish"
	stmtReleaseSavepoint = "RELEASE SAVEPOINT mq_publish"
)

// Statements that lock, change or delete a list of rows ([rowList]) join the
// table to the list, "(SELECT ? AS k, ? AS n UNION ALL …) AS v": every row is
// then looked up by its full primary key (eq_ref), which locks the record and
// nothing else. With an OR-list or IN the optimizer decides by cost, and in a
// table that holds little more than the list it scans the topic, or the table,
// and waits for every publisher on its way. STRAIGHT_JOIN keeps the order, FORCE
// INDEX the key.
//
// Vitess refuses such joins in a DELETE and plans them without the lock in a
// SELECT ... FOR UPDATE, so it gets the OR-list. Its DELETE of messages has the
// number of rows for LIMIT: one below what the statistics take the table to hold
// keeps MariaDB from scanning it. Plain reads lock nothing; their lists are IN
// and OR.

// The lists, each over the primary key of its table. columns name the rows;
// epoch and watermark are compared so that a row that has changed meanwhile
// stays.
var (
	leaseList = rowList{
		table: "queue_partition_leases", fixed: "tenant = ? AND consumer_group = ? AND topic = ?",
		columns: []string{"partition_key", "lease_epoch"},
	}
	leaseKeyList = rowList{
		table: "queue_partition_leases", fixed: "tenant = ? AND consumer_group = ? AND topic = ?",
		columns: []string{"partition_key"},
	}
	messageList = rowList{
		table: "queue_messages", fixed: "tenant = ? AND topic = ?",
		columns: []string{"partition_key", "`offset`"},
	}
	stateList = rowList{
		table: "queue_delivery_state", fixed: "tenant = ? AND consumer_group = ? AND topic = ?",
		columns: []string{"partition_key", "message_offset"},
	}
	markList = rowList{
		table: "queue_offsets", fixed: "tenant = ? AND topic = ? AND consumer_group = ?",
		columns: []string{"partition_key", "offset_acked"},
	}
)

// ---- Delivery: members ------------------------------------------------------

// nowMicros is where epochs start from, so that none repeats after its row was
// deleted.
const nowMicros = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

// ofGroup is how a group's own rows of a topic begin, in three tables.
const ofGroup = ` WHERE tenant = ? AND consumer_group = ? AND topic = ?`

const (
	// stmtRegistered (PRIMARY) is followed by a list of tenants.
	stmtRegistered = `SELECT tenant, updated_at < ` + nowMillis + ` - ? FROM queue_offsets FORCE INDEX (PRIMARY)
 WHERE topic = ? AND partition_key = '' AND consumer_group = ? AND tenant IN `

	stmtRegister = `INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at)
 VALUES (?, ?, '', ?, ?, ` + nowMillis + `) ON DUPLICATE KEY UPDATE updated_at = VALUES(updated_at)`

	// stmtTopicTail (PRIMARY, "Using index for group-by") is two key reads a
	// partition.
	stmtTopicTail = "SELECT COALESCE(MAX(t.tail), 0) FROM (SELECT MAX(`offset`) AS tail FROM queue_messages FORCE INDEX (PRIMARY)" +
		" WHERE tenant = ? AND topic = ? GROUP BY tenant, topic, partition_key) AS t"

	// stmtControl (PRIMARY of both) has the same list of tenants twice. A row of
	// the second half has no name.
	stmtControl = `SELECT tenant, subscriber_name, expires_at > ` + nowMillis + ` AS alive, 0 AS paused
 FROM queue_subscriber_heartbeats FORCE INDEX (PRIMARY) WHERE consumer_group = ? AND topic = ? AND tenant IN `
	stmtControlPaused = ` UNION ALL SELECT tenant, '', updated_at > ` + nowMillis + ` - ?, paused
 FROM queue_offsets FORCE INDEX (PRIMARY) WHERE topic = ? AND partition_key = '' AND consumer_group = ? AND tenant IN `

	stmtBeat = `INSERT INTO queue_subscriber_heartbeats (tenant, consumer_group, topic, subscriber_name, started_at, heartbeat_at, expires_at)
 VALUES (?, ?, ?, ?, ` + nowMillis + `, ` + nowMillis + `, ` + nowMillis + ` + ?)
 ON DUPLICATE KEY UPDATE heartbeat_at = VALUES(heartbeat_at), expires_at = VALUES(expires_at)`

	stmtLeave = `DELETE FROM queue_subscriber_heartbeats` + ofGroup + ` AND subscriber_name = ?`

	// stmtBury (PRIMARY) is followed by a list of names.
	stmtBury = `DELETE FROM queue_subscriber_heartbeats` + ofGroup + ` AND expires_at <= ` + nowMillis + ` AND subscriber_name IN `
)

// ---- Delivery: discovery and fetch ------------------------------------------

const (
	// stmtDiscover (PRIMARY, "Using index for group-by") is two key reads a
	// partition, whatever the backlog; topic must stand in the GROUP BY. The
	// order is that of the index, except between shards.
	stmtDiscover   = "SELECT tenant, partition_key, MIN(`offset`), MAX(`offset`) FROM queue_messages FORCE INDEX (PRIMARY) WHERE topic = ? AND tenant IN "
	discoverBehind = " AND partition_key > ?"
	discoverGroup  = " GROUP BY tenant, topic, partition_key"
	// discoverPage is for one tenant only: several shards cannot order by a
	// collation together.
	discoverPage  = " ORDER BY partition_key"
	discoverLimit = " LIMIT ?"

	// stmtHeads (PRIMARY, "Using index for group-by") is followed by a list of
	// partition keys and discoverGroup.
	stmtHeads = "SELECT partition_key, MIN(`offset`) FROM queue_messages FORCE INDEX (PRIMARY) WHERE tenant = ? AND topic = ? AND partition_key IN "

	messageColumns = "partition_key, `offset`, id, payload, metadata, published_at, target_group, original_topic, original_id, " +
		"original_offset, failed_group, failed_at, failure_count, last_error"

	// stmtFetch (PRIMARY) reads short ranges, an OR-list of fetchRange and
	// fetchOnly, together. Without FORCE INDEX the optimizer weighs index merges
	// over idx_offset, which takes it ten times as long as the reading.
	stmtFetch    = "SELECT " + messageColumns + " FROM queue_messages FORCE INDEX (PRIMARY) WHERE tenant = ? AND topic = ? AND ("
	fetchRange   = "(partition_key = ? AND `offset` > ? AND `offset` <= ?)"
	fetchOnly    = "(partition_key = ? AND `offset` IN "
	fetchOrdered = ") ORDER BY partition_key, `offset`"

	// stmtFetchDeep (PRIMARY) reads ranges that may hold more than is wanted, a
	// UNION ALL of one each.
	stmtFetchDeep = "(SELECT " + messageColumns + " FROM queue_messages FORCE INDEX (PRIMARY)" +
		" WHERE tenant = ? AND topic = ? AND partition_key = ? AND `offset` > ? AND `offset` <= ? ORDER BY `offset` LIMIT ?)"
)

// ---- Lag --------------------------------------------------------------------

const (
	stmtNow = `SELECT ` + nowMillis

	// unsettled (PRIMARY of both, "Not exists") leaves out what the group has
	// settled ahead of its watermark.
	unsettled = " FROM queue_messages AS m FORCE INDEX (PRIMARY) LEFT JOIN queue_delivery_state AS s FORCE INDEX (PRIMARY)" +
		" ON s.tenant = m.tenant AND s.consumer_group = ? AND s.topic = m.topic AND s.partition_key = m.partition_key" +
		" AND s.message_offset = m.`offset` AND s.acked = 1 WHERE m.tenant = ? AND m.topic = ?"
	notSettled = " AND m.target_group IN ('', ?) AND s.tenant IS NULL"

	// stmtLag (PRIMARY of both) is followed by an OR-list of lagRange and
	// lagLimit, which bounds the rows read.
	stmtLag  = "SELECT COUNT(*), COALESCE(MAX(p.age), 0) FROM (SELECT " + nowMillis + " - m.published_at AS age" + unsettled + notSettled + " AND ("
	lagRange = "(m.partition_key = ? AND m.`offset` > ? AND m.`offset` <= ?)"
	lagLimit = ") LIMIT ?) AS p"

	// stmtOldest (PRIMARY of both) reads a partition's first pending row; a UNION
	// ALL of one each.
	stmtOldest = "(SELECT m.`offset`, " + nowMillis + " - m.published_at" + unsettled +
		" AND m.partition_key = ? AND m.`offset` > ? AND m.`offset` <= ?" + notSettled + " ORDER BY m.`offset` LIMIT 1)"
)

// ---- Delivery: leases -------------------------------------------------------

const (
	// stmtHolders (PRIMARY) is followed by a list of partition keys.
	stmtHolders = `SELECT partition_key, lease_epoch, lease_expires_at - ` + nowMillis + `, lease_expires_at
 FROM queue_partition_leases FORCE INDEX (PRIMARY)` + ofGroup + ` AND partition_key IN `

	// stmtLease (PRIMARY) is followed by rows of leaseRow and stmtLeaseEnd. The
	// assignments run from left to right and see the values already assigned:
	// lease_expires_at, which all conditions read, comes last. An owner that let
	// its lease expire (0: released) leaves what it had claimed as suspect.
	stmtLease = `INSERT INTO queue_partition_leases
 (tenant, consumer_group, topic, partition_key, leased_by, lease_epoch, instance, leased_at, lease_expires_at, claimed_offset) VALUES `
	leaseRow    = `(?, ?, ?, ?, ?, ` + nowMicros + `, ?, ` + nowMillis + `, ` + nowMillis + ` + ?, ?)`
	leaseIsOver = `IF(lease_expires_at <= VALUES(leased_at), `

	stmtLeaseEnd = ` ON DUPLICATE KEY UPDATE
 suspect_offset = IF(lease_expires_at > 0, ` + leaseIsOver + `GREATEST(suspect_offset, claimed_offset), suspect_offset), suspect_offset),
 lease_epoch = ` + leaseIsOver + `GREATEST(lease_epoch + 1, VALUES(lease_epoch)), lease_epoch),
 leased_by = ` + leaseIsOver + `VALUES(leased_by), leased_by),
 instance = ` + leaseIsOver + `VALUES(instance), instance),
 claimed_offset = ` + leaseIsOver + `VALUES(claimed_offset), claimed_offset),
 leased_at = ` + leaseIsOver + `VALUES(leased_at), leased_at),
 lease_expires_at = ` + leaseIsOver + `VALUES(lease_expires_at), lease_expires_at)`

	// stmtGrants (PRIMARY of all) reads leases with the watermark and the
	// registration of the group, and whether it has delivery states there. It is
	// followed by a list of partition keys.
	stmtGrants = `SELECT l.partition_key, l.lease_epoch, l.leased_by = ? AND l.instance = ?, l.lease_expires_at - ` + nowMillis + `,
 l.suspect_offset, o.offset_acked, g.offset_acked, COALESCE(g.paused, 0),
 EXISTS (SELECT 1 FROM queue_delivery_state AS s FORCE INDEX (PRIMARY) WHERE s.tenant = l.tenant AND s.consumer_group = l.consumer_group
 AND s.topic = l.topic AND s.partition_key = l.partition_key)
 FROM queue_partition_leases AS l FORCE INDEX (PRIMARY)
 LEFT JOIN queue_offsets AS o ON o.tenant = l.tenant AND o.topic = l.topic AND o.partition_key = l.partition_key AND o.consumer_group = l.consumer_group
 LEFT JOIN queue_offsets AS g ON g.tenant = l.tenant AND g.topic = l.topic AND g.partition_key = '' AND g.consumer_group = l.consumer_group
 WHERE l.tenant = ? AND l.consumer_group = ? AND l.topic = ? AND l.partition_key IN `

	// stmtStates (PRIMARY) is followed by a list of partition keys, statesBehind
	// from the second page on, and statesPage.
	stmtStates = `SELECT partition_key, message_offset, acked, postponed, attempts, deliveries, visible_at - ` + nowMillis + `, last_error
 FROM queue_delivery_state FORCE INDEX (PRIMARY)` + ofGroup + ` AND partition_key IN `
	statesBehind = ` AND (partition_key > ? OR (partition_key = ? AND message_offset > ?))`
	statesPage   = ` ORDER BY partition_key, message_offset LIMIT ?`

	// What an owner does to its leases begins with locking them, by a rowList that
	// ends with ifOwned: name, instance and epoch must be as they were granted.
	// Those found are then changed by stmtLease, whose rows all exist, with one of
	// the ends below. An UPDATE that joins the list would do it in one statement,
	// but needs a temporary table on disk for it, and MariaDB 10.11 crashes when it
	// is killed, or shut down, while making that.
	ifOwned        = ` AND leased_by = ? AND instance = ? AND lease_expires_at > 0`
	stmtRenewEnd   = ` ON DUPLICATE KEY UPDATE lease_expires_at = VALUES(lease_expires_at)`
	stmtReleaseEnd = ` ON DUPLICATE KEY UPDATE lease_expires_at = 0, claimed_offset = 0`
	stmtClaimEnd   = ` ON DUPLICATE KEY UPDATE claimed_offset = GREATEST(claimed_offset, VALUES(claimed_offset))`

	selectLeases = `SELECT partition_key, lease_epoch`
)

// ---- Delivery: settlement ---------------------------------------------------

const (
	// forUpdate behind selectLeases is the fence of settlements: it locks the
	// lease rows until commit.
	forUpdate = ` FOR UPDATE`

	// stmtMarks (PRIMARY) reads all groups' registrations and watermarks; it is
	// followed by a list of partition keys that begins with ''.
	stmtMarks = `SELECT partition_key, consumer_group, offset_acked FROM queue_offsets FORCE INDEX (PRIMARY) WHERE tenant = ? AND topic = ? AND partition_key IN `

	// stmtRun (PRIMARY), runTerm, runOrder, runLimit and lockNowait are the
	// watermark's locking read of a partition; those of several are joined by
	// UNION ALL, in parentheses. NOWAIT fails while a publisher is inside the
	// range; until commit its gap locks keep others out. Without runLimit it
	// would lock the record behind the range, which is some publisher's newest.
	//
	// Vitess drops the locks in a UNION. There several partitions are an OR-list
	// of runTerm, which locks the record behind all ranges but the last.
	stmtRun    = "SELECT partition_key, `offset` FROM queue_messages FORCE INDEX (PRIMARY) WHERE tenant = ? AND topic = ? AND "
	runTerm    = "partition_key = ? AND `offset` > ? AND `offset` <= ?"
	runOrder   = " ORDER BY `offset`"
	runsOrder  = " ORDER BY partition_key, `offset`" // of the OR-list; a single key so named would be sorted, and all of it locked
	runLimit   = " LIMIT ?"
	lockNowait = " FOR UPDATE NOWAIT"

	// stmtSetMarks is followed by rows of markRow and stmtSetMarksEnd.
	stmtSetMarks    = `INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES `
	markRow         = `(?, ?, ?, ?, ?, ` + nowMillis + `)`
	stmtSetMarksEnd = ` ON DUPLICATE KEY UPDATE offset_acked = GREATEST(offset_acked, VALUES(offset_acked)), updated_at = VALUES(updated_at)`

	// stmtSetStates is followed by rows of stateRow and stmtSetStatesEnd.
	stmtSetStates = `INSERT INTO queue_delivery_state
 (tenant, consumer_group, topic, partition_key, message_offset, acked, postponed, attempts, deliveries, visible_at, last_error) VALUES `
	stateRow         = `(?, ?, ?, ?, ?, ?, ?, ?, ?, ` + nowMillis + ` + ?, ?)`
	ackedRow         = `(?, ?, ?, ?, ?, 1, 0, 0, 0, 0, NULL)`
	stmtSetStatesEnd = ` ON DUPLICATE KEY UPDATE acked = VALUES(acked), postponed = VALUES(postponed), attempts = VALUES(attempts),
 deliveries = VALUES(deliveries), visible_at = VALUES(visible_at), last_error = VALUES(last_error)`

	// stmtStatesUpTo (PRIMARY) is followed by an OR-list of stateUpTo.
	stmtStatesUpTo = `SELECT partition_key, message_offset FROM queue_delivery_state FORCE INDEX (PRIMARY)` + ofGroup + ` AND (`
	stateUpTo      = `(partition_key = ? AND message_offset <= ?)`

	// stmtPassed (PRIMARY) is followed by an OR-list of passedTerm and
	// passedPage.
	stmtPassed = "SELECT partition_key, `offset` FROM queue_messages FORCE INDEX (PRIMARY) WHERE tenant = ? AND topic = ? AND ("
	passedTerm = "(partition_key = ? AND `offset` <= ?)"
	passedPage = ") ORDER BY partition_key, `offset` LIMIT ?"

	// stmtDropRange (PRIMARY) has the exact number of rows for LIMIT: a scan that
	// ran out of rows would lock the record behind the range, some publisher's
	// newest. So would one with an ORDER BY: unless the connection has the
	// collation of the columns, the server sorts, and reads the whole range first.
	stmtDropRange = "DELETE FROM queue_messages WHERE tenant = ? AND topic = ? AND partition_key = ? AND `offset` > ? AND `offset` <= ? LIMIT ?"

	// stmtDeadLetters is followed by rows of deadLetterRow and stmtInsertEnd.
	stmtDeadLetters = `INSERT INTO queue_messages (tenant, topic, partition_key, id, payload, metadata, published_at, publish_id,
 original_topic, original_id, original_offset, failed_group, failed_at, failure_count, last_error) VALUES `
	deadLetterRow = `(?, ?, ?, ?, ?, ?, ` + nowMillis + `, ?, ?, ?, ?, ?, ` + nowMillis + `, ?, ?)`

	// stmtDeadLettersBack (uq_message) is followed by an OR-list of identityTerm.
	stmtDeadLettersBack = "SELECT partition_key, id, `offset`, publish_id, original_topic, original_offset, failed_group" +
		" FROM queue_messages FORCE INDEX (uq_message) WHERE tenant = ? AND topic = ? AND ("
	identityTerm = "(partition_key = ? AND id = ?)"
)

// ---- Delivery: what the dead left behind ------------------------------------

const (
	// stmtDeadBeats (PRIMARY) is followed by a list of tenants and limitRows.
	stmtDeadBeats = `SELECT tenant, subscriber_name FROM queue_subscriber_heartbeats FORCE INDEX (PRIMARY)
 WHERE consumer_group = ? AND topic = ? AND expires_at <= ` + nowMillis + ` AND tenant IN `
	limitRows = ` LIMIT ?`

	// stmtDeadLeases (PRIMARY of both, "Not exists") is followed by a list of
	// tenants, noMessage and limitRows.
	stmtDeadLeases = `SELECT l.tenant, l.partition_key, l.lease_epoch FROM queue_partition_leases AS l FORCE INDEX (PRIMARY)
 LEFT JOIN queue_messages AS m FORCE INDEX (PRIMARY) ON m.tenant = l.tenant AND m.topic = l.topic AND m.partition_key = l.partition_key
 WHERE l.consumer_group = ? AND l.topic = ? AND l.lease_expires_at <= ` + nowMillis + ` - ? AND l.tenant IN `
	noMessage = ` AND m.tenant IS NULL`

	// ifOver takes the place of ifOwned.
	ifOver = ` AND lease_expires_at <= ` + nowMillis

	// stmtDeadMarks (PRIMARY of all, "Not exists") is followed by a list of
	// tenants, noMessage, noLease and limitRows. A key may be below '': it is
	// compared as if padded with spaces.
	stmtDeadMarks = `SELECT o.tenant, o.partition_key, o.offset_acked FROM queue_offsets AS o FORCE INDEX (PRIMARY)
 LEFT JOIN queue_messages AS m FORCE INDEX (PRIMARY) ON m.tenant = o.tenant AND m.topic = o.topic AND m.partition_key = o.partition_key
 LEFT JOIN queue_partition_leases AS l
 ON l.tenant = o.tenant AND l.consumer_group = o.consumer_group AND l.topic = o.topic AND l.partition_key = o.partition_key
 WHERE o.consumer_group = ? AND o.topic = ? AND o.partition_key <> '' AND o.tenant IN `
	noLease = ` AND l.tenant IS NULL`

	// stmtDeadStates (PRIMARY of all) is followed by a list of tenants,
	// noMessage, noLease and limitRows.
	stmtDeadStates = "SELECT s.tenant, s.partition_key, s.message_offset FROM queue_delivery_state AS s FORCE INDEX (PRIMARY)" +
		" LEFT JOIN queue_messages AS m FORCE INDEX (PRIMARY)" +
		" ON m.tenant = s.tenant AND m.topic = s.topic AND m.partition_key = s.partition_key AND m.`offset` = s.message_offset" +
		" LEFT JOIN queue_partition_leases AS l" +
		" ON l.tenant = s.tenant AND l.consumer_group = s.consumer_group AND l.topic = s.topic AND l.partition_key = s.partition_key" +
		" WHERE s.consumer_group = ? AND s.topic = ? AND s.tenant IN "

	// stmtAbsent (PRIMARY) is followed by a list of tenants.
	stmtAbsent = `SELECT tenant, consumer_group FROM queue_offsets FORCE INDEX (PRIMARY)
 WHERE topic = ? AND partition_key = '' AND consumer_group <> ? AND updated_at < ` + nowMillis + ` - ? AND tenant IN `
)

// ---- Operators --------------------------------------------------------------

const (
	// ofRegistration (PRIMARY) is a group's row of (tenant, topic).
	ofRegistration = ` WHERE tenant = ? AND topic = ? AND partition_key = '' AND consumer_group = ?`

	stmtRegistration = `SELECT updated_at FROM queue_offsets` + ofRegistration
	stmtSetPaused    = `UPDATE queue_offsets SET paused = ?` + ofRegistration
	stmtUnregister   = `DELETE FROM queue_offsets` + ofRegistration
	ifStillAt        = ` AND updated_at = ?`

	// Pages of a group's rows (PRIMARY), each followed by pageBehind from the
	// second one on, and its order.
	stmtLeasePage = `SELECT partition_key FROM queue_partition_leases FORCE INDEX (PRIMARY)` + ofGroup
	stmtStatePage = `SELECT partition_key, message_offset FROM queue_delivery_state FORCE INDEX (PRIMARY)` + ofGroup
	stmtMarkPage  = `SELECT partition_key, offset_acked FROM queue_offsets FORCE INDEX (PRIMARY) WHERE tenant = ? AND topic = ? AND partition_key <> '' AND consumer_group = ?`
	pageBehind    = ` AND partition_key > ?`
	pageOrder     = ` ORDER BY partition_key LIMIT ?`
	stmtBuryGroup = `DELETE FROM queue_subscriber_heartbeats` + ofGroup + ` ORDER BY subscriber_name LIMIT ?`

	// stmtDeadLetter (uq_message) locks a dead letter.
	stmtDeadLetter = "SELECT `offset`, payload, metadata, original_topic, original_id, original_offset, failed_group" +
		" FROM queue_messages FORCE INDEX (uq_message)" + ofIdentity + forUpdate
	ofIdentity = ` WHERE tenant = ? AND topic = ? AND partition_key = ? AND id = ?`

	// stmtIDTaken (uq_message) keeps an id from being taken until commit.
	stmtIDTaken = `SELECT 1 FROM queue_messages FORCE INDEX (uq_message)` + ofIdentity + forUpdate

	stmtRedrive = `INSERT INTO queue_messages (tenant, topic, partition_key, id, payload, metadata, published_at, publish_id, target_group, original_id)
 VALUES (?, ?, ?, ?, ?, ?, ` + nowMillis + `, ?, ?, ?)` + stmtInsertEnd
)
