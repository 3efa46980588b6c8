package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// Publish implements [backend.Publisher]. It returns a [backend.FieldError],
// which wraps [backend.ErrTooLarge] for a payload or metadata over the cap,
// before any database access; [backend.ErrClosed]; and the errors of
// [Queue.Verify]. When one tenant's messages fail, those of the others may have
// been stored, and the error names the tenant.
//
// Concurrent calls share transactions. A caller whose ctx ends stops waiting;
// the error says whether his messages may have been stored.
func (q *Queue) Publish(ctx context.Context, msgs ...backend.Message) ([]backend.Receipt, error) {
	ctx, leave, err := q.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	calls, err := q.split(msgs)
	if err != nil || len(calls) == 0 {
		return nil, err
	}
	if err := q.ready(ctx); err != nil {
		return nil, err
	}
	for _, c := range calls {
		q.lanes.add(c)
	}
	receipts := make([]backend.Receipt, len(msgs))
	var errs []error
	for _, c := range calls {
		if err := q.await(ctx, c); err != nil {
			errs = append(errs, fmt.Errorf("publish %d messages of tenant %q: %w", len(c.rows), c.tenant, err))
			continue
		}
		for i, at := range c.at {
			receipts[at] = c.receipts[i]
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return receipts, nil
}

// split checks all messages and sorts them by tenant.
func (q *Queue) split(msgs []backend.Message) ([]*call, error) {
	var calls []*call
	byTenant := make(map[tenants.ID]*call)
	for i, m := range msgs {
		r, err := newRow(m, q.cfg)
		if err != nil {
			if len(msgs) > 1 {
				err = fmt.Errorf("message %d of %d: %w", i+1, len(msgs), err)
			}
			return nil, err
		}
		c := byTenant[m.Tenant]
		if c == nil {
			c = &call{tenant: m.Tenant, done: make(chan struct{})}
			byTenant[m.Tenant] = c
			calls = append(calls, c)
		}
		c.rows = append(c.rows, r)
		c.at = append(c.at, i)
		c.size += r.size()
	}
	return calls, nil
}

func (q *Queue) await(ctx context.Context, c *call) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	if q.lanes.withdraw(c) {
		return fmt.Errorf("%w; nothing was stored", context.Cause(ctx))
	}
	select {
	case <-c.done: // both were ready
		return c.err
	default:
		return fmt.Errorf("%w; the outcome is unknown, publishing the same ids again is safe", context.Cause(ctx))
	}
}

// commit stores the messages of calls of one tenant in one transaction, and one
// by one if that fails for good, so that one cannot fail the others.
func (q *Queue) commit(calls []*call) {
	var p publication
	err := q.commitTogether(calls, &p)
	if err == nil || len(calls) == 1 || classify(err) != classPermanent || q.ctx.Err() != nil {
		finish(calls, err)
		return
	}
	stored := make(map[identity]bool)
	for i, c := range calls {
		one := calls[i : i+1]
		err := q.commitTogether(one, &p)
		if err == nil {
			c.markRepeats(stored)
		}
		finish(one, err)
	}
}

// markRepeats calls duplicates what an earlier call of the same publication has
// stored, which [publication.ours] cannot tell.
func (c *call) markRepeats(stored map[identity]bool) {
	for i, r := range c.rows {
		if stored[r.identity] {
			c.receipts[i].Duplicate = true
		}
	}
	for _, r := range c.rows {
		stored[r.identity] = true
	}
}

func finish(calls []*call, err error) {
	for _, c := range calls {
		c.err = err
		close(c.done)
	}
}

func (q *Queue) commitTogether(calls []*call, p *publication) error {
	ctx, cancel := context.WithTimeoutCause(q.ctx, q.cfg.PublishTimeout,
		fmt.Errorf("no answer within the publish timeout of %v: %w", q.cfg.PublishTimeout, context.DeadlineExceeded))
	defer cancel()

	q.reserve.trim()
	first, distinct := distinctRows(calls)
	b := newBatch(calls[0].tenant, distinct)
	if err := q.store(ctx, b, p); err != nil {
		if classify(err) == classReconnect || ctx.Err() != nil {
			err = fmt.Errorf("%w; the outcome is unknown, publishing the same ids again is safe", err)
		}
		return err
	}
	for _, c := range calls {
		c.answer(first, p)
		q.metrics.countCall(c)
	}
	q.metrics.published.Batch(len(distinct))
	q.notify(b, p)
	return nil
}

// distinctRows makes one row of equal identities, within a call or of several.
func distinctRows(calls []*call) (first map[identity]*row, distinct []*row) {
	first = make(map[identity]*row)
	for _, c := range calls {
		for _, r := range c.rows {
			if first[r.identity] == nil {
				first[r.identity] = r
				distinct = append(distinct, r)
			}
		}
	}
	return first, distinct
}

// answer fills in the receipts. The second of two equal identities is a
// duplicate of the first.
func (c *call) answer(first map[identity]*row, p *publication) {
	c.receipts = make([]backend.Receipt, len(c.rows))
	for i, r := range c.rows {
		stored := first[r.identity]
		c.receipts[i] = backend.Receipt{Offset: stored.offset, Duplicate: stored != r || !p.ours(stored.publishID)}
	}
}

// publication tells the rows of a publish from those of others. Every run of
// its transaction has an id of its own: rows of the current run are fenced,
// rows of an earlier one, whose outcome was unknown, turned out to be committed
// and are past their fence. Both are no duplicates.
type publication struct {
	base uint64 // random
	runs uint64
}

// next returns the id of another run.
func (p *publication) next() uint64 {
	if p.runs == 0 {
		p.base = rand.Uint64() >> 1 // vtgate takes larger ones for negative when they are bound to a prepared statement
	}
	p.runs++
	return p.current()
}

func (p *publication) current() uint64        { return p.base + p.runs }
func (p *publication) ours(id uint64) bool    { return id-p.base-1 < p.runs }
func (p *publication) isFresh(id uint64) bool { return id == p.current() }

// store writes a batch in one transaction, as often as the fence asks for.
func (q *Queue) store(ctx context.Context, b *batch, p *publication) error {
	for fences := 1; ; fences++ {
		err := q.inTx(ctx, func(tx *sql.Tx) error { return q.storeIn(ctx, tx, b, p) })
		fenced, ok := errors.AsType[*fencedError](err)
		if !ok {
			return err
		}
		q.metrics.fences.Inc(1)
		if fences == maxFences {
			return fmt.Errorf("gave up after inserting %d times: %w", fences, err)
		}
		if fenced.shouldRaise(fences) {
			if err := q.raise(ctx, b.tenant, fenced); err != nil {
				return err
			}
		}
	}
}

func (q *Queue) storeIn(ctx context.Context, tx *sql.Tx, b *batch, p *publication) error {
	b.forget()
	id := p.next()
	all, err := b.insert(ctx, tx, id, q.insertBounds())
	if err != nil {
		return err
	}
	if q.hooks.inserted != nil {
		q.hooks.inserted(tx)
	}
	var marks *watermarks
	if parts := b.partitions(); len(parts) <= fenceKeys && len(all) > 0 {
		marks = &watermarks{parts: parts, above: all[0].first}
	}
	if whole, err := b.find(ctx, tx, id, all, marks); err != nil {
		return err
	} else if whole && marks != nil {
		return q.hit(marks, b, p)
	}
	if err := readBack(ctx, tx, b.tenant, b.unread(), "", nil); err != nil {
		return err
	}
	if missing := b.unread(); len(missing) > 0 {
		return lagging(ctx, tx, b.tenant, missing)
	}
	return q.fence(ctx, tx, b, p)
}

func (q *Queue) insertBounds() insertBounds {
	// On Vitess each statement is two hops.
	return insertBounds{q.cfg.MaxBatchRows, q.cfg.MaxBatchBytes, !q.vitess.Load()}
}

// fence returns a [fencedError] if a row of the current run may be skipped.
func (q *Queue) fence(ctx context.Context, db querier, b *batch, p *publication) error {
	if q.hooks.fenceOff {
		return nil
	}
	first := b.firstOffsets(p.isFresh)
	if len(first) == 0 {
		return nil
	}
	return readFence(ctx, db, b.tenant, first)
}

// hit is fence for watermarks that have been read.
func (q *Queue) hit(marks *watermarks, b *batch, p *publication) error {
	if q.hooks.fenceOff {
		return nil
	}
	return marks.hit(b.firstOffsets(p.isFresh))
}

// firstOffsets returns the lowest offset in each partition among the rows whose
// publish id is wanted.
func (b *batch) firstOffsets(wanted func(uint64) bool) map[partition]uint64 {
	first := make(map[partition]uint64)
	for _, r := range b.rows {
		if !wanted(r.publishID) {
			continue
		}
		if at, ok := first[r.partition]; !ok || r.offset < at {
			first[r.partition] = r.offset
		}
	}
	return first
}

// raise gets the counter of offsets past what it lags behind.
func (q *Queue) raise(ctx context.Context, tenant tenants.ID, e *fencedError) error {
	errUndo := errors.New("rolled back on purpose")
	err := q.inTx(ctx, func(tx *sql.Tx) error {
		if err := insertAbove(ctx, tx, tenant, e); err != nil {
			return err
		}
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		return err
	}
	q.logRaise(tenant, e)
	return nil
}

// notify wakes the subscriptions of this process for new rows: the first and
// the last of each partition say it all.
func (q *Queue) notify(b *batch, p *publication) {
	var wakes []engine.Wake
	for _, r := range b.rows { // sorted by partition, offsets ascending
		if !p.ours(r.publishID) {
			continue
		}
		w := engine.Wake{Tenant: b.tenant, Topic: r.topic, Key: r.key, Offset: r.offset}
		if n := len(wakes); n > 1 && sameStream(wakes[n-1], w) && sameStream(wakes[n-2], w) {
			wakes[n-1] = w
			continue
		}
		wakes = append(wakes, w)
	}
	q.hub.Notify(wakes...)
}

func sameStream(a, b engine.Wake) bool { return a.Topic == b.Topic && a.Key == b.Key }
