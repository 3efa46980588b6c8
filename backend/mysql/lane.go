package mysql

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// call is what one Publish has for one tenant.
type call struct {
	tenant tenants.ID
	rows   []*row
	at     []int // of the rows among the call's messages
	size   int

	done     chan struct{} // closed when the two below are final
	receipts []backend.Receipt
	err      error
}

// runnersPerLane bounds the transactions of one tenant at once: while one waits
// for its commit to reach the disk, the next can be written.
const runnersPerLane = 2

// slowTransaction is how long one keeps others from beginning: it may be waiting
// for a lock.
const slowTransaction = 20 * time.Millisecond

// lanes gather the calls that arrive while a tenant's transactions are under
// way into the next one (group commit). A call that finds nobody, or one other
// call alone, waits for nobody. Runners exist only while there is work.
//
// Beside a transaction of several calls no other one begins, unless it has
// bulkRows or more, or the first is slow: they would halve each other's batches,
// and what a transaction costs is hardly for its rows. With 16 publishers of one
// message at a time that is 7,000 msg/s instead of 4,200, measured on MariaDB
// 10.11.
type lanes struct {
	commit  func([]*call) // stores calls of one tenant and finishes them
	maxRows int
	maxSize int

	mu       sync.Mutex
	byTenant map[tenants.ID]*lane
	runners  sync.WaitGroup
}

type lane struct {
	waiting []*call
	rows    int // of waiting
	under   []*transaction
	runners int
	looking bool // a timer will look whether those under way have become slow
}

// transaction is one under way.
type transaction struct {
	calls int
	began time.Time
}

// another tells whether one more transaction may begin.
func (ln *lane) another() bool {
	if ln.rows >= bulkRows {
		return true
	}
	for _, tx := range ln.under {
		if tx.calls > 1 && time.Since(tx.began) < slowTransaction {
			return false
		}
	}
	return true
}

// serve starts a runner for those who wait, or looks again when what they wait
// for has become slow: nobody else may come along to ask.
func (l *lanes) serve(tenant tenants.ID, ln *lane) {
	switch {
	case len(ln.waiting) == 0 || ln.runners == runnersPerLane:
	case ln.another():
		ln.runners++
		l.runners.Go(func() { l.run(tenant, ln) })
	case !ln.looking:
		ln.looking = true
		time.AfterFunc(slowTransaction, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			ln.looking = false
			l.serve(tenant, ln)
		})
	}
}

func (l *lanes) add(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.byTenant[c.tenant]
	if ln == nil {
		ln = new(lane)
		l.byTenant[c.tenant] = ln
	}
	ln.waiting = append(ln.waiting, c)
	ln.rows += len(c.rows)
	l.serve(c.tenant, ln)
}

func (l *lanes) run(tenant tenants.ID, ln *lane) {
	var tx transaction
	for {
		calls := l.take(tenant, ln, &tx)
		if len(calls) == 0 {
			return
		}
		l.commit(calls)
		runtime.Gosched() // those who waited for it may have more
	}
}

// take returns the calls of the next transaction, after tx: at
// least one, and more while they stay within the bounds. Without any the runner
// has ended.
func (l *lanes) take(tenant tenants.ID, ln *lane, tx *transaction) []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln.under = slices.DeleteFunc(ln.under, func(other *transaction) bool { return other == tx })
	if len(ln.waiting) == 0 || ln.runners > 1 && !ln.another() {
		if ln.runners--; ln.runners == 0 {
			delete(l.byTenant, tenant)
		}
		l.serve(tenant, ln)
		return nil
	}
	n, rows, size := 1, len(ln.waiting[0].rows), ln.waiting[0].size
	for n < len(ln.waiting) {
		c := ln.waiting[n]
		if rows+len(c.rows) > l.maxRows || size+c.size > l.maxSize {
			break
		}
		rows += len(c.rows)
		size += c.size
		n++
	}
	calls := slices.Clone(ln.waiting[:n])
	ln.waiting = slices.Delete(ln.waiting, 0, n)
	ln.rows -= rows
	*tx = transaction{n, time.Now()}
	ln.under = append(ln.under, tx)
	return calls
}

// withdraw takes a call back that no transaction has begun with.
func (l *lanes) withdraw(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.byTenant[c.tenant]
	if ln == nil {
		return false
	}
	i := slices.Index(ln.waiting, c)
	if i < 0 {
		return false
	}
	ln.waiting = slices.Delete(ln.waiting, i, i+1)
	ln.rows -= len(c.rows)
	return true
}
