package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Number of connections of the reserve.
const (
	DefaultReserveConns = 2
	MaxReserveConns     = 16
)

const (
	// reserveWait bounds the wait for a connection while others may hold all of
	// them.
	reserveWait = 3 * time.Second
	// promptWait bounds the wait for a connection of the pool where the reserve
	// may be used instead.
	promptWait = 100 * time.Millisecond
)

// reserve lends connections to what must not wait until others have done with
// theirs: PublishTx, whose callers may hold all of the pool, and the keeping of
// leases, while handlers may. They are those of a pool of its own, or some kept
// aside from the queue's.
//
// A place of the reserve is in one of three: kept, with a connection; missing,
// without one; or lent, with whoever took it out of the other two.
type reserve struct {
	own *sql.DB // Params.Reserve, and no places
	db  *sql.DB

	kept    chan keptConn
	missing chan struct{}
}

type keptConn struct {
	*sql.Conn
	since time.Time
}

func newReserve(db, own *sql.DB, size int) *reserve {
	if own != nil {
		size = 0
	}
	r := &reserve{own: own, db: db, kept: make(chan keptConn, size), missing: make(chan struct{}, size)}
	for range size {
		r.missing <- struct{}{}
	}
	return r
}

// limit is how many connections may be kept aside: at most half of the pool, so
// that there is something they are aside from.
func (r *reserve) limit() int {
	if most := r.db.Stats().MaxOpenConnections; most > 0 {
		return min(cap(r.missing), most/2)
	}
	return cap(r.missing)
}

// keep puts a connection aside, in place of one that is missing or old, and tells
// whether it did.
func (r *reserve) keep(conn *sql.Conn) bool {
	select {
	case <-r.missing:
		return r.put(keptConn{conn, time.Now()})
	default:
	}
	select {
	case old := <-r.kept:
		if time.Since(old.since) < DefaultConnMaxLifetime {
			r.kept <- old
			return false
		}
		_ = old.Close() // to the pool, which knows what has expired
		return r.put(keptConn{conn, time.Now()})
	default:
		return false
	}
}

// put gives back the place that conn has, with it or, beyond the limit, without.
func (r *reserve) put(conn keptConn) bool {
	if cap(r.missing)-len(r.missing) > r.limit() {
		r.missing <- struct{}{}
		return false
	}
	r.kept <- conn
	return true
}

// trim gives back what the pool has become too small for.
func (r *reserve) trim() {
	for cap(r.missing)-len(r.missing) > r.limit() {
		select {
		case conn := <-r.kept:
			_ = conn.Close()
			r.missing <- struct{}{}
		default:
			return // lent
		}
	}
}

// fill puts aside what is missing, as far as the pool has it at once.
func (r *reserve) fill(ctx context.Context) {
	for range len(r.missing) {
		conn, err := r.free(ctx)
		if err != nil || conn == nil {
			return
		}
		if !r.keep(conn) {
			_ = conn.Close()
			return
		}
	}
}

// free takes a connection from the pool, nil if it has none to spare.
func (r *reserve) free(ctx context.Context) (*sql.Conn, error) {
	if s := r.db.Stats(); s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections {
		return nil, nil
	}
	wait, cancel := context.WithTimeout(ctx, promptWait)
	defer cancel()
	conn, err := r.db.Conn(wait)
	if err != nil && wait.Err() != nil && ctx.Err() == nil {
		return nil, nil
	}
	return conn, err
}

// promptly runs fn on a connection of the pool, or on the reserve if all are in
// use. Then fn may run more than once, as in use.
func (r *reserve) promptly(ctx context.Context, fn func(*sql.Conn) error) error {
	conn, err := r.free(ctx)
	if err != nil {
		return err
	}
	if conn == nil {
		return r.use(ctx, fn)
	}
	err = fn(conn)
	if broke(conn, err) || !r.keep(conn) {
		_ = conn.Close()
	}
	return err
}

// use runs fn, which must be idempotent, on the reserve: again on another
// connection if one that was kept turns out to be broken.
func (r *reserve) use(ctx context.Context, fn func(*sql.Conn) error) error {
	for {
		conn, fresh, err := r.lend(ctx)
		if err != nil {
			return err
		}
		err = fn(conn.Conn)
		gone := broke(conn.Conn, err)
		r.giveBack(conn, gone)
		if !gone || fresh || ctx.Err() != nil {
			return err
		}
	}
}

func (r *reserve) lend(ctx context.Context) (conn keptConn, fresh bool, err error) {
	if r.own != nil {
		conn, err := r.take(ctx, r.own)
		return conn, true, err
	}
	select { // rather than to wait for the pool
	case conn := <-r.kept:
		return conn, false, nil
	default:
	}
	select {
	case conn := <-r.kept:
		return conn, false, nil
	case <-r.missing:
		if conn, err = r.take(ctx, r.db); err != nil {
			r.missing <- struct{}{}
		}
		return conn, true, err
	case <-ctx.Done():
		return conn, false, context.Cause(ctx)
	}
}

func (r *reserve) giveBack(conn keptConn, gone bool) {
	switch {
	case r.own != nil:
		_ = conn.Close()
	case gone:
		_ = conn.Close()
		r.missing <- struct{}{}
	case !r.put(conn):
		_ = conn.Close()
	}
}

func (r *reserve) take(ctx context.Context, db *sql.DB) (keptConn, error) {
	wait, cancel := context.WithTimeout(ctx, reserveWait)
	defer cancel()
	conn, err := db.Conn(wait)
	if err != nil {
		if wait.Err() != nil && ctx.Err() == nil {
			return keptConn{}, fmt.Errorf("no connection free within %v, all %d are in use and none is in reserve: "+
				"call Verify before others hold the pool, give it more connections, or set Params.Reserve",
				reserveWait, db.Stats().MaxOpenConnections)
		}
		return keptConn{}, fmt.Errorf("take a connection of the reserve: %w", err)
	}
	return keptConn{conn, time.Now()}, nil
}

// broke tells whether conn is of no more use after err, and sees to it that the
// pool closes it.
func broke(conn *sql.Conn, err error) bool {
	c := classify(err)
	if c != classReconnect && c != classFailover && !errors.Is(err, context.Canceled) &&
		!errors.Is(err, context.DeadlineExceeded) && // the driver closes on cancel
		conn.Raw(func(any) error { return nil }) == nil { // else it was dropped already
		return false
	}
	drop(conn)
	return true
}

// close gives all connections back. It waits for whoever uses one.
func (r *reserve) close() {
	for range cap(r.missing) {
		select {
		case conn := <-r.kept:
			_ = conn.Close()
		case <-r.missing:
		}
	}
}
