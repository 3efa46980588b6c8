package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// Error numbers of the servers. The names are theirs, without the prefix ER_.
const (
	errCheckread          = 1020 // MariaDB with innodb_snapshot_isolation: the row changed after the snapshot
	errConCount           = 1040 // too many connections
	errUnknownCom         = 1047 // Galera: node not ready, or not in the primary component
	errServerShutdown     = 1053
	errBadField           = 1054
	errDupEntry           = 1062
	errParse              = 1064
	errUnknown            = 1105 // Vitess, with the reason in the text
	errNoSuchTable        = 1146
	errErrorDuringCommit  = 1180 // Galera: certification failed
	errUnknownVariable    = 1193
	errTooManyUserConns   = 1203
	errLockWaitTimeout    = 1205 // also a failed NOWAIT on MariaDB
	errLockDeadlock       = 1213
	errUnknownStmt        = 1243 // a prepared statement that the server, or a proxy, has forgotten
	errOptionPrevents     = 1290 // --read-only
	errSavepointNotExists = 1305 // the transaction it belonged to is gone
	errQueryInterrupted   = 1317 // Vitess: the transaction was ended by its time limit, or aborted
	errNeedReprepare      = 1615 // a prepared statement whose tables do not stay in the server's cache
	errReadOnlyTx         = 1792
	errReadOnlyMode       = 1836
	errConnectionKilled   = 1927
	errServerGoneAway     = 2006
	errServerLost         = 2013
	errQueryTimeout       = 3024 // Vitess: a statement took too long, and its transaction is gone
	errLockNowait         = 3572 // MySQL 8
)

// class says what may be done about a database error. Every error is
// classified here and nowhere else.
type class int

const (
	// classPermanent errors go to the caller. What does not come from a
	// database is permanent.
	classPermanent class = iota
	// classRetry: the server refused this run of the transaction; the same
	// again may pass.
	classRetry
	// classReconnect: the connection is gone and with it the answer. What was
	// committed is unknown, so only idempotent work is repeated.
	classReconnect
	// classFailover: the connection leads to a server that no longer writes;
	// drop it.
	classFailover
	classes
)

// String is the class as metrics have it.
func (c class) String() string {
	return [classes]string{"permanent", "transient", "connection", "failover"}[c]
}

func classify(err error) class {
	if me, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return classifyNumber(me)
	}
	if _, ok := errors.AsType[net.Error](err); ok && !errors.Is(err, context.Canceled) {
		return classReconnect // dial errors; also context.DeadlineExceeded of the dialer
	}
	for _, lost := range []error{driver.ErrBadConn, mysql.ErrInvalidConn, mysql.ErrPktSync, mysql.ErrMalformPkt, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, lost) {
			return classReconnect
		}
	}
	return classPermanent
}

func classifyNumber(me *mysql.MySQLError) class {
	switch me.Number {
	case errQueryInterrupted:
		// Vitess: too many rows, or rows of two shards, stay so.
		if strings.Contains(me.Message, "Row count exceeded") || strings.Contains(me.Message, multiShard) {
			return classPermanent
		}
		return classRetry
	case errCheckread, errLockWaitTimeout, errLockDeadlock, errLockNowait, errErrorDuringCommit,
		errQueryTimeout, errSavepointNotExists, errConCount, errTooManyUserConns:
		return classRetry
	case errUnknownCom, errServerShutdown, errConnectionKilled, errServerGoneAway, errServerLost:
		return classReconnect
	case errOptionPrevents, errReadOnlyTx, errReadOnlyMode:
		return classFailover
	}
	if me.Number != errUnknown {
		return classPermanent
	}
	// Vitess maps several codes to one number and leaves them in the text.
	if strings.Contains(me.Message, "code = Aborted") {
		return classRetry
	}
	for _, text := range []string{
		"code = Unavailable", "code = FailedPrecondition", "code = Code(17)", // a cluster event
		"no healthy tablet", "enforce denied tables", "primary is not serving", "is being resharded", "state NOT_SERVING",
	} {
		if strings.Contains(me.Message, text) {
			return classReconnect
		}
	}
	return classPermanent
}

// multiShard is what vtgate calls a transaction that would touch two shards.
const multiShard = "multi-db transaction"

func isMultiShard(err error) bool {
	me, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && strings.Contains(me.Message, multiShard)
}

// isNowait tells whether a locking read with NOWAIT found a lock in its way.
func isNowait(err error) bool { return hasNumber(err, errLockWaitTimeout, errLockNowait) }

// isDuplicate tells whether a unique key was violated.
func isDuplicate(err error) bool { return hasNumber(err, errDupEntry) }

func hasNumber(err error, numbers ...uint16) bool {
	me, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && slices.Contains(numbers, me.Number)
}

// isNoSuchTable tells whether a statement has found a table missing: on a server,
// or from the VSchema of vtgate.
func isNoSuchTable(err error) bool {
	me, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && (me.Number == errNoSuchTable || lacksTable(me))
}

// lacksTable tells whether vtgate knows no table of a name.
func lacksTable(me *mysql.MySQLError) bool {
	return me.Number == errUnknown && strings.HasPrefix(me.Message, "table ") && strings.HasSuffix(me.Message, " not found")
}

// VitessError is what Verify, [Migrate], [Status] and the first Publish, PublishTx
// or Subscribe return for a vtgate that the queue is not set up for.
type VitessError struct {
	// Err is what vtgate says, or what is wrong with it.
	Err error
	// Remedy says what to do.
	Remedy string
}

func (e *VitessError) Error() string { return e.Err.Error() + ": " + e.Remedy }

func (e *VitessError) Unwrap() error { return e.Err }

const vitessSettings = "vtgate needs mq.external_schema, and over MariaDB mq.server_isolation, set to true " +
	"(in Go: Config.ExternalSchema, mysql.ServerIsolation); its tables are made by ApplySchema and ApplyVSchema of what " +
	"mqctl migrate sql --vitess prints"

// forVitess is err, or a [VitessError] where only vtgate answers so.
func forVitess(err error) error {
	me, ok := errors.AsType[*mysql.MySQLError](err)
	switch {
	case !ok:
		return err
	case me.Number == errUnknownVariable && strings.Contains(me.Message, "transaction_isolation") && strings.Contains(me.Message, "vttablet"),
		lacksTable(me) && strings.Contains(me.Message, versionTable):
		return &VitessError{Err: me, Remedy: vitessSettings}
	case strings.HasPrefix(me.Message, "VT05003"): // the remedy of other servers is no help
		return &VitessError{Err: me, Remedy: "on Vitess the DSN's database is the keyspace: name one that vtgate knows"}
	}
	return err
}
