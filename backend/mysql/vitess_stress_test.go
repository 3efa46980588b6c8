//go:build vitess

package mysql

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/internal/vitesstest"
)

func newVitessFixture(t testing.TB) *fixture {
	t.Helper()
	db := openDB(t, vitessDSN(t), ServerIsolation())
	return fixtureOn(t, newTestQueue(t, Params{DB: db, Config: onVitess}), db)
}

func TestVitessSettlingWhilePublishersRunLosesNothing(t *testing.T) {
	f := newVitessFixture(t)
	if lost := stress(f, f.store(groupA, "one"), 800); lost != 0 {
		t.Errorf("%d messages were skipped", lost)
	}
}

func TestVitessConcurrentSettlementsOfTwoGroups(t *testing.T) { settleInTwoGroups(newVitessFixture(t)) }

// The fence needs rows that are held up between the allocation of their offset
// and their insert, by a trigger, which vtgate refuses to make: this cluster's
// servers are the test's own.
func TestVitessFenceLosesNoMessage(t *testing.T) {
	db := openDB(t, slowCluster(t), ServerIsolation())
	if lost := stressFence(t, db, onVitess, false, 15); lost != 0 {
		t.Errorf("%d messages were never delivered", lost)
	}
	for range 10 {
		emptyTables(t, db)
		if stressFence(t, db, onVitess, true, 15) > 0 {
			return
		}
	}
	t.Error("no message was lost without the fence: the stress proves nothing")
}

// slowCluster starts a cluster with a slowTrigger on each shard.
func slowCluster(t *testing.T) (dsn string) {
	t.Helper()
	cluster, err := vitesstest.Start(t.Context(), vitesstest.Config{
		Shards: 2, Programs: os.Getenv(vitesstest.EnvPrograms), Schema: VitessSchema(), VSchema: VSchema(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, shard := range cluster.Shards {
		mustExec(t, openDB(t, shard.DSN()), slowTrigger(50*time.Millisecond)) // a step of the mover takes ten times as long as without Vitess
	}
	return cluster.DSN()
}

func TestVitessWatermarkWithoutItsLockLosesMessages(t *testing.T) {
	for name, plain := range map[string]bool{"locking read": false, "plain read": true} {
		t.Run(name, func(t *testing.T) { passUncommitted(newVitessFixture(t), plain) })
	}
}

// An offset below a watermark is not kept; here the watermark is ahead from the
// start. To hold up a publish between allocation and insert takes a trigger,
// which vtgate refuses to make.
func TestVitessFenceSeesAWatermarkThatPassed(t *testing.T) {
	for _, off := range []bool{false, true} {
		t.Run(fmt.Sprintf("off=%v", off), func(t *testing.T) {
			f := newVitessFixture(t)
			f.q.hooks.fenceOff = off
			ahead := f.publish("k", 1)[0] + 50
			mustExec(t, f.db, stmtSetMarks+markRow+stmtSetMarksEnd, string(tenantA), topicA, "k", groupA, ahead)
			ctx, cancel := context.WithTimeout(f.Context(), 20*time.Second)
			defer cancel()
			m := message(tenantA, topicA, "k", 1_000)
			receipts, err := f.q.Publish(ctx, m)
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			if passed := err == nil && receipts[0].Offset <= ahead; passed != off {
				t.Errorf("stored at %v, %v, and the watermark is %d", receipts, err, ahead)
			}
		})
	}
}
