package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// reserveWait bounds the wait for a connection while the callers of PublishTx
// may hold all of them.
const reserveWait = 3 * time.Second

// reserve is what PublishTx reads on beside the caller's transaction: a pool of
// its own, or one connection kept aside from the queue's.
type reserve struct {
	own *sql.DB // Params.Reserve
	db  *sql.DB

	// turn is held by whoever uses conn; conn is nil until kept, after it
	// broke, and after close.
	turn   chan struct{}
	conn   *sql.Conn
	closed bool
}

func newReserve(db, own *sql.DB) *reserve {
	return &reserve{own: own, db: db, turn: make(chan struct{}, 1)}
}

// keep puts a connection aside if there is none, and tells whether it did. A
// pool of one connection keeps none: nothing else could work.
func (r *reserve) keep(conn *sql.Conn) bool {
	if r.own != nil || r.db.Stats().MaxOpenConnections == 1 {
		return false
	}
	select {
	case r.turn <- struct{}{}:
	default: // in use, so there is one
		return false
	}
	defer func() { <-r.turn }()
	if r.conn != nil || r.closed {
		return false
	}
	r.conn = conn
	return true
}

// use runs fn, which must be idempotent, on the reserve: again on a new
// connection if the one kept turns out to be broken.
func (r *reserve) use(ctx context.Context, fn func(querier) error) error {
	if r.own != nil {
		return fn(r.own)
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if r.conn != nil {
		err := fn(r.conn)
		if !r.broke(err) || ctx.Err() != nil {
			return err
		}
	}
	if err := r.take(ctx); err != nil {
		return err
	}
	err := fn(r.conn)
	r.broke(err)
	return err
}

func (r *reserve) broke(err error) bool {
	if c := classify(err); c != classReconnect && c != classFailover && !errors.Is(err, sql.ErrConnDone) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) { // the driver closes on cancel
		return false
	}
	drop(r.conn)
	_ = r.conn.Close()
	r.conn = nil
	return true
}

func (r *reserve) take(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, reserveWait)
	defer cancel()
	conn, err := r.db.Conn(wait)
	if err != nil {
		if wait.Err() != nil && ctx.Err() == nil {
			return fmt.Errorf("no connection free within %v to read watermarks on, all %d are in use: "+
				"call Verify before transactions hold the pool, give it more connections, or set Params.Reserve",
				reserveWait, r.db.Stats().MaxOpenConnections)
		}
		return fmt.Errorf("take a connection to read watermarks on: %w", err)
	}
	r.conn = conn
	return nil
}

// close gives the connection back. It waits for whoever uses it.
func (r *reserve) close() {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.closed = true
	if r.conn != nil {
		_ = r.conn.Close()
		r.conn = nil
	}
}
