package mysql

import (
	"testing"

	"github.com/tenantmq/tenantmq/backend/internal/engine"
)

func TestDrainedPartitionLeavesNoRow(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	run := f.publish("k", 3)
	g := f.grant(s, "k", run[2])
	f.want("fetched", run, f.offsets(s, "k", 0))
	got := f.settle(s, engine.Settlement{Lease: g.Lease, Run: run, Drained: true})
	f.want("settled", []engine.Settled{{Drained: true}}, got)
	f.wantRows(map[string]int{})
}
