package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// querier is what statements run on: a pool, a connection or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// partition names a partition of a tenant.
type partition struct{ topic, key string }

// identity names a message of a tenant. Two that differ here differ in the
// database, by the rules of [backend.Message.Validate].
type identity struct {
	partition
	id string
}

// row is a message on its way into queue_messages.
type row struct {
	identity
	payload  []byte
	metadata string // JSON

	// Read back after the insert, zero until then.
	offset    uint64
	publishID uint64
}

// newRow checks a message and copies what the caller may change after a
// Publish that he did not wait for.
func newRow(m backend.Message, cfg Config) (*row, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if len(m.Payload) > cfg.MaxPayload {
		return nil, &backend.FieldError{
			Field: "payload", Value: fmt.Sprintf("of %d bytes", len(m.Payload)), Err: backend.ErrTooLarge,
			Rule: fmt.Sprintf("at most %d bytes; raise Config.MaxPayload (mq.publish.max_payload), or store it elsewhere and send its place", cfg.MaxPayload),
		}
	}
	metadata, err := encodeMetadata(m.Metadata)
	if err != nil {
		return nil, err
	}
	if len(metadata) > cfg.MaxMetadata {
		return nil, &backend.FieldError{
			Field: "metadata", Value: fmt.Sprintf("of %d bytes as JSON", len(metadata)), Err: backend.ErrTooLarge,
			Rule: fmt.Sprintf("at most %d bytes; raise Config.MaxMetadata (mq.publish.max_metadata), or put it into the payload", cfg.MaxMetadata),
		}
	}
	return &row{
		identity: identity{partition{m.Topic, m.PartitionKey}, m.ID},
		payload:  append(make([]byte, 0, len(m.Payload)), m.Payload...), // never nil: that is NULL
		metadata: metadata,
	}, nil
}

func encodeMetadata(metadata map[string]string) (string, error) {
	if len(metadata) == 0 {
		return "{}", nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(metadata); err != nil {
		return "", fmt.Errorf("encode metadata: %w", err)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// size bounds what the row adds to a statement: escaping can double any part.
func (r *row) size() int {
	return 2*(len(r.payload)+len(r.metadata)+len(r.topic)+len(r.key)+len(r.id)) + 4*backend.MaxIdentLength
}

// batch is a set of rows of one tenant with distinct identities.
type batch struct {
	tenant tenants.ID
	rows   []*row
}

// newBatch sorts by partition and keeps the order given within each, which is
// the order of offsets. Every transaction locks in the same order then.
func newBatch(tenant tenants.ID, rows []*row) *batch {
	slices.SortStableFunc(rows, func(a, b *row) int { return comparePartitions(a.partition, b.partition) })
	return &batch{tenant, rows}
}

// inserted is what one statement was given, and the first offset that the server
// says it allocated. That is a hint only: after a statement that met repeats it
// means little.
type inserted struct {
	rows  []*row
	first uint64
}

// partitions are those of the rows, in order.
func (b *batch) partitions() []partition {
	var parts []partition
	for i, r := range b.rows {
		if i == 0 || r.partition != b.rows[i-1].partition {
			parts = append(parts, r.partition)
		}
	}
	return parts
}

// insertBounds are those of one statement.
type insertBounds struct {
	rows, size int
	bulk       bool // bulkInsert is faster than a statement of more rows
}

// next is how many of rest, at least one, go into the next statement.
func (b insertBounds) next(rest []*row) int {
	limit := min(b.rows, len(rest))
	if b.bulk && limit >= bulkRows {
		limit = bulkRows
	}
	n, size := 1, rest[0].size()
	for n < limit && size+rest[n].size() <= b.size {
		size += rest[n].size()
		n++
	}
	return n
}

// insert adds the rows that are not stored yet, in as many statements as the
// bounds ask for. What they have stored is to be read when all are done:
// a read between two would fix the transaction's snapshot before the second, and
// the fence would miss the watermarks that move meanwhile.
func (b *batch) insert(ctx context.Context, db querier, publishID uint64, bounds insertBounds) (all []inserted, err error) {
	for rest := b.rows; len(rest) > 0; {
		n := bounds.next(rest)
		args := insertArgs(b.tenant, rest[:n], publishID)
		text := bulkInsert
		if n != bulkRows || !bounds.bulk {
			text = textOfInsert(n)
		}
		result, err := db.ExecContext(ctx, text, args...)
		if err != nil {
			return nil, fmt.Errorf("insert %d messages: %w", n, err)
		}
		if at, err := result.LastInsertId(); err == nil && at > 0 {
			all = append(all, inserted{rest[:n], uint64(at)})
		}
		rest = rest[n:]
	}
	return all, nil
}

// insertArgs makes a value of what is the same in successive rows once.
func insertArgs(tenant tenants.ID, rows []*row, publishID uint64) []any {
	args := make([]any, 0, len(rows)*insertParams)
	var sameTenant, samePublish any = string(tenant), publishID
	var topic, key, metadata any
	for i, r := range rows {
		if i == 0 || r.topic != rows[i-1].topic {
			topic = r.topic
		}
		if i == 0 || r.key != rows[i-1].key {
			key = r.key
		}
		if i == 0 || r.metadata != rows[i-1].metadata {
			metadata = r.metadata
		}
		args = append(args, sameTenant, topic, key, r.id, r.payload, metadata, samePublish)
	}
	return args
}

// readNew fills in offset and publish id of rows that statements have inserted,
// by the offsets that were allocated to them. That is a fraction of the cost of
// looking up each id. Rows it does not find are left to readBack.
func (b *batch) readNew(ctx context.Context, db querier, publishID uint64, all []inserted) error {
	for _, ins := range all {
		if ins.rows[0].offset != 0 { // counted
			continue
		}
		// Servers that share a table (Galera) leave gaps for each other.
		last := ins.first + 4*uint64(len(ins.rows))
		read := newQuery(0, stmtReadNew, string(b.tenant), ins.first, last, publishID)
		if err := read.into(ctx, db, ins.rows, nil); err != nil {
			return fmt.Errorf("read %d new messages back: %w", len(ins.rows), err)
		}
	}
	return nil
}

// find fills in what statements have inserted, and tells whether that is all of
// the batch. Then fence, unless nil, has been read along with it.
func (b *batch) find(ctx context.Context, db querier, publishID uint64, all []inserted, fence *watermarks) (whole bool, err error) {
	if whole, err = b.countAll(ctx, db, publishID, all, fence); err != nil || whole {
		return whole, err
	}
	return false, b.readNew(ctx, db, publishID, all)
}

// countAll is countNew of all statements. fence comes with the last.
func (b *batch) countAll(ctx context.Context, db querier, publishID uint64, all []inserted, fence *watermarks) (bool, error) {
	for i := 1; i < len(all); i++ {
		// With innodb_autoinc_lock_mode=0 a repeat leaves no gap: the first rows of a
		// statement would be counted for the one before.
		if all[i].first < all[i-1].first+uint64(len(all[i-1].rows)) {
			return false, nil
		}
	}
	counted := 0
	for i, ins := range all {
		last := fence
		if i < len(all)-1 {
			last = nil
		}
		ok, err := b.countNew(ctx, db, publishID, ins, last)
		if err != nil || !ok {
			return false, err
		}
		counted += len(ins.rows)
	}
	return counted == len(b.rows), nil
}

// countNew is readNew for the usual case: a statement whose rows are all new. It
// allocates in the order of its rows, so as many consecutive offsets as there
// are rows, all with the publish's id, are those of the rows one by one. It tells
// whether they are; if not, nothing is filled in. fence, unless nil, reads the
// watermarks along with them.
func (b *batch) countNew(ctx context.Context, db querier, publishID uint64, ins inserted, fence *watermarks) (ok bool, err error) {
	n := uint64(len(ins.rows))
	q := newQuery(0, stmtCountNew, string(b.tenant), ins.first, ins.first+n-1, publishID)
	if fence != nil {
		q.add(alsoFence, string(b.tenant), fence.above)
		fence.terms(q)
	}
	var at partition
	var count, low, high uint64
	err = q.each(ctx, db, []any{&at.topic, &at.key, &count, &low, &high}, func() {
		if at.topic != "" {
			fence.add(at, low)
			return
		}
		if ok = count == n && high-low == n-1; ok {
			for i, r := range ins.rows {
				r.offset, r.publishID = low+uint64(i), publishID
			}
		}
	})
	if err != nil {
		return false, fmt.Errorf("count %d new messages: %w", n, err)
	}
	return ok, nil
}

// readBack fills in offset and publish id of those rows that db shows. suffix
// is empty or lockInShare. found decides whether a stored row is the one looked
// for; nil takes any.
func readBack(ctx context.Context, db querier, tenant tenants.ID, wanted []*row, suffix string, found func(publishID uint64) bool) error {
	for chunk := range slices.Chunk(wanted, readBackIDs) {
		read := newQuery(len(chunk), stmtReadBack, string(tenant))
		for i, r := range chunk {
			if i > 0 && r.partition == chunk[i-1].partition {
				read.add(", ?", r.id)
				continue
			}
			read.item(i, ")) OR ", readBackTerm, r.topic, r.key, r.id)
		}
		read.add(")))" + suffix)
		if err := read.into(ctx, db, chunk, found); err != nil {
			return fmt.Errorf("read %d messages back: %w", len(chunk), err)
		}
	}
	return nil
}

// into runs a statement of [readBackColumns] and fills in the rows it finds.
func (q *query) into(ctx context.Context, db querier, rows []*row, found func(publishID uint64) bool) error {
	byIdentity := make(map[identity]*row, len(rows))
	for _, r := range rows {
		byIdentity[r.identity] = r
	}
	var stored row
	return q.each(ctx, db, []any{&stored.topic, &stored.key, &stored.id, &stored.offset, &stored.publishID}, func() {
		if r := byIdentity[stored.identity]; r != nil && (found == nil || found(stored.publishID)) {
			r.offset, r.publishID = stored.offset, stored.publishID
		}
	})
}

// readBackIDs bounds the ids of one statement. Longer OR-lists cost the range
// optimizer more than they save.
const readBackIDs = 200

// unread are the rows that have not been read back.
func (b *batch) unread() []*row {
	var rows []*row
	for _, r := range b.rows {
		if r.offset == 0 {
			rows = append(rows, r)
		}
	}
	return rows
}

// forget undoes what has been read back.
func (b *batch) forget() {
	for _, r := range b.rows {
		r.offset, r.publishID = 0, 0
	}
}
