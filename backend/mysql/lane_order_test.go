package mysql

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenantmq/tenantmq/tenants"
)

// heldTx is a transaction of lanes that lasts until done is closed.
type heldTx struct {
	calls int
	done  chan struct{}
}

// heldLanes have transactions that last.
type heldLanes struct {
	*testing.T
	lanes
	begun chan *heldTx
}

func newHeldLanes(t *testing.T) *heldLanes {
	l := &heldLanes{T: t, begun: make(chan *heldTx, 100)}
	l.lanes = lanes{byTenant: make(map[tenants.ID]*lane), maxRows: 1000, maxSize: 1 << 20, commit: func(calls []*call) {
		tx := &heldTx{len(calls), make(chan struct{})}
		l.begun <- tx
		<-tx.done
	}}
	return l
}

// call adds calls, each of some rows.
func (l *heldLanes) call(n, rows int) {
	for range n {
		l.add(&call{tenant: "a", rows: make([]*row, rows)})
	}
}

// next returns the only transaction that has begun since, nil for none.
func (l *heldLanes) next() *heldTx {
	l.Helper()
	synctest.Wait()
	var tx *heldTx
	select {
	case tx = <-l.begun:
	default:
	}
	if len(l.begun) > 0 {
		l.Fatalf("one more transaction has begun, of %d calls", (<-l.begun).calls)
	}
	return tx
}

// several brings about a transaction of five calls, with none beside it.
func (l *heldLanes) several() *heldTx {
	l.Helper()
	l.call(1, 1)
	first := l.next()
	l.call(1, 1)
	second := l.next()
	if first == nil || second == nil {
		l.Fatal("two calls do not run at once")
	}
	l.call(5, 1)
	if tx := l.next(); tx != nil {
		l.Fatalf("a third transaction began, of %d calls", tx.calls)
	}
	close(first.done)
	third := l.next()
	if third == nil || third.calls != 5 {
		l.Fatalf("behind the first came %+v, want the five calls that waited", third)
	}
	close(second.done)
	if tx := l.next(); tx != nil {
		l.Fatalf("nothing waited, and a transaction began of %d calls", tx.calls)
	}
	return third
}

// A second transaction begins beside one of a single call, not beside one of
// several, unless there is much to do or the first is slow.
func TestWhenASecondTransactionBegins(t *testing.T) {
	for name, c := range map[string]struct {
		rows   int
		passed time.Duration
		want   bool
	}{
		"few rows":               {1, slowTransaction - 1, false},
		"many rows":              {bulkRows, 0, true},
		"few rows, a slow first": {1, slowTransaction, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newHeldLanes(t)
				third := l.several()
				time.Sleep(c.passed)
				l.call(1, c.rows)
				beside := l.next()
				if began := beside != nil; began != c.want {
					t.Errorf("beside one of five calls another began: %v, want %v", began, c.want)
				}
				close(third.done)
				if beside == nil {
					if beside = l.next(); beside == nil {
						t.Fatal("the call was left behind")
					}
				}
				close(beside.done)
				l.runners.Wait()
				if len(l.byTenant) > 0 {
					t.Error("the lane is still there, with nothing to do")
				}
			})
		})
	}
}

// A call that comes beside a transaction of several, which turns out to be stuck,
// begins on its own before long, although nobody else comes along; and quick ones
// beside the stuck one do not make it look young.
func TestNobodyWaitsForAStuckTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newHeldLanes(t)
		stuck := l.several()
		for range 10 {
			l.call(1, 1)
			time.Sleep(slowTransaction)
			quick := l.next()
			if quick == nil {
				t.Fatal("a call waits for the stuck transaction")
			}
			close(quick.done)
		}
		close(stuck.done)
		l.runners.Wait()
	})
}
