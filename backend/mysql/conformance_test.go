package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/zap/zaptest"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/backendtest"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/tenants"
)

// envServer lists settings of a server, separated by blanks, to run the suite
// on one of its own, such as
//
//	MQ_TEST_SERVER="innodb-snapshot-isolation=ON transaction-isolation=READ-COMMITTED"
const envServer = "MQ_TEST_SERVER"

func TestConformance(t *testing.T) {
	var dsn string
	if settings := strings.Fields(os.Getenv(envServer)); len(settings) > 0 {
		dsn = testdb.StartServer(t, settings...).Database(t)
	} else {
		dsn = testdb.DSN(t)
	}
	db := openDB(t, dsn)
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	s := &storage{dsn: dsn, db: db, wires: make(map[backendtest.Queue]*wire), open: func(dsn string) (*sql.DB, error) { return Open(dsn) }}
	backendtest.Run(t, func(*testing.T) backendtest.Storage { return s })
}

// storage is one database for all cases: each has tenants of its own.
type storage struct {
	dsn    string
	db     *sql.DB
	config Config
	open   func(dsn string) (*sql.DB, error)

	mu    sync.Mutex
	wires map[backendtest.Queue]*wire
}

func (s *storage) Open(t *testing.T, set tenants.Set) backendtest.Queue {
	t.Helper()
	w := &wire{conns: make(map[net.Conn]struct{})}
	db, err := s.open(w.through(t, s.dsn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })                                                             // an error for every connection that was cut
	q, err := NewQueue(Params{DB: db, Tenants: set, Config: s.config, Logger: zaptest.NewLogger(t)}) // shown with a failure
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wires[q] = w
	return q
}

func (s *storage) Cut(_ *testing.T, q backendtest.Queue) (mend func()) {
	s.mu.Lock()
	w := s.wires[q]
	s.mu.Unlock()
	w.sever()
	return w.mend
}

func (s *storage) DB() *sql.DB { return s.db }

func (*storage) Limits() (payload, metadata int) { return DefaultMaxPayload, DefaultMaxMetadata }

func (s *storage) Delete(t *testing.T, m backend.Message) {
	t.Helper()
	const stmt = "DELETE FROM queue_messages WHERE tenant = ? AND topic = ? AND partition_key = ? AND id = ?"
	result, err := s.db.Exec(stmt, m.Tenant, m.Topic, m.PartitionKey, m.ID)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := result.RowsAffected(); n != 1 || err != nil {
		t.Fatalf("deleted %d rows, %v, want 1", n, err)
	}
}

func (s *storage) Rows(t *testing.T, list ...tenants.ID) map[string]int {
	t.Helper()
	args := make([]any, len(list))
	for i, id := range list {
		args[i] = id
	}
	where := " WHERE tenant IN (?" + strings.Repeat(", ?", len(list)-1) + ")"
	rows := make(map[string]int)
	for kind, table := range map[string]string{
		"messages": "queue_messages", "states": "queue_delivery_state", "offsets": "queue_offsets", "leases": "queue_partition_leases",
		backendtest.Heartbeats: "queue_subscriber_heartbeats",
	} {
		query := "SELECT COUNT(*) FROM " + table + where
		if kind == "offsets" {
			query += " AND partition_key <> ''" // those register groups
		}
		var n int
		if err := s.db.QueryRow(query, args...).Scan(&n); err != nil {
			t.Fatal(err)
		}
		rows[kind] = n
	}
	return rows
}

// wire is what a queue's connections run through.
type wire struct {
	mu      sync.Mutex
	severed bool
	conns   map[net.Conn]struct{}
}

var errSevered = errors.New("the wire is cut")

// through makes a DSN that leads through the wire.
func (w *wire) through(t *testing.T, dsn string) string {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	network := cfg.Net
	cfg.Net = "wire-" + rand.Text()
	mysql.RegisterDialContext(cfg.Net, func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return w.carry(conn)
	})
	t.Cleanup(func() { mysql.DeregisterDialContext(cfg.Net) })
	return cfg.FormatDSN()
}

func (w *wire) carry(conn net.Conn) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.severed {
		return nil, errors.Join(errSevered, conn.Close())
	}
	w.conns[conn] = struct{}{}
	return &carried{Conn: conn, w: w}, nil
}

func (w *wire) sever() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.severed = true
	for conn := range w.conns {
		_ = conn.Close() // the server rolls back
	}
	clear(w.conns)
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.severed = false
}

// carried leaves the wire when it is closed.
type carried struct {
	net.Conn
	w *wire
}

func (c *carried) Close() error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	delete(c.w.conns, c.Conn)
	if err := c.Conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close a carried connection: %w", err)
	}
	return nil
}
