package peer

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tenantmq/tenantmq/backend/mysql"
)

// What the floor's rows have in the columns that a Message has no word for.
const (
	floorTenant = "tenant-00000"
	floorTopic  = "bench"
	floorGroup  = "bench"
)

// These were the fastest, or no slower than it, of 2, 4 and 8 connections, of
// batches of 250, 500 and 1,000 messages of one partition, and of 50 to 1,000
// partitions.
const (
	floorConnections = 4
	floorDeepBatch   = 1000 // messages of one partition that are read, marked and deleted together
	floorWideBatch   = 400  // the same of many partitions
)

// Floor is the fewest raw statements that insert, read, mark and delete the
// rows of the queue, in the queue's own tables and with its durability: what is
// left of the queue when there is no queue. Nothing is discovered (it knows what
// it has stored), nobody competes for a partition, a repeat is an error, and a
// message that commits late would be lost.
type Floor struct {
	db *mysqlDB

	mu      sync.Mutex
	inserts map[int]*sql.Stmt // by the number of their rows
	stored  map[string]int    // messages by partition
	serial  int               // publishes so far
}

// NewFloor makes a database of its own on the server that a DSN names.
func NewFloor(ctx context.Context, dsn string) (*Floor, error) {
	db, err := newMySQL(ctx, dsn, "floor")
	if err != nil {
		return nil, named(err, "floor", "open")
	}
	f := &Floor{db: db}
	if err := f.Reset(ctx); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Name implements [Peer].
func (f *Floor) Name() string { return "floor" }

// Reset implements [Peer]. The tables are the queue's own.
func (f *Floor) Reset(ctx context.Context) error {
	if err := errors.Join(f.forget(), f.db.reset(ctx)); err != nil {
		return named(err, "floor", "reset")
	}
	return named(mysql.Migrate(ctx, f.db.DB), "floor", "reset")
}

// Close implements [Peer].
func (f *Floor) Close() error {
	return named(errors.Join(f.forget(), f.db.close()), "floor", "close")
}

// forget drops what is known of the database.
func (f *Floor) forget() (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, insert := range f.inserts {
		err = errors.Join(err, insert.Close())
	}
	f.inserts, f.stored = make(map[int]*sql.Stmt), make(map[string]int)
	return err
}

// Publish implements [Peer] by one INSERT a batch, which commits by itself. Its
// rows are in the order of the primary key, and it is prepared: in batches that
// is up to twice as fast as text in which random bytes are escaped.
func (f *Floor) Publish(ctx context.Context, publishers int, batches [][]Message) error {
	return named(spread(ctx, publishers, batches, func(ctx context.Context, batch []Message) error {
		insert, args, err := f.insert(ctx, batch) //nolint:sqlclosecheck // kept for the next batch, closed by forget
		if err != nil {
			return err
		}
		_, err = insert.ExecContext(ctx, args...)
		return err
	}), "floor", "publish")
}

// PublishTx implements [Peer] by the same INSERT after that of the caller.
func (f *Floor) PublishTx(ctx context.Context, publishers int, batches [][]Message) error {
	return named(spread(ctx, publishers, batches, func(ctx context.Context, batch []Message) error {
		insert, args, err := f.insert(ctx, batch)
		if err != nil {
			return err
		}
		return f.db.inTx(ctx, func(tx *sql.Tx) error {
			own := tx.StmtContext(ctx, insert)
			defer own.Close()
			_, err := own.ExecContext(ctx, args...)
			return err
		})
	}), "floor", "publish in a transaction")
}

const (
	floorInsert = "INSERT INTO queue_messages (tenant, topic, partition_key, id, payload, metadata, published_at, publish_id) VALUES "
	floorRow    = "('" + floorTenant + "', '" + floorTopic + "', ?, ?, ?, '{}', FLOOR(UNIX_TIMESTAMP(NOW(3)) * 1000), ?)"
)

// insert is the statement that stores a batch, and its arguments.
func (f *Floor) insert(ctx context.Context, batch []Message) (*sql.Stmt, []any, error) {
	insert, serial, err := f.note(ctx, batch)
	if err != nil {
		return nil, nil, err
	}
	batch = slices.SortedStableFunc(slices.Values(batch), func(a, b Message) int { return strings.Compare(a.Key, b.Key) })
	args := make([]any, 0, 4*len(batch))
	for _, m := range batch {
		args = append(args, m.Key, m.ID, m.Payload, serial)
	}
	return insert, args, nil
}

// note counts a batch as stored and numbers its publish.
func (f *Floor) note(ctx context.Context, batch []Message) (insert *sql.Stmt, serial int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	insert = f.inserts[len(batch)]
	if insert == nil {
		insert, err = f.db.PrepareContext(ctx, floorInsert+list(floorRow, len(batch))) //nolint:sqlclosecheck // kept, closed by forget
		if err != nil {
			return nil, 0, err
		}
		f.inserts[len(batch)] = insert
	}
	for _, m := range batch {
		f.stored[m.Key]++
	}
	f.serial++
	return insert, f.serial, nil
}

// list repeats a row of a statement.
func list(row string, n int) string { return strings.Repeat(row+", ", n-1) + row }

// A share is what is read, marked and settled on one connection: one partition,
// in batches, or neighbours that fit one batch.
type share struct {
	keys     []string // in order
	messages int
}

// Consume implements [Peer]. Partitions are spread over connections; a batch is
// one SELECT by primary key, one INSERT that marks it, and one transaction that
// moves the offset and deletes rows and marks.
func (f *Floor) Consume(ctx context.Context, n int) error {
	shares, err := f.shares(n)
	if err != nil {
		return named(err, "floor", "consume")
	}
	return named(spread(ctx, floorConnections, shares, func(ctx context.Context, s share) error {
		conn, err := f.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		if len(s.keys) > 1 {
			return settleWide(ctx, conn, s)
		}
		return settleDeep(ctx, conn, s)
	}), "floor", "consume")
}

// shares cuts the n stored messages that come first.
func (f *Floor) shares(n int) ([]share, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var shares []share
	left := n
	for _, key := range slices.Sorted(maps.Keys(f.stored)) {
		if left == 0 {
			break
		}
		count := min(f.stored[key], left)
		left -= count
		if f.stored[key] -= count; f.stored[key] == 0 {
			delete(f.stored, key)
		}
		last := len(shares) - 1
		if last >= 0 && shares[last].messages+count <= floorWideBatch {
			shares[last].keys = append(shares[last].keys, key)
			shares[last].messages += count
			continue
		}
		shares = append(shares, share{keys: []string{key}, messages: count})
	}
	if left > 0 {
		return nil, fmt.Errorf("%d messages wanted, %d stored", n, n-left)
	}
	// The largest first, so that no connection is left alone with one.
	slices.SortStableFunc(shares, func(a, b share) int { return cmp.Compare(b.messages, a.messages) })
	return shares, nil
}

const floorRead = "SELECT partition_key, `offset`, id, payload, metadata, published_at FROM queue_messages " +
	"WHERE tenant = '" + floorTenant + "' AND topic = '" + floorTopic + "' AND "

// position is what settling needs to know of a message; the handler, which does
// nothing, had the rest.
type position struct {
	key    string
	offset uint64
}

// read gives a batch to the handler.
func read(ctx context.Context, conn *sql.Conn, where string, args ...any) ([]position, error) {
	rows, err := conn.QueryContext(ctx, floorRead+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var batch []position
	for rows.Next() {
		var p position
		var m Message
		var metadata sql.RawBytes
		var published int64
		if err := rows.Scan(&p.key, &p.offset, &m.ID, &m.Payload, &metadata, &published); err != nil {
			return nil, err
		}
		batch = append(batch, p)
	}
	return batch, rows.Err()
}

const (
	// A batch is marked by the offset up to which it was handed out, in the row
	// that the queue has for it: one a partition, and not one a message, as
	// queue_delivery_state would have it.
	floorMark = "INSERT INTO queue_partition_leases (tenant, consumer_group, topic, partition_key, leased_by, lease_epoch, instance, " +
		"leased_at, lease_expires_at, claimed_offset) VALUES "
	floorMarkRow = "('" + floorTenant + "', '" + floorGroup + "', '" + floorTopic + "', ?, 'floor', 1, 1, 0, 0, ?)"
	floorMarkEnd = " ON DUPLICATE KEY UPDATE claimed_offset = VALUES(claimed_offset)"

	floorOffset = "INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) " +
		"VALUES ('" + floorTenant + "', '" + floorTopic + "', ?, '" + floorGroup + "', ?, 0) " +
		"ON DUPLICATE KEY UPDATE offset_acked = VALUES(offset_acked)"

	floorDelete = "DELETE FROM queue_messages WHERE tenant = '" + floorTenant + "' AND topic = '" + floorTopic + "' AND "

	floorPartition   = " WHERE tenant = '" + floorTenant + "' AND consumer_group = '" + floorGroup + "' AND topic = '" + floorTopic + "' AND "
	floorDropMark    = "DELETE FROM queue_partition_leases" + floorPartition
	floorDropOffsets = "DELETE FROM queue_offsets" + floorPartition
)

// settleDeep works through one partition. A drained one leaves nothing behind,
// as with the queue.
func settleDeep(ctx context.Context, conn *sql.Conn, s share) error {
	key, passed := s.keys[0], uint64(0)
	for done := 0; done < s.messages; {
		batch, err := read(ctx, conn, "partition_key = ? AND `offset` > ? ORDER BY `offset` LIMIT ?", key, passed, min(floorDeepBatch, s.messages-done))
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			return fmt.Errorf("partition %q: %d messages wanted, %d there", key, s.messages, done)
		}
		first, last := batch[0].offset, batch[len(batch)-1].offset
		if _, err := conn.ExecContext(ctx, floorMark+floorMarkRow+floorMarkEnd, key, last); err != nil {
			return err
		}
		steps := []step{{floorDelete + "partition_key = ? AND `offset` BETWEEN ? AND ?", []any{key, first, last}}}
		if done += len(batch); done < s.messages {
			steps = append(steps, step{floorOffset, []any{key, last}})
		} else {
			steps = append(steps, step{floorDropMark + "partition_key = ?", []any{key}}, step{floorDropOffsets + "partition_key = ?", []any{key}})
		}
		if err := transact(ctx, conn, steps); err != nil {
			return err
		}
		passed = last
	}
	return nil
}

// Joined to a list, every row is looked up by its full primary key, which locks
// the record and nothing else. An OR-list of the same keys is slower, and slower
// the longer it gets, for the range optimizer's sake.
const (
	floorDeleteListed = "DELETE m FROM (%s) AS v STRAIGHT_JOIN queue_messages AS m FORCE INDEX (PRIMARY) " +
		"ON m.tenant = '" + floorTenant + "' AND m.topic = '" + floorTopic + "' AND m.partition_key = v.k AND m.`offset` = v.n"
	floorDropListed = "DELETE m FROM (%s) AS v STRAIGHT_JOIN queue_partition_leases AS m FORCE INDEX (PRIMARY) " +
		"ON m.tenant = '" + floorTenant + "' AND m.consumer_group = '" + floorGroup + "' AND m.topic = '" + floorTopic + "' AND m.partition_key = v.k"
)

// listed fills the list of a statement with n rows.
func listed(statement string, n int) string {
	return fmt.Sprintf(statement, "SELECT ? AS k, ? AS n"+strings.Repeat(" UNION ALL SELECT ?, ?", n-1))
}

// settleWide works through a list of partitions that are drained at once: they
// need no offset. Rows are deleted by their full primary keys.
func settleWide(ctx context.Context, conn *sql.Conn, s share) error {
	first, last := s.keys[0], s.keys[len(s.keys)-1]
	batch, err := read(ctx, conn, "partition_key BETWEEN ? AND ? ORDER BY partition_key, `offset` LIMIT ?", first, last, s.messages)
	if err != nil {
		return err
	}
	if len(batch) != s.messages {
		return fmt.Errorf("partitions %q to %q: %d messages wanted, %d there", first, last, s.messages, len(batch))
	}
	rows, marks := make([]any, 0, 2*len(batch)), make([]any, 0, 2*len(s.keys))
	for i, p := range batch {
		rows = append(rows, p.key, p.offset)
		if i+1 == len(batch) || batch[i+1].key != p.key {
			marks = append(marks, p.key, p.offset)
		}
	}
	if _, err := conn.ExecContext(ctx, floorMark+list(floorMarkRow, len(marks)/2)+floorMarkEnd, marks...); err != nil {
		return err
	}
	return transact(ctx, conn, []step{
		{listed(floorDeleteListed, len(rows)/2), rows},
		{listed(floorDropListed, len(marks)/2), marks},
	})
}

// A step is a statement of a transaction.
type step struct {
	statement string
	args      []any
}

func transact(ctx context.Context, conn *sql.Conn, steps []step) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing once committed
	for _, s := range steps {
		if _, err := tx.ExecContext(ctx, s.statement, s.args...); err != nil {
			return err
		}
	}
	return tx.Commit()
}
