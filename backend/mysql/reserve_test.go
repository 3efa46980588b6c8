package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/tenants"
)

// killReserve ends the connections that are kept aside, behind the queue's back.
func killReserve(t testing.TB, q *Queue, db *sql.DB) {
	t.Helper()
	for range len(q.reserve.kept) {
		conn := <-q.reserve.kept
		id := queryInt(t, conn.Conn, "SELECT CONNECTION_ID()")
		mustExec(t, db, fmt.Sprintf("KILL CONNECTION %d", id))
		q.reserve.kept <- conn
	}
}

// holdAll takes every connection that a pool has left, as an application may.
func holdAll(t testing.TB, db *sql.DB) (giveBack func()) {
	t.Helper()
	var held []*sql.Conn
	for db.Stats().InUse < db.Stats().MaxOpenConnections {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		conn, err := db.Conn(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			continue // the queue was faster
		}
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	return func() {
		for _, conn := range held {
			_ = conn.Close()
		}
		held = nil
	}
}

// deliverOne subscribes and returns a delivery that is in a handler's hands.
func deliverOne(t testing.TB, q *Queue, lease time.Duration) backend.Delivery {
	t.Helper()
	sub, err := q.Subscribe(t.Context(), "t", backend.SubscriptionConfig{Group: "g", LeaseDuration: lease})
	if err != nil {
		t.Fatal(err)
	}
	mustPublish(t, q, message("a", "t", "k", 1))
	select {
	case d := <-sub.Deliveries():
		return d
	case <-time.After(20 * time.Second):
		t.Fatal("no delivery")
		return nil
	}
}

// A handler runs while the application holds the whole pool, for several lease
// durations: its lease is kept, whether the reserve is of the pool or one of its
// own, and the connections that it is made of break meanwhile.
func TestExhaustedPoolKeepsLeases(t *testing.T) {
	const lease = 1500 * time.Millisecond
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprintf("own reserve=%v", own), func(t *testing.T) {
			t.Parallel()
			dsn := testdb.DSN(t)
			admin := openDB(t, dsn)
			if err := Migrate(t.Context(), admin); err != nil {
				t.Fatal(err)
			}
			p := Params{DB: openDB(t, dsn), Tenants: someTenants(t)}
			p.DB.SetMaxOpenConns(5)
			if own {
				p.Reserve = openDB(t, dsn)
				p.Reserve.SetMaxOpenConns(DefaultReserveConns)
			}
			q := newTestQueue(t, p)
			d := deliverOne(t, q, lease)
			var epoch uint64
			mustScan(t, admin, &epoch, "SELECT lease_epoch FROM queue_partition_leases WHERE topic = 't'")

			giveBack := holdAll(t, p.DB)
			defer giveBack()
			leaseLasts(t, admin, 2*lease)
			killReserve(t, q, admin)
			leaseLasts(t, admin, 2*lease)
			if err := d.Context().Err(); err != nil {
				t.Errorf("the delivery has ended: %v", context.Cause(d.Context()))
			}
			if n := queryInt(t, admin, "SELECT COUNT(*) FROM queue_subscriber_heartbeats WHERE expires_at > "+nowMillis); n != 1 {
				t.Errorf("%d live heartbeats", n)
			}

			giveBack()
			if err := d.Ack(t.Context()); err != nil {
				t.Error(err)
			}
			var after uint64
			mustScan(t, admin, &after, "SELECT COALESCE(MAX(lease_epoch), ?) FROM queue_partition_leases WHERE topic = 't'", epoch)
			if after != epoch {
				t.Errorf("the lease was taken anew: epoch %d, then %d", epoch, after)
			}
		})
	}
}

// leaseLasts watches the database for a while, in which no lease may be over.
func leaseLasts(t testing.TB, db *sql.DB, during time.Duration) {
	t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if n := queryInt(t, db, "SELECT COUNT(*) FROM queue_partition_leases WHERE lease_expires_at <= "+nowMillis); n != 0 {
			t.Fatalf("%d leases are over", n)
		}
	}
}

func mustScan(t testing.TB, db querier, dest any, query string, args ...any) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(dest); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// The reserve is as large as asked for, but never more than half of the pool.
func TestReserveIsKeptAside(t *testing.T) {
	for _, c := range []struct{ open, size, want int }{
		{0, 0, DefaultReserveConns}, {32, 0, DefaultReserveConns}, {32, 5, 5}, {4, 5, 2}, {3, 2, 1}, {2, 16, 1}, {1, 2, 0},
	} {
		db := migratedDB(t)
		db.SetMaxOpenConns(c.open)
		q := newTestQueue(t, Params{DB: db, ReserveConns: c.size})
		for range 2 { // once more keeps no more
			if err := q.Verify(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(q.reserve.kept); got != c.want || db.Stats().InUse != c.want {
			t.Errorf("%d of %d connections: %d are kept aside, %d in use, want %d", c.size, c.open, got, db.Stats().InUse, c.want)
		}
	}
	for _, size := range []int{-1, MaxReserveConns + 1} {
		_, err := NewQueue(Params{DB: migratedDB(t), ReserveConns: size})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("reserve connections %d: want 1 to 16", size)) {
			t.Errorf("%d connections: got %v", size, err)
		}
	}
}

// A connection that was lost while the pool had none to replace it comes back
// with the next one that the pool has free; an old one is replaced, since
// nothing would show that it leads nowhere any more.
func TestReserveIsReplenished(t *testing.T) {
	q, db := onDB(t)
	if err := q.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := q.reserve
	lost := <-r.kept
	drop(lost.Conn)
	r.missing <- struct{}{}
	nothing := func(*sql.Conn) error { return nil }
	if err := r.promptly(t.Context(), nothing); err != nil {
		t.Fatal(err)
	}
	if got := len(r.kept); got != DefaultReserveConns || len(r.missing) != 0 {
		t.Fatalf("%d connections are kept aside", got)
	}

	old := <-r.kept
	old.since = time.Now().Add(-2 * DefaultConnMaxLifetime)
	r.kept <- old
	r.kept <- <-r.kept // the old one is first
	if err := r.promptly(t.Context(), nothing); err != nil {
		t.Fatal(err)
	}
	for range DefaultReserveConns {
		conn := <-r.kept
		if time.Since(conn.since) > DefaultConnMaxLifetime {
			t.Error("the old connection is still kept aside")
		}
		r.kept <- conn
	}
	if got := db.Stats().InUse; got != DefaultReserveConns {
		t.Errorf("%d connections in use", got)
	}
}

// The server goes down and comes back: what was kept aside is dead, and the
// application has taken the whole pool again before the queue could.
func TestReserveWorksAfterTheServerRestarted(t *testing.T) {
	server := testdb.StartServer(t)
	db := openDB(t, server.Database(t))
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(4)
	set, err := tenants.New("a")
	if err != nil {
		t.Fatal(err)
	}
	q := newTestQueue(t, Params{DB: db, Tenants: set})
	if err := q.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	var txs []*sql.Tx
	for range 4 - len(q.reserve.kept) {
		txs = append(txs, begin(t, db))
	}
	for i, tx := range txs {
		mustPublishTx(t, q, tx, message("a", "t", fmt.Sprintf("k%d", i), 1))
	}
	for _, tx := range txs {
		mustCommit(t, tx)
	}
	if got := len(q.reserve.kept); got == 0 {
		t.Error("nothing is kept aside any more")
	}
}

// A pool that is made smaller later must not be all reserve.
func TestReserveShrinksWithThePool(t *testing.T) {
	_, db := onDB(t)
	db.SetMaxOpenConns(10)
	q := newTestQueue(t, Params{DB: db})
	if err := q.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Publish(t.Context(), message(tenantA, topicA, "key", 1)); err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(2)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := q.Publish(ctx, message(tenantA, topicA, "key", 2)); err != nil {
		t.Errorf("publish on a pool of 2: %v", err)
	}
}
