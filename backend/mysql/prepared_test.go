package mysql

import (
	"bytes"
	"database/sql/driver"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/internal/testdb"
)

// awkward are n messages with whatever bytes a message may have.
func awkward(n int) []backend.Message {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	msgs := make([]backend.Message, n)
	for i := range msgs {
		msgs[i] = message("a", "t", fmt.Sprintf("k'%d\\\"é👩", i%7), i)
		msgs[i].ID = fmt.Sprintf("id '\\%d\x1a é👩", i)
		msgs[i].Payload = bytes.Repeat(every, i%3)
		if i%5 == 0 {
			msgs[i].Metadata = map[string]string{"quote": `"'\`, "é": "\n"}
		}
	}
	return msgs
}

// wantStored compares what is stored with messages and their receipts.
func wantStored(t *testing.T, db querier, msgs []backend.Message, receipts []backend.Receipt) {
	t.Helper()
	type stored struct {
		Offset                     uint64
		Key, ID, Payload, Metadata string
	}
	want := make(map[uint64]stored)
	for i, m := range msgs {
		metadata, err := encodeMetadata(m.Metadata)
		if err != nil {
			t.Fatal(err)
		}
		want[receipts[i].Offset] = stored{receipts[i].Offset, m.PartitionKey, m.ID, string(m.Payload), metadata}
	}
	got := make(map[uint64]stored)
	var s stored
	q := newQuery(0, "SELECT `offset`, partition_key, id, payload, metadata FROM queue_messages")
	if err := q.each(t.Context(), db, []any{&s.Offset, &s.Key, &s.ID, &s.Payload, &s.Metadata}, func() { got[s.Offset] = s }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}

// Of many messages whole hundreds go by a prepared statement, the rest as text,
// and both store the same.
func TestManyMessagesAreInsertedByAPreparedStatement(t *testing.T) {
	_, db := onDB(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	executed := func() int {
		var name string
		var n int
		if err := conn.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Com_stmt_execute'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	q := newTestQueue(t, Params{DB: db})
	msgs := awkward(2*bulkRows + 30)
	rows := make([]*row, len(msgs))
	for i, m := range msgs {
		rows[i] = mustRow(t, m)
	}
	b := newBatch("a", rows)
	all, err := b.insert(t.Context(), conn, 1, q.insertBounds())
	if err != nil {
		t.Fatal(err)
	}
	if n := executed(); n != 2 || len(all) != 3 {
		t.Errorf("%d statements, %d of them prepared; want 3 and 2", len(all), n)
	}
	if ok, err := b.countAll(t.Context(), conn, 1, all, nil); err != nil || !ok {
		t.Errorf("counted: %v, %v", ok, err)
	}
	receipts := make([]backend.Receipt, len(msgs))
	byID := make(map[string]uint64)
	for _, r := range rows {
		byID[r.id] = r.offset
	}
	for i, m := range msgs {
		receipts[i].Offset = byID[m.ID]
	}
	wantStored(t, conn, msgs, receipts)
}

// Receipts are right whatever the server makes of the statements: one that
// prepares none, and one whose offsets have gaps.
func TestReceiptsOfManyMessages(t *testing.T) {
	for name, setting := range map[string]string{
		"as usual": "", "no prepared statements": "max-prepared-stmt-count=0", "every third offset": "auto-increment-increment=3",
		"offsets one by one": "innodb-autoinc-lock-mode=0", "offsets interleaved": "innodb-autoinc-lock-mode=2",
	} {
		t.Run(name, func(t *testing.T) {
			dsn := testdb.DSN(t)
			if setting != "" {
				dsn = testdb.StartServer(t, setting).Database(t)
			}
			db := openDB(t, dsn)
			if err := Migrate(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			q := newTestQueue(t, Params{DB: db})
			msgs := awkward(2*bulkRows + 30)
			// Repeats make what a statement is allocated a hint at most.
			repeated := []int{0, 50, bulkRows, 2*bulkRows + 1}
			for _, i := range repeated {
				mustPublish(t, q, msgs[i])
			}
			receipts := mustPublish(t, q, msgs...)
			for i, r := range receipts {
				if r.Duplicate != slices.Contains(repeated, i) {
					t.Errorf("message %d: %+v", i, r)
				}
			}
			wantStored(t, db, msgs, receipts)
			more := awkward(3 * bulkRows)[2*bulkRows+30:]
			wantStored(t, db, append(msgs, more...), append(receipts, mustPublish(t, q, more...)...))
		})
	}
}

// A server, or a proxy before it, may forget a prepared statement; the messages go
// as text then, and for as long as the connection lasts.
func TestForgottenStatementIsDoneWithout(t *testing.T) {
	_, db := onDB(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	insert := func(from int) {
		t.Helper()
		rows := make([]*row, bulkRows)
		for i := range rows {
			rows[i] = mustRow(t, message("a", "t", "k", from+i))
		}
		if _, err := newBatch("a", rows).insert(t.Context(), conn, 1, insertBounds{1000, 1 << 20, true}); err != nil {
			t.Fatal(err)
		}
	}
	insert(0)
	err = conn.Raw(func(c any) error {
		// Closing a copy tells the server and not the connection.
		stmt := reflect.ValueOf(c.(*preparing).bulk).Elem()
		twin := reflect.New(stmt.Type())
		twin.Elem().Set(stmt)
		return twin.Interface().(driver.Stmt).Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	insert(bulkRows)
	insert(2 * bulkRows)
	if n := queryInt(t, conn, "SELECT COUNT(*) FROM queue_messages"); n != 3*bulkRows {
		t.Errorf("%d messages are stored, want %d", n, 3*bulkRows)
	}
}

// Repeats among many messages are told from new ones, in a transaction of the
// queue's and in the caller's.
func TestRepeatsAmongManyMessages(t *testing.T) {
	q, db := onDB(t)
	msgs := awkward(bulkRows + 30)
	first := mustPublish(t, q, msgs[10], msgs[20], msgs[bulkRows+5])
	check := func(receipts []backend.Receipt, repeated func(i int) bool) {
		t.Helper()
		for i, r := range receipts {
			if r.Duplicate != repeated(i) {
				t.Errorf("message %d: %+v", i, r)
			}
		}
		wantStored(t, db, msgs, receipts)
	}
	receipts := mustPublish(t, q, msgs...)
	check(receipts, func(i int) bool { return i == 10 || i == 20 || i == bulkRows+5 })
	if diff := cmp.Diff([]uint64{first[0].Offset, first[1].Offset, first[2].Offset},
		[]uint64{receipts[10].Offset, receipts[20].Offset, receipts[bulkRows+5].Offset}); diff != "" {
		t.Errorf("offsets of the repeats (-first +again):\n%s", diff)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	again, err := q.PublishTx(t.Context(), tx, msgs...)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	check(again, func(int) bool { return true })
}
