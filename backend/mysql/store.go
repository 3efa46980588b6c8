package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// Bounds of a statement's lists.
const (
	// listTerms bounds OR-lists: longer ones cost the range optimizer more than
	// they save.
	listTerms = 100
	// listRows bounds lists of rows to be looked up by key.
	listRows = 200
	// listKeys bounds lists of values and of rows to be inserted.
	listKeys = 500
	// listTenants bounds lists of tenants.
	listTenants = 1_000
	// maxRead bounds the rows of one read; Vitess refuses more than 10,000.
	maxRead = 5_000
	// maxRemove bounds the rows of one clean-up.
	maxRemove = 1_000
)

// store implements [engine.Store] for one member of a group.
type store struct {
	q        *Queue
	topic    string
	group    string
	name     string
	instance uint64 // tells two subscribers of one name apart
	cfg      backend.SubscriptionConfig

	groups atomic.Int64 // of the topic, as last seen; 0: not yet

	mu     sync.Mutex
	chores map[tenants.ID]chore

	hooks storeHooks
}

// chore is what Control has seen and Beat is to do about it.
type chore struct {
	dead  []string // names of subscribers whose heartbeat has expired
	touch bool     // the registration has not been renewed for long
}

// storeHooks are for the tests that show what the protocol is for.
type storeHooks struct {
	plainRun     bool // the watermark's read takes no locks
	unlimitedRun bool // it does not stop at the end of the run
}

var _ engine.Store = (*store)(nil)

// newStore needs a configuration with its defaults filled in.
func newStore(q *Queue, topic string, cfg backend.SubscriptionConfig, instance uint64) *store {
	return &store{
		q: q, topic: topic, group: cfg.Group, name: cfg.SubscriberName, instance: instance, cfg: cfg,
		chores: make(map[tenants.ID]chore),
	}
}

// joins tells which form a [rowList] takes.
func (q *Queue) joins() bool { return !q.vitess.Load() }

// membersOf is how many tenants' members are read at once.
func (q *Queue) membersOf() int {
	if q.vitess.Load() {
		return listTenants / 4 // a tenant may have more members than fit its share of 10,000 rows
	}
	return listTenants
}

// each runs a reading statement outside any transaction.
func (s *store) each(ctx context.Context, q *query, dest []any, reset func(), fn func()) error {
	return s.q.retry(ctx, func() error {
		reset()
		return q.each(ctx, s.q.db, dest, fn)
	})
}

// exec runs a writing statement as a transaction of its own. It must be
// idempotent.
func (s *store) exec(ctx context.Context, q *query) error {
	return s.q.retry(ctx, func() error { return q.exec(ctx, s.q.db) })
}

// promptly is retry for what keeps leases and membership: handlers that hold all
// of the pool do not keep it from running.
func (s *store) promptly(ctx context.Context, fn func(*sql.Conn) error) error {
	return s.q.retry(ctx, func() error { return s.q.reserve.promptly(ctx, fn) })
}

// execPromptly is exec in this way.
func (s *store) execPromptly(ctx context.Context, q *query) error {
	return s.promptly(ctx, func(conn *sql.Conn) error { return q.exec(ctx, conn) })
}

// wrap says what was being done, and where.
func (s *store) wrap(tenant tenants.ID, doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s of tenant %q, topic %q, group %q: %w", doing, tenant, s.topic, s.group, err)
}

// millis rounds up: a wait never ends early.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func fromMillis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// maxErrorText is what [backend.Failure] promises at most to keep.
const maxErrorText = 16 << 10

// errorText makes what a handler said fit the database: valid UTF-8, cut
// between characters. NULL stands for nothing.
func errorText(text string) any {
	if text == "" {
		return nil
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	if n := maxErrorText; len(text) > n {
		for !utf8.RuneStart(text[n]) {
			n--
		}
		text = text[:n]
	}
	return text
}
