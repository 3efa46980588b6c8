package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// ErrRetryTransaction is returned by PublishTx when the database has ended or
// crippled the caller's transaction in a way that another run may not meet: a
// deadlock, a lock timeout, a lost connection. Roll back and run the whole
// transaction again.
var ErrRetryTransaction = errors.New("roll back and run the transaction again")

// PublishTx implements [backend.Publisher] for a transaction on the queue's
// database, from whatever pool. The errors are those of Publish; one for
// messages of several tenants; and [ErrRetryTransaction].
//
// The queue looks at its watermarks on a connection that it keeps aside, since
// the caller's transaction may have an older snapshot and the caller may hold
// all other connections. While tx is open the watermarks of its partitions do
// not move, and publishing the same ids elsewhere waits for it: keep it short.
// Subscriptions of this process notice the messages at their next poll, not at
// once: the queue cannot see the commit. The metrics count the messages when this
// returns, whether or not tx is rolled back later.
func (q *Queue) PublishTx(ctx context.Context, tx *sql.Tx, msgs ...backend.Message) ([]backend.Receipt, error) {
	ctx, leave, err := q.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if tx == nil {
		return nil, &backend.FieldError{Field: "tx", Rule: "must not be nil; Publish needs none"}
	}
	calls, err := q.split(msgs)
	if err != nil || len(calls) == 0 {
		return nil, err
	}
	if len(calls) > 1 {
		return nil, &backend.FieldError{
			Field: "tenant", Value: fmt.Sprintf("%q beside %q", calls[1].tenant, calls[0].tenant),
			Rule: "one transaction publishes for one tenant, whose rows are on one shard",
		}
	}
	if err := q.ready(ctx); err != nil {
		return nil, err
	}
	c := calls[0]
	if err := q.publishTx(ctx, tx, c); err != nil {
		q.metrics.countError(err)
		switch {
		case classify(err) != classPermanent:
			err = fmt.Errorf("%w: %w", ErrRetryTransaction, err)
		case isMultiShard(err):
			err = fmt.Errorf("%w; the transaction has touched another shard: route its tables by the tenant as the queue's are", err)
		}
		return nil, fmt.Errorf("publish %d messages of tenant %q in a transaction: %w", len(c.rows), c.tenant, err)
	}
	return c.receipts, nil
}

func (q *Queue) publishTx(ctx context.Context, tx *sql.Tx, c *call) error {
	first, distinct := distinctRows([]*call{c})
	b := newBatch(c.tenant, distinct)
	var p publication
	if err := q.storeInCallers(ctx, tx, b, &p); err != nil {
		return err
	}
	c.answer(first, &p)
	q.metrics.published.Batch(len(distinct))
	q.metrics.countCall(c)
	return nil
}

// storeInCallers writes a batch inside a savepoint, as often as the fence asks
// for. After an error that leaves the transaction alive nothing of it remains.
func (q *Queue) storeInCallers(ctx context.Context, tx *sql.Tx, b *batch, p *publication) error {
	for fences := 1; ; fences++ {
		if _, err := tx.ExecContext(ctx, stmtSavepoint); err != nil {
			return err
		}
		err := q.insertInCallers(ctx, tx, b, p)
		if err == nil {
			_, err = tx.ExecContext(ctx, stmtReleaseSavepoint)
			return err
		}
		// Not with ctx, which may be why it failed.
		if _, undoErr := tx.ExecContext(context.WithoutCancel(ctx), stmtRollbackTo); undoErr != nil {
			if classify(err) == classPermanent {
				return errors.Join(err, undoErr)
			}
			return err // the transaction has ended, and the savepoint with it
		}
		fenced, ok := errors.AsType[*fencedError](err)
		if !ok {
			return err
		}
		q.metrics.fences.Inc(1)
		if fences == maxFences {
			return fmt.Errorf("gave up after inserting %d times: %w", fences, err)
		}
		if fenced.shouldRaise(fences) {
			if err := q.raiseInCallers(ctx, tx, b.tenant, fenced); err != nil {
				return err
			}
		}
	}
}

func (q *Queue) insertInCallers(ctx context.Context, tx *sql.Tx, b *batch, p *publication) error {
	b.forget()
	id := p.next()
	all, err := b.insert(ctx, tx, id, q.insertBounds())
	if err != nil {
		return err
	}
	if _, err := b.find(ctx, tx, id, all, nil); err != nil {
		return err
	}
	// The snapshot of the transaction may be as old as its first read. It
	// shows our own rows; other rows of the same ids may be long gone, or have
	// been stored since. The insert has locked those that are stored, so the
	// reserve finds them; those this transaction stored earlier only a locking
	// read finds, and it locks nothing that is not locked already.
	if err := readBack(ctx, tx, b.tenant, b.unread(), "", p.isFresh); err != nil {
		return err
	}
	if others := b.unread(); len(others) > 0 {
		if err := q.reserve.use(ctx, func(db *sql.Conn) error { return readBack(ctx, db, b.tenant, others, "", nil) }); err != nil {
			return err
		}
	}
	if err := readBack(ctx, tx, b.tenant, b.unread(), lockInShare, nil); err != nil {
		return err
	}
	missing := b.unread()
	return q.reserve.use(ctx, func(db *sql.Conn) error {
		if len(missing) > 0 {
			return lagging(ctx, db, b.tenant, missing)
		}
		return q.fence(ctx, db, b, p)
	})
}

// raiseInCallers raises the counter inside the caller's transaction: on another
// connection the row might wait for a lock that the caller holds.
func (q *Queue) raiseInCallers(ctx context.Context, tx *sql.Tx, tenant tenants.ID, e *fencedError) error {
	if _, err := tx.ExecContext(ctx, stmtSavepoint); err != nil {
		return err
	}
	if err := insertAbove(ctx, tx, tenant, e); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, stmtRollbackTo); err != nil {
		return err
	}
	q.logRaise(tenant, e)
	return nil
}
