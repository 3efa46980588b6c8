package mysql

import (
	"slices"
	"sync"

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

// runnersPerLane is the number of transactions of one tenant at once: while
// one waits for its commit to reach the disk, the next can be written.
const runnersPerLane = 2

// lanes gather the calls that arrive while a tenant's transactions are under
// way into the next one (group commit). A call that finds a runner free waits
// for nobody. Runners exist only while there is work.
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
	runners int
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
	if ln.runners < runnersPerLane {
		ln.runners++
		l.runners.Go(func() { l.run(c.tenant, ln) })
	}
}

func (l *lanes) run(tenant tenants.ID, ln *lane) {
	for {
		calls := l.take(tenant, ln)
		if len(calls) == 0 {
			return
		}
		l.commit(calls)
	}
}

// take returns the calls of the next transaction: at least one, and more while
// they stay within the bounds. Without any the runner has ended.
func (l *lanes) take(tenant tenants.ID, ln *lane) []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(ln.waiting) == 0 {
		if ln.runners--; ln.runners == 0 {
			delete(l.byTenant, tenant)
		}
		return nil
	}
	n, rows, size := 1, len(ln.waiting[0].rows), ln.waiting[0].size
	for n < len(ln.waiting) {
		rows += len(ln.waiting[n].rows)
		size += ln.waiting[n].size
		if rows > l.maxRows || size > l.maxSize {
			break
		}
		n++
	}
	calls := slices.Clone(ln.waiting[:n])
	ln.waiting = slices.Delete(ln.waiting, 0, n)
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
	return true
}
