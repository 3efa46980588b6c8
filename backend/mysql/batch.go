package mysql

import (
	"bytes"
	"cmp"
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
	slices.SortStableFunc(rows, func(a, b *row) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), strings.Compare(a.key, b.key))
	})
	return &batch{tenant, rows}
}

// insert adds the rows that are not stored yet, in as many statements as the
// bounds of cfg ask for, and then reads the new ones back: a read between two
// statements would fix the transaction's snapshot before the second, and the
// fence would miss the watermarks that move meanwhile.
func (b *batch) insert(ctx context.Context, db querier, publishID uint64, cfg Config) error {
	var reads []func() error
	for rest := b.rows; len(rest) > 0; {
		n, size := 1, rest[0].size()
		for n < len(rest) && n < cfg.MaxBatchRows && size+rest[n].size() <= cfg.MaxBatchBytes {
			size += rest[n].size()
			n++
		}
		ins := newQuery(0, stmtInsert)
		ins.text.Grow(n * (len(insertRow) + 2))
		for i, r := range rest[:n] {
			ins.item(i, ", ", insertRow, string(b.tenant), r.topic, r.key, r.id, r.payload, r.metadata, publishID)
		}
		ins.add(stmtInsertEnd)
		result, err := db.ExecContext(ctx, ins.text.String(), ins.args...)
		if err != nil {
			return fmt.Errorf("insert %d messages: %w", n, err)
		}
		if at, err := result.LastInsertId(); err == nil && at > 0 {
			inserted := rest[:n]
			reads = append(reads, func() error { return readNew(ctx, db, b.tenant, inserted, publishID, uint64(at)) })
		}
		rest = rest[n:]
	}
	for _, read := range reads {
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

// readNew fills in offset and publish id of rows that a statement has inserted,
// by the offsets it was allocated, from the first on. That is a fraction of the
// cost of looking up each id, but first is a hint only: after a statement that
// met repeats it means little. Rows it does not find are left to readBack.
func readNew(ctx context.Context, db querier, tenant tenants.ID, rows []*row, publishID, first uint64) error {
	// Servers that share a table (Galera) leave gaps for each other.
	last := first + 4*uint64(len(rows))
	read := newQuery(0, stmtReadNew, string(tenant), first, last, publishID)
	if err := read.into(ctx, db, rows, nil); err != nil {
		return fmt.Errorf("read %d new messages back: %w", len(rows), err)
	}
	return nil
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
