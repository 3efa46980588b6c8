package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/tenantmq/tenantmq/internal/testdb"
)

// envHelper makes the test binary start PostgreSQL, report it and wait to be
// killed.
const envHelper = "PEER_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(envHelper) != "" {
		helper()
	}
	testdb.Main(m, goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"))
}

// messages are n of 200 random bytes each, over a number of keys.
func messages(prefix string, n, keys int) []Message {
	random := rand.NewChaCha8([32]byte{1})
	msgs := make([]Message, n)
	for i := range msgs {
		msgs[i] = Message{Key: fmt.Sprintf("key-%06d", i%keys), ID: fmt.Sprint(prefix, "-", i), Payload: make([]byte, 200)}
		_, _ = random.Read(msgs[i].Payload) // never fails
	}
	return msgs
}

func batches(msgs []Message, size int) (list [][]Message) {
	for len(msgs) > 0 {
		n := min(size, len(msgs))
		list, msgs = append(list, msgs[:n]), msgs[n:]
	}
	return list
}

// counted is what a test sees of a peer's storage.
type counted struct {
	Peer
	left   func(ctx context.Context) (int, error) // messages not settled
	orders func(ctx context.Context) (int, error) // rows of the caller's table
}

func drive(t *testing.T, p counted) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	expect := func(what string, count func(context.Context) (int, error), want int) {
		t.Helper()
		if got, err := count(ctx); err != nil || got != want {
			t.Fatalf("%s: %d %s, %v; want %d", p.Name(), got, what, err, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for round := range 2 {
		must(p.Reset(ctx))
		expect("messages after a reset", p.left, 0)
		expect("orders after a reset", p.orders, 0)
		must(p.Publish(ctx, 4, batches(messages(fmt.Sprint("batch-", round), 450, 20), 100)))
		must(p.Publish(ctx, 4, batches(messages(fmt.Sprint("single-", round), 50, 20), 1)))
		expect("messages published", p.left, 500)
		must(p.Consume(ctx, 500))
		expect("messages left", p.left, 0)
		must(p.PublishTx(ctx, 4, append(batches(messages(fmt.Sprint("tx-", round), 30, 20), 1), batches(messages(fmt.Sprint("tx-batch-", round), 70, 20), 10)...)))
		expect("messages published in transactions", p.left, 100)
		expect("orders", p.orders, 37)
		must(p.Consume(ctx, 100))
		expect("messages left", p.left, 0)
	}
}

func TestFloor(t *testing.T) {
	f, err := NewFloor(t.Context(), testdb.ServerDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer closePeer(t, f)
	left := func(ctx context.Context) (int, error) {
		return f.db.count(ctx, "SELECT COUNT(*) FROM queue_messages")
	}
	drive(t, counted{f, left, func(ctx context.Context) (int, error) { return f.db.count(ctx, "SELECT COUNT(*) FROM orders") }})

	for _, c := range []struct{ messages, keys, batch int }{{250, 250, 100}, {2500, 2, 1000}, {300, 60, 100}} {
		if err := errors.Join(f.Reset(t.Context()),
			f.Publish(t.Context(), 2, batches(messages("shape", c.messages, c.keys), 100)), f.Consume(t.Context(), c.messages)); err != nil {
			t.Fatalf("%d messages of %d keys: %v", c.messages, c.keys, err)
		}
		for _, table := range []string{"queue_messages", "queue_partition_leases", "queue_offsets", "queue_delivery_state"} {
			if n, err := f.db.count(t.Context(), "SELECT COUNT(*) FROM "+table); err != nil || n != 0 {
				t.Errorf("%d messages of %d keys leave %d rows in %s, %v", c.messages, c.keys, n, table, err)
			}
		}
	}
	if err := f.Consume(t.Context(), 1); err == nil {
		t.Error("a message was consumed of an empty floor")
	}
}

func TestWatermill(t *testing.T) {
	for _, opts := range []WatermillOptions{{}, {Name: "watermill-sql-1", BatchSize: 1}, {Queue: true}} {
		w, err := NewWatermill(t.Context(), testdb.ServerDSN(t), opts)
		if err != nil {
			t.Fatal(err)
		}
		defer closePeer(t, w)
		drive(t, counted{w, w.unsettled, func(ctx context.Context) (int, error) { return w.db.count(ctx, "SELECT COUNT(*) FROM orders") }})
	}
}

func TestWatermillCannotPartition(t *testing.T) {
	w, err := NewWatermill(t.Context(), testdb.ServerDSN(t), WatermillOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer closePeer(t, w)
	if err := w.Publish(t.Context(), 1, batches(messages("many", 30, 30), 10)); err != nil {
		t.Fatal(err)
	}
	if err := w.Consume(t.Context(), 30); !errors.Is(err, ErrCannot) {
		t.Errorf("30 keys of one message: %v, want ErrCannot", err)
	}
}

// What speaks against the faster of the two schemas, as WatermillOptions says.
func TestWatermillQueueDeletesWhatIsNotAcked(t *testing.T) {
	for _, c := range []struct {
		opts WatermillOptions
		left int
	}{{WatermillOptions{BatchSize: 100}, 47}, {WatermillOptions{BatchSize: 100, Queue: true}, 0}} {
		w, err := NewWatermill(t.Context(), testdb.ServerDSN(t), c.opts)
		if err != nil {
			t.Fatal(err)
		}
		defer closePeer(t, w)
		if err := w.Publish(t.Context(), 1, batches(messages("m", 50, 2), 50)); err != nil {
			t.Fatal(err)
		}
		sub, err := w.subscriber()
		if err != nil {
			t.Fatal(err)
		}
		msgs, err := sub.Subscribe(t.Context(), watermillTopic)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			(<-msgs).Ack()
		}
		<-msgs // handed out, and the subscriber closed before the answer
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
		if left, err := w.unsettled(t.Context()); err != nil || left != c.left {
			t.Errorf("%s: 3 of 50 acknowledged, %d left, %v; want %d", w.Name(), left, err, c.left)
		}
	}
}

func TestPostgresEndsWithAProcessThatIsKilled(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envHelper+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var url, dir string
	if _, err := fmt.Fscanln(bufio.NewReader(out), &url, &dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says that it was killed

	// The watchdog reports to nobody, so there is nothing to wait for but its work.
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("left behind: %s", dir)
		}
	}
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", net.JoinHostPort(cfg.Host, fmt.Sprint(cfg.Port))); err == nil {
		t.Errorf("the server still listens; close: %v", conn.Close())
	}
}

func helper() {
	pg, err := StartPostgres(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(pg.URL(), pg.dir)
	select {}
}

func TestRiver(t *testing.T) {
	pg, err := StartPostgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRiver(t.Context(), pg.URL())
	if err != nil {
		t.Fatal(errors.Join(err, pg.Stop()))
	}
	left := func(ctx context.Context) (int, error) {
		return r.count(ctx, "SELECT COUNT(*) FROM river_job WHERE state <> 'completed'")
	}
	t.Run("drive", func(t *testing.T) {
		drive(t, counted{r, left, func(ctx context.Context) (int, error) { return r.count(ctx, "SELECT COUNT(*) FROM orders") }})
	})
	t.Run("durability", func(t *testing.T) {
		for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
			var got string
			if err := r.pool.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&got); err != nil || got != "on" {
				t.Errorf("%s is %q, %v; want on", setting, got, err)
			}
		}
	})
	closePeer(t, r)
	if err := pg.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(pg.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the server left %s: %v", pg.dir, err)
	}
}

func TestGoqite(t *testing.T) {
	g, err := NewGoqite(t.Context(), t.TempDir())
	if !cgo {
		if !errors.Is(err, ErrCannot) {
			t.Errorf("without a C compiler: %v, want ErrCannot", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer closePeer(t, g)
	count := func(query string) func(context.Context) (int, error) {
		return func(ctx context.Context) (n int, err error) { return n, g.db.QueryRowContext(ctx, query).Scan(&n) }
	}
	drive(t, counted{g, count("SELECT COUNT(*) FROM goqite"), count("SELECT COUNT(*) FROM orders")})
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2"} {
		var got string
		if err := g.db.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %s", pragma, got, err, want)
		}
	}
}

func closePeer(t *testing.T, p Peer) {
	t.Helper()
	if err := p.Close(); err != nil {
		t.Errorf("close %s: %v", p.Name(), err)
	}
}
