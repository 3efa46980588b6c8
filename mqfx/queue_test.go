package mqfx

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/uber-go/tally/v4"
	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/memory"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/mqfx/internal/harness"
)

// Fx takes a start for failed whose context has ended, whatever the hook says,
// and then never stops it.
func TestStartThatSucceedsTooLateIsUndone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var opened *memory.Queue
	q := &queue{p: queueParams{
		Config:    Config{Backend: BackendMemory},
		Telemetry: telemetry{log: zap.NewNop(), scope: tally.NoopScope},
		Harness: &harness.Memory{Opened: func(m *memory.Queue) {
			opened = m
			cancel()
		}},
	}}
	if err := q.start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if _, err := q.Publish(t.Context()); !errors.Is(err, ErrNotStarted) {
		t.Errorf("the queue is in use: %v", err)
	}
	if _, err := opened.Publish(t.Context()); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("the backend is still open: %v", err)
	}
}

func TestPoolIsSized(t *testing.T) {
	c := DefaultConfig()
	c.DSN, c.Pool.MaxOpen, c.Pool.Reserve = "mq@tcp(127.0.0.1:1)/mq", 7, 3
	q := &queue{p: queueParams{Config: c}}
	p, err := q.database()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if n, reserved := p.db.Stats().MaxOpenConnections, p.reserve.Stats().MaxOpenConnections; n != 7 || reserved != 3 {
		t.Errorf("at most %d connections, and %d in reserve", n, reserved)
	}
}

// What another tool makes, or vtgate wants, is not to be had by the remedies for
// other databases.
func TestExplanationsSuitVitess(t *testing.T) {
	external := Config{ExternalSchema: true}
	for name, tc := range map[string]struct {
		config Config
		err    error
		not    string
	}{
		"settings of vtgate":     {Config{}, &mysql.VitessError{Err: errors.New("table not found"), Remedy: "set it"}, "is the server up"},
		"tables of another tool": {external, mysql.ErrSchemaMissing, "mq.migrate"},
		"its older tables":       {external, mysql.ErrSchemaOlder, "mq.migrate"},
	} {
		q := &queue{p: queueParams{Config: tc.config, Given: &givenConfig{}}}
		if err := q.explain(tc.err); !errors.Is(err, tc.err) || strings.Contains(err.Error(), tc.not) {
			t.Errorf("%s: %v", name, err)
		}
	}
	q := &queue{p: queueParams{Given: &givenConfig{}}}
	if err := q.explain(mysql.ErrSchemaMissing); !strings.Contains(err.Error(), "mq.migrate") {
		t.Errorf("tables of our own: %v", err)
	}
}
