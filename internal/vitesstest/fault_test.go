//go:build vitess

package vitesstest_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uber-go/tally/v4"
	"go.uber.org/goleak"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/internal/vitesstest"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// traffic publishes to tenants and takes every message, until it is stopped.
type traffic struct {
	queue     *mysql.Queue
	tenants   []tenants.ID
	published []atomic.Int64 // by tenant
	seen      sync.Map       // tenant/id of every message handed over
	delivered []atomic.Int64 // different ones, by tenant
}

const topic, keys = "orders", 4

// publish stores messages one after the other; one whose answer was an error is published again, under the same id.
func (w *traffic) publish(ctx context.Context, stop <-chan struct{}, tenant int) error {
	for n := 0; ; n++ {
		m := backend.Message{
			Tenant: w.tenants[tenant], Topic: topic, PartitionKey: fmt.Sprint(n % keys), ID: fmt.Sprint(n), Payload: []byte("x"),
		}
		for {
			_, err := w.queue.Publish(ctx, m)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("message %d of %s: %w", n, m.Tenant, err)
			}
		}
		w.published[tenant].Add(1)
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

// consume acks what it is handed. An ack that is lost makes a message come again.
func (w *traffic) consume(sub backend.Subscription) {
	for d := range sub.Deliveries() {
		m := d.Message()
		if _, again := w.seen.LoadOrStore(string(m.Tenant)+"/"+m.ID, true); !again {
			for i, id := range w.tenants {
				if id == m.Tenant {
					w.delivered[i].Add(1)
				}
			}
		}
		_ = d.Ack(d.Context()) // an error is a second delivery
	}
}

// TestVitessFaultsLoseNothing kills each part of a cluster under load, and brings it back. Of two tenants, one on each
// shard, the second goes on while the first one's shard is away.
func TestVitessFaultsLoseNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cluster, err := vitesstest.Start(ctx, vitesstest.Config{
		Shards: 2, Programs: os.Getenv(vitesstest.EnvPrograms), Schema: mysql.VitessSchema(), VSchema: mysql.VSchema(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	}()
	db, err := mysql.Open(cluster.DSN(), mysql.ServerIsolation())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	// xxhash puts a on -80 and c on 80-; countOn checks it.
	set, err := tenants.New("a", "c")
	if err != nil {
		t.Fatal(err)
	}
	scope := tally.NewTestScope("", nil)
	queue, err := mysql.NewQueue(mysql.Params{DB: db, Tenants: set, Scope: scope, Config: mysql.Config{ExternalSchema: true}})
	if err != nil {
		t.Fatal(err)
	}
	w := &traffic{queue: queue, tenants: set.IDs(), published: make([]atomic.Int64, 2), delivered: make([]atomic.Int64, 2)}
	sub, err := queue.Subscribe(ctx, topic, backend.SubscriptionConfig{Group: "g", DeadLetter: backend.DeadLetterPolicy{Disabled: true}})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var publishing, consuming sync.WaitGroup
	consuming.Go(func() { w.consume(sub) })
	for i := range w.tenants {
		publishing.Go(func() {
			if err := w.publish(ctx, stop, i); err != nil {
				t.Error(err)
			}
		})
	}

	flows := func(what string, tenant int) {
		t.Helper()
		from, began := w.delivered[tenant].Load(), time.Now()
		await(ctx, t, what, func() bool { return w.delivered[tenant].Load() >= from+20 })
		t.Logf("%s: 20 messages after %v", what, time.Since(began).Round(time.Millisecond))
	}
	flows("at first, tenant a", 0)
	flows("at first, tenant c", 1)
	first := cluster.Shards[0]
	for _, fault := range []struct {
		name  string
		kill  func() error
		start func(context.Context) error
		all   bool
	}{
		{"vttablet", first.Tablet.Kill, first.Tablet.Start, false},
		{"database", first.Server.Kill, first.Server.Restart, false},
		{"vtgate", cluster.Gate.Kill, cluster.Gate.Start, true},
	} {
		if err := fault.kill(); err != nil {
			t.Fatal(err)
		}
		if !fault.all {
			flows("without the first shard's "+fault.name+", tenant c", 1)
		}
		if err := fault.start(ctx); err != nil {
			t.Fatal(err)
		}
		flows("with the "+fault.name+" again, tenant a", 0)
		flows("with the "+fault.name+" again, tenant c", 1)
	}

	close(stop)
	publishing.Wait()
	for i, id := range w.tenants {
		await(ctx, t, "all of tenant "+string(id), func() bool { return w.delivered[i].Load() == w.published[i].Load() })
		t.Logf("tenant %s: %d published and delivered", id, w.published[i].Load())
	}
	if err := queue.Close(ctx); err != nil {
		t.Error(err)
	}
	consuming.Wait()
	// Whatever Vitess calls what was away, it is known to pass.
	counters := scope.Snapshot().Counters()
	for _, class := range []string{"permanent", "transient", "connection", "failover"} {
		n := counters["database_errors+class="+class].Value()
		t.Logf("errors of class %s: %d", class, n)
		if class == "permanent" && n > 0 {
			t.Errorf("%d errors were taken for permanent ones", n)
		}
	}
	if counters["database_errors+class=connection"].Value() == 0 {
		t.Error("no error at all: nothing was away")
	}
}

// await polls for what no channel tells.
func await(ctx context.Context, t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("gave up waiting: %s", what)
		}
	}
}
