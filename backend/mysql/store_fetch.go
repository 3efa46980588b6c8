package mysql

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

const (
	// fetchDeepTerms bounds the branches of a UNION ALL.
	fetchDeepTerms = 50
	// fetchNear is up to how many messages a range is expected to hold no more
	// than wanted, whatever it asks for.
	fetchNear = 8
)

// Fetch implements [engine.Store]. The result has the order of ranges, which
// have distinct keys.
//
// Ranges that hold few messages are read together, as conditions of one SELECT:
// those whose bounds say so, and those that want a few, as partitions of one
// message do. Should there turn out to be more, and for all others, each range
// has a SELECT with a LIMIT of its own, which costs the server three times as
// much.
func (s *store) Fetch(ctx context.Context, tenant tenants.ID, ranges []engine.Range) ([]engine.Fetched, error) {
	f := fetch{store: s, tenant: tenant, fetched: make([]engine.Fetched, len(ranges)), at: make(map[string]int, len(ranges))}
	var short, near, deep []engine.Range
	for i, r := range ranges {
		f.fetched[i].Key, f.at[r.Key] = r.Key, i
		switch {
		case len(r.Only) > 0 || r.Through > r.After && r.Through-r.After <= uint64(r.Limit):
			short = append(short, r)
		case r.Through <= r.After || r.Limit <= 0:
		case r.Limit <= fetchNear:
			near = append(near, r)
		default:
			deep = append(deep, r)
		}
	}
	err := f.read(short, listTerms, func(chunk []engine.Range, _ int) error {
		_, err := f.scan(ctx, chunk, s.fetchShort(tenant, chunk))
		return err
	})
	if err != nil {
		return nil, err
	}
	err = f.read(near, listTerms, func(chunk []engine.Range, rows int) error {
		n, err := f.scan(ctx, chunk, s.fetchShort(tenant, chunk).add(limitRows, rows+1))
		if n > rows { // others may be cut off
			deep = append(deep, chunk...)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	err = f.read(deep, fetchDeepTerms, func(chunk []engine.Range, _ int) error {
		_, err := f.scan(ctx, chunk, s.fetchDeep(tenant, chunk))
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, r := range ranges {
		got := &f.fetched[i]
		if len(r.Only) == 0 && len(got.Messages) > r.Limit {
			clear(got.Messages[r.Limit:])
			got.Messages = got.Messages[:r.Limit]
			continue
		}
		n := len(got.Messages)
		got.Exhausted = len(r.Only) > 0 || n < r.Limit || n > 0 && got.Messages[n-1].Offset == r.Through
	}
	return f.fetched, nil
}

// fetch is one call of Fetch.
type fetch struct {
	*store
	tenant  tenants.ID
	fetched []engine.Fetched
	at      map[string]int // by key
}

// read cuts ranges into as few chunks as the bounds of a statement allow, and
// says how many rows each may ask for.
func (f *fetch) read(ranges []engine.Range, terms int, statement func(chunk []engine.Range, rows int) error) error {
	for len(ranges) > 0 {
		n, rows := 1, most(ranges[0])
		for n < len(ranges) && n < terms && rows+most(ranges[n]) <= maxRead {
			rows += most(ranges[n])
			n++
		}
		if err := statement(ranges[:n], rows); err != nil {
			return f.wrap(f.tenant, fmt.Sprintf("fetch from %d partitions", n), err)
		}
		ranges = ranges[n:]
	}
	return nil
}

// most is the number of rows that a range may hold.
func most(r engine.Range) int {
	if len(r.Only) > 0 {
		return len(r.Only)
	}
	return int(min(r.Through-r.After, uint64(r.Limit)))
}

func (s *store) fetchShort(tenant tenants.ID, ranges []engine.Range) *query {
	q := newQuery(2*len(ranges), stmtFetch, string(tenant), s.topic)
	for i, r := range ranges {
		if len(r.Only) == 0 {
			q.item(i, " OR ", fetchRange, r.Key, r.After, r.Through)
			continue
		}
		offsets := make([]any, len(r.Only))
		for j, offset := range r.Only {
			offsets[j] = offset
		}
		q.item(i, " OR ", fetchOnly, r.Key)
		q.in(offsets...).add(")")
	}
	return q.add(fetchOrdered)
}

func (s *store) fetchDeep(tenant tenants.ID, ranges []engine.Range) *query {
	q := newQuery(8*len(ranges), "")
	for i, r := range ranges {
		q.item(i, " UNION ALL ", stmtFetchDeep, string(tenant), s.topic, r.Key, r.After, r.Through, r.Limit)
	}
	return q
}

// scan adds the messages of a statement to those of its ranges, and counts
// them.
func (f *fetch) scan(ctx context.Context, ranges []engine.Range, q *query) (rows int, err error) {
	var m stored
	err = f.each(ctx, q, m.columns(), func() {
		rows = 0
		for _, r := range ranges {
			f.fetched[f.at[r.Key]].Messages = nil
		}
	}, func() {
		rows++
		if i, ok := f.at[m.key]; ok {
			f.fetched[i].Messages = append(f.fetched[i].Messages, m.message(f.tenant, f.topic, f.group))
		}
	})
	return rows, err
}

// stored is a row of queue_messages in messageColumns.
type stored struct {
	key, id        string
	offset         uint64
	payload        []byte
	metadata       sqlBytes
	publishedAt    int64
	targetGroup    string
	originalTopic  string
	originalID     string
	originalOffset uint64
	failedGroup    string
	failedAt       int64
	failures       int
	lastError      sqlBytes
}

// sqlBytes is overwritten by the next row.
type sqlBytes []byte

func (b *sqlBytes) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*b = (*b)[:0]
	case []byte:
		*b = append((*b)[:0], v...)
	case string:
		*b = append((*b)[:0], v...)
	default:
		return fmt.Errorf("unexpected %T", v)
	}
	return nil
}

func (m *stored) columns() []any {
	return []any{
		&m.key, &m.offset, &m.id, &m.payload, &m.metadata, &m.publishedAt, &m.targetGroup, &m.originalTopic, &m.originalID,
		&m.originalOffset, &m.failedGroup, &m.failedAt, &m.failures, &m.lastError,
	}
}

// message is the row as a group sees it. A row with an original topic is a dead
// letter; one with an original id alone has been redriven and goes by that id.
func (m *stored) message(tenant tenants.ID, topic, group string) engine.Message {
	msg := engine.Message{
		Message: backend.Message{
			Tenant: tenant, Topic: topic, PartitionKey: m.key, ID: m.id, Payload: m.payload, Metadata: decodeMetadata(m.metadata),
			Offset: m.offset, PublishedAt: time.UnixMilli(m.publishedAt).UTC(),
		},
		Skip: m.targetGroup != "" && m.targetGroup != group,
	}
	switch {
	case m.originalTopic != "":
		msg.Failure = &backend.Failure{
			OriginalTopic: m.originalTopic, OriginalID: m.originalID, OriginalOffset: m.originalOffset, Group: m.failedGroup,
			Attempts: m.failures, LastError: string(m.lastError), FailedAt: time.UnixMilli(m.failedAt).UTC(),
		}
	case m.originalID != "":
		msg.ID = m.originalID
	}
	return msg
}

// decodeMetadata takes what encodeMetadata has written, and makes the best of
// JSON that somebody wrote by hand: an error would hold up the partition for
// good.
func decodeMetadata(text []byte) map[string]string {
	if string(text) == "{}" {
		return nil
	}
	var metadata map[string]string
	if json.Unmarshal(text, &metadata) == nil {
		return metadata
	}
	var raw map[string]json.RawMessage
	if json.Unmarshal(text, &raw) != nil {
		return map[string]string{"": string(text)}
	}
	metadata = make(map[string]string, len(raw))
	for name, value := range raw {
		var s string
		if json.Unmarshal(value, &s) != nil {
			s = string(value)
		}
		metadata[name] = s
	}
	return metadata
}
