package mysql

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestReceiptsTellRepeatsFromNewMessages(t *testing.T) {
	q, db := onDB(t)
	first := mustPublish(t, q, message("a", "orders", "k", 1), message("a", "orders", "k", 2))
	if first[0].Duplicate || first[1].Duplicate || first[0].Offset == 0 || first[0].Offset >= first[1].Offset {
		t.Fatalf("first publish: %+v", first)
	}
	again := mustPublish(t, q, message("a", "orders", "k", 2), message("a", "orders", "k", 3), message("a", "orders", "k", 1))
	want := []backend.Receipt{{Offset: first[1].Offset, Duplicate: true}, {Offset: again[1].Offset}, {Offset: first[0].Offset, Duplicate: true}}
	if diff := cmp.Diff(want, again); diff != "" {
		t.Errorf("second publish (-want +got):\n%s", diff)
	}
	twice := mustPublish(t, q, message("a", "orders", "k", 4), message("a", "orders", "k", 4))
	if twice[0].Duplicate || !twice[1].Duplicate || twice[0].Offset != twice[1].Offset {
		t.Errorf("one id twice in a call: %+v", twice)
	}
	// The same id elsewhere is another message.
	elsewhere := mustPublish(t, q, message("b", "orders", "k", 1), message("a", "other", "k", 1), message("a", "orders", "l", 1))
	for i, r := range elsewhere {
		if r.Duplicate {
			t.Errorf("message %d elsewhere is called a duplicate", i)
		}
	}
	if n := queryInt(t, db, "SELECT COUNT(*) FROM queue_messages"); n != 7 {
		t.Errorf("%d messages stored, want 7", n)
	}
}

func TestPublishKeepsTheCallersOrderWithinAPartition(t *testing.T) {
	q, db := onDB(t)
	var msgs []backend.Message
	for n := range 5_000 {
		msgs = append(msgs, message(tenants.ID(fmt.Sprintf("t%d", n%3)), fmt.Sprintf("topic%d", n%2), fmt.Sprintf("k%d", n%7), n))
	}
	receipts := mustPublish(t, q, msgs...)
	last := make(map[string]uint64)
	for i, m := range msgs {
		at := string(m.Tenant) + "/" + m.Topic + "/" + m.PartitionKey
		if receipts[i].Duplicate || receipts[i].Offset <= last[at] {
			t.Fatalf("message %d: %+v after offset %d", i, receipts[i], last[at])
		}
		last[at] = receipts[i].Offset
		if i%500 == 0 {
			stored := queryInt(t, db, "SELECT `offset` FROM queue_messages WHERE tenant = ? AND topic = ? AND partition_key = ? AND id = ?",
				string(m.Tenant), m.Topic, m.PartitionKey, m.ID)
			if uint64(stored) != receipts[i].Offset {
				t.Errorf("message %d: receipt says offset %d, stored at %d", i, receipts[i].Offset, stored)
			}
		}
	}
	if n := queryInt(t, db, "SELECT COUNT(*) FROM queue_messages"); n != len(msgs) {
		t.Errorf("%d messages stored, want %d", n, len(msgs))
	}
}

func TestPayloadsAreStoredByteForByte(t *testing.T) {
	q, db := onDB(t)
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	for name, payload := range map[string][]byte{
		"nil": nil, "empty": {}, "every byte": binary, "1 MiB to escape": bytes.Repeat([]byte{'\'', 0}, 1<<19),
	} {
		t.Run(name, func(t *testing.T) {
			m := message("a", "t", "k", 1)
			m.ID = name
			m.Payload = payload
			m.Metadata = map[string]string{"quote": `'"\`, "nul": "\x00", "<&>": "\U0001F600", "": ""}
			mustPublish(t, q, m)
			var stored []byte
			var metadata string
			if err := db.QueryRowContext(t.Context(), "SELECT payload, metadata FROM queue_messages WHERE id = ?", name).Scan(&stored, &metadata); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(stored, payload) {
				t.Errorf("%d bytes published, %d different ones stored", len(payload), len(stored))
			}
			if encoded, _ := encodeMetadata(m.Metadata); encoded != metadata {
				t.Errorf("metadata %q stored as %q", encoded, metadata)
			}
		})
	}
}

func TestPublishRefusesBadMessagesBeforeStoringAny(t *testing.T) {
	q, db := onDB(t)
	good := message("a", "t", "k", 1)
	for name, c := range map[string]struct {
		change func(*backend.Message)
		want   error
		text   string
	}{
		"payload":       {func(m *backend.Message) { m.Payload = bytes.Repeat([]byte("secret"), 1<<18) }, backend.ErrTooLarge, "payload of 1572864 bytes: at most 1048576 bytes"},
		"metadata":      {func(m *backend.Message) { m.Metadata = map[string]string{"k": strings.Repeat("secret", 1<<14)} }, backend.ErrTooLarge, "metadata of"},
		"metadata utf8": {func(m *backend.Message) { m.Metadata = map[string]string{"k": "\xff"} }, backend.ErrInvalid, "metadata"},
		"tenant":        {func(m *backend.Message) { m.Tenant = "" }, backend.ErrInvalid, "tenant"},
		"topic":         {func(m *backend.Message) { m.Topic = "ü" }, backend.ErrInvalid, "topic"},
		"partition key": {func(m *backend.Message) { m.PartitionKey = "k " }, backend.ErrInvalid, "partition key"},
		"id":            {func(m *backend.Message) { m.ID = "a\x00" }, backend.ErrInvalid, "message id"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := message("b", "t", "k", 2)
			c.change(&bad)
			_, err := q.Publish(t.Context(), good, bad)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "message 2 of 2") {
				t.Errorf("got %v", err)
			}
			if _, ok := errors.AsType[*backend.FieldError](err); !ok {
				t.Errorf("%v is no FieldError", err)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error shows the payload: %.200v", err)
			}
		})
	}
	if n := queryInt(t, db, "SELECT COUNT(*) FROM queue_messages"); n != 0 {
		t.Errorf("%d messages stored, want none", n)
	}
	if receipts, err := q.Publish(t.Context()); err != nil || len(receipts) != 0 {
		t.Errorf("publish of nothing: %v, %v", receipts, err)
	}
}

func TestCapsAreConfigured(t *testing.T) {
	q := newTestQueue(t, Params{DB: migratedDB(t), Config: Config{MaxPayload: 10, MaxMetadata: len(`{"k":"v"}`)}})
	m := message("a", "t", "k", 1)
	m.Payload, m.Metadata = []byte("0123456789"), map[string]string{"k": "v"}
	mustPublish(t, q, m)
	for _, change := range []func(*backend.Message){
		func(m *backend.Message) { m.Payload = []byte("0123456789a") },
		func(m *backend.Message) { m.Metadata = map[string]string{"k": "vv"} },
	} {
		tooLarge := m
		change(&tooLarge)
		if _, err := q.Publish(t.Context(), tooLarge); !errors.Is(err, backend.ErrTooLarge) {
			t.Errorf("got %v", err)
		}
	}
}

// refuseIDs makes the database refuse messages whose id
// contains a word: for a failure that no check sees before.
func refuseIDs(t testing.TB, db *sql.DB, word string) {
	t.Helper()
	mustExec(t, db, `CREATE TRIGGER refuse BEFORE INSERT ON queue_messages FOR EACH ROW
		IF NEW.id LIKE '%`+word+`%' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF`)
}

func TestPublishIsAllOrNothingPerTenant(t *testing.T) {
	q, db := onDB(t)
	refuseIDs(t, db, "bad")
	bad := message("b", "t", "k", 2)
	bad.ID = "bad"
	_, err := q.Publish(t.Context(), message("a", "t", "k", 1), message("b", "t", "k", 1), bad, message("b", "t", "l", 3))
	if err == nil || !strings.Contains(err.Error(), `tenant "b"`) || strings.Contains(err.Error(), `tenant "a"`) {
		t.Errorf("got %v, want an error about tenant b alone", err)
	}
	if n := queryInt(t, db, "SELECT COUNT(*) FROM queue_messages WHERE tenant = 'a'"); n != 1 {
		t.Errorf("tenant a has %d messages, want 1", n)
	}
	if n := queryInt(t, db, "SELECT COUNT(*) FROM queue_messages WHERE tenant = 'b'"); n != 0 {
		t.Errorf("tenant b has %d messages, want none", n)
	}
}

func TestKilledConnectionsKeepPublishesExactlyOnce(t *testing.T) {
	q, db := onDB(t)
	mustPublish(t, q, message("a", "t", "k", 0))
	var mu sync.Mutex
	runs := 0
	q.hooks.inserted = func(tx *sql.Tx) {
		mu.Lock()
		defer mu.Unlock()
		runs++
		if runs%3 == 0 {
			return
		}
		var id int64
		if err := tx.QueryRow("SELECT CONNECTION_ID()").Scan(&id); err != nil {
			return // killed already
		}
		if _, err := db.Exec(fmt.Sprintf("KILL CONNECTION %d", id)); err != nil {
			t.Errorf("kill: %v", err)
		}
	}
	var wait sync.WaitGroup
	for p := range 4 {
		wait.Go(func() {
			for n := range 10 {
				receipts, err := q.Publish(t.Context(), message("a", "t", fmt.Sprintf("p%d", p), 2*n), message("a", "t", fmt.Sprintf("p%d", p), 2*n+1))
				if err != nil || receipts[0].Duplicate || receipts[1].Duplicate {
					t.Errorf("publish %d of %d: %+v, %v", n, p, receipts, err)
				}
			}
		})
	}
	wait.Wait()
	if n := queryInt(t, db, "SELECT COUNT(*) FROM queue_messages WHERE partition_key LIKE 'p%'"); n != 80 {
		t.Errorf("%d messages stored, want 80", n)
	}
}

// A publish whose COMMIT was carried out and not answered runs again on top of
// its own rows: they are no duplicates, and no watermark that has passed them
// meanwhile may make it start over.
func TestRepeatAfterALostAnswerRecognisesItsOwnRows(t *testing.T) {
	q, db := onDB(t)
	mustPublish(t, q, message("a", "t", "k", 0))
	var first publication
	stored := newBatch("a", []*row{mustRow(t, message("a", "t", "k", 1)), mustRow(t, message("a", "t", "k", 2))})
	if err := q.store(t.Context(), stored, &first); err != nil { // its answer is lost
		t.Fatal(err)
	}
	mustExec(t, db, "INSERT INTO queue_offsets VALUES ('a', 't', 'k', 'g', ?, 0, 0)", stored.rows[1].offset)
	third := mustRow(t, message("a", "t", "k", 3))
	again := newBatch("a", []*row{mustRow(t, message("a", "t", "k", 1)), mustRow(t, message("a", "t", "k", 2)), third})
	if err := q.store(t.Context(), again, &first); err != nil {
		t.Fatal(err)
	}
	if first.runs != 2 {
		t.Errorf("%d runs, want 2: the fence hit rows that were committed", first.runs)
	}
	for i, r := range again.rows {
		if !first.ours(r.publishID) {
			t.Errorf("row %d is called a duplicate", i)
		}
	}
	if again.rows[0].offset != stored.rows[0].offset || third.offset <= stored.rows[1].offset {
		t.Errorf("offsets %d and %d", again.rows[0].offset, third.offset)
	}
}

func mustRow(t testing.TB, m backend.Message) *row {
	t.Helper()
	r, err := newRow(m, Config{}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestBatchesAreCutByRowsAndBytes(t *testing.T) {
	// A server of its own: what it counts is everybody's.
	db := openDB(t, testdb.StartServer(t).Database(t))
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg  Config
		size int
		want int // statements
	}{
		"rows":            {Config{MaxBatchRows: 3}, 10, 4},
		"bytes":           {Config{MaxBatchBytes: MinMaxBatchBytes}, 10_000, 4},
		"one above bytes": {Config{MaxBatchBytes: MinMaxBatchBytes}, 100_000, 10},
		"all in one":      {Config{}, 10, 1},
	} {
		t.Run(name, func(t *testing.T) {
			q := newTestQueue(t, Params{DB: db, Config: c.cfg})
			var msgs []backend.Message
			for n := range 10 {
				m := message("a", name, "k", n)
				m.Payload = bytes.Repeat([]byte{0}, c.size)
				msgs = append(msgs, m)
			}
			mustPublish(t, q, message("a", name, "warm", 0))
			before := comInserts(t, db)
			if rows := mustPublish(t, q, msgs...); !slices.IsSortedFunc(rows, func(a, b backend.Receipt) int { return int(a.Offset) - int(b.Offset) }) {
				t.Errorf("receipts out of order: %+v", rows)
			}
			if got := comInserts(t, db) - before; got != c.want {
				t.Errorf("%d INSERT statements, want %d", got, c.want)
			}
		})
	}
}

// comInserts counts the INSERT statements of the server.
func comInserts(t testing.TB, db *sql.DB) int {
	t.Helper()
	var name string
	var n int
	if err := db.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Com_insert'").Scan(&name, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
