package memory

import (
	"database/sql"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/backendtest"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(*testing.T) backendtest.Storage { return storage{newTables()} })
}

// storage lets the queues of several processes meet in one set of tables.
type storage struct{ tables *tables }

var limits = Config{MaxPayload: 64 << 10, MaxMetadata: 4 << 10}

func (s storage) Open(t *testing.T, set tenants.Set) backendtest.Queue {
	q, err := open(Params{Tenants: set, Config: limits}, s.tables)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func (s storage) Cut(_ *testing.T, q backendtest.Queue) (mend func()) {
	severed := &q.(*Queue).severed
	severed.Store(true)
	return func() { severed.Store(false) }
}

func (storage) DB() *sql.DB { return nil }

func (storage) Limits() (payload, metadata int) { return limits.MaxPayload, limits.MaxMetadata }

func (s storage) Delete(_ *testing.T, m backend.Message) { s.tables.delete(m) }

func (s storage) Rows(_ *testing.T, list ...tenants.ID) map[string]int {
	n := s.tables.stats(list)
	return map[string]int{
		"messages": n.Messages, "states": n.States, "watermarks": n.Watermarks, "leases": n.Leases,
		backendtest.Heartbeats: n.Heartbeats,
	}
}

// delete takes a message away behind everybody's back.
func (tb *tables) delete(m backend.Message) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	t := tb.topic(m.Tenant, m.Topic)
	if p := t.find(m.PartitionKey); p != nil && p.ids[m.ID] != nil {
		p.remove(p.ids[m.ID].offset)
		t.file(p)
	}
}
