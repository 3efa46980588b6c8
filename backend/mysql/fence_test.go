package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/uber-go/tally/v4"

	"github.com/tenantmq/tenantmq/backend"
)

// mover moves the watermark of one partition as a consumer does: a locking read
// of the offsets it has seen, which stops before one that arrived late.
type mover struct {
	db         *sql.DB
	topic, key string
	watermark  uint64
	seen       map[uint64]string // offsets above the watermark, with ids
	delivered  map[string]bool
}

func newMover(db *sql.DB, topic, key string) *mover {
	return &mover{db: db, topic: topic, key: key, seen: make(map[uint64]string), delivered: make(map[string]bool)}
}

// step delivers what is new and moves the watermark. It tells whether anything
// was new.
func (m *mover) step(ctx context.Context) (bool, error) {
	found := false
	var offset uint64
	var id string
	err := newQuery(0, "SELECT `offset`, id FROM queue_messages WHERE tenant = 'a' AND topic = ? AND partition_key = ? AND `offset` > ?",
		m.topic, m.key, m.watermark).each(ctx, m.db, []any{&offset, &id}, func() {
		if _, ok := m.seen[offset]; !ok {
			m.seen[offset] = id
			m.delivered[id] = true
			found = true
		}
	})
	if err != nil || len(m.seen) == 0 {
		return found, err
	}
	err = runTx(ctx, m.db, m.move)
	if isNowait(err) || classify(err) == classRetry { // a publisher is inside: next time
		return found, nil
	}
	for offset := range m.seen {
		if offset <= m.watermark {
			delete(m.seen, offset)
		}
	}
	return found, err
}

func (m *mover) move(tx *sql.Tx) error {
	to, late := m.watermark, false
	var offset uint64
	err := newQuery(0, "SELECT `offset` FROM queue_messages WHERE tenant = 'a' AND topic = ? AND partition_key = ? AND `offset` > ? "+
		"ORDER BY `offset` LIMIT ? FOR UPDATE NOWAIT", m.topic, m.key, m.watermark, len(m.seen)).
		each(context.Background(), tx, []any{&offset}, func() {
			if _, ok := m.seen[offset]; !ok {
				late = true
			}
			if !late {
				to = offset
			}
		})
	if err != nil || to == m.watermark {
		return err
	}
	if _, err := tx.Exec("INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES ('a', ?, ?, 'g', ?, 0) "+
		"ON DUPLICATE KEY UPDATE offset_acked = VALUES(offset_acked)", m.topic, m.key, to); err != nil {
		return err
	}
	m.watermark = to
	return nil
}

// run steps until stop, and then until nothing is new.
func (m *mover) run(t *testing.T, stop <-chan struct{}) {
	for {
		stopped := false
		select {
		case <-stop:
			stopped = true
		default:
		}
		found, err := m.step(context.WithoutCancel(t.Context()))
		if err != nil {
			t.Errorf("move the watermark: %v", err)
			return
		}
		if stopped && !found {
			return
		}
	}
}

// slowTrigger holds up some rows for one to three times d between the allocation
// of their offset, with their statement's first row, and their insert.
func slowTrigger(d time.Duration) string {
	return fmt.Sprintf(`CREATE TRIGGER slow BEFORE INSERT ON queue_messages FOR EACH ROW
		IF NEW.id LIKE 'slow%%' THEN DO SLEEP(%f * (1 + 2 * RAND())); END IF`, d.Seconds())
}

func slowDB(t testing.TB) *sql.DB {
	t.Helper()
	db := migratedDB(t)
	mustExec(t, db, slowTrigger(5*time.Millisecond))
	return db
}

// stressFence has 16 publishers of four processes, half of them in
// transactions of their own, fight with the watermarks of four partitions, and
// returns how many messages were never delivered. The database has a slowTrigger.
func stressFence(t *testing.T, db *sql.DB, cfg Config, fenceOff bool, rounds int) (lost int) {
	db.SetMaxOpenConns(64)
	scope := tally.NewTestScope("", nil)
	queues := make([]*Queue, 4)
	movers := make([]*mover, 4)
	stop := make(chan struct{})
	var moving, publishing sync.WaitGroup
	for i := range queues {
		queues[i] = newTestQueue(t, Params{DB: db, Scope: scope, Config: cfg})
		queues[i].hooks.fenceOff = fenceOff
		if err := queues[i].Verify(t.Context()); err != nil {
			t.Fatal(err)
		}
		movers[i] = newMover(db, "t", fmt.Sprintf("z%d", i))
		moving.Go(func() { movers[i].run(t, stop) })
	}

	published := make([][]string, 16)
	for p := range published {
		process, partition, slow := p%4, p/4, p%4 < 2
		q := queues[process]
		publish := func(ctx context.Context, msgs ...backend.Message) error {
			if process%2 == 0 {
				return publishInTx(ctx, db, q, msgs)
			}
			_, err := q.Publish(ctx, msgs...)
			return err
		}
		publishing.Go(func() {
			for round := range rounds {
				m := message("a", "t", movers[partition].key, 0)
				m.ID = fmt.Sprintf("p%d r%d", p, round)
				msgs := []backend.Message{m}
				if slow {
					msgs[0].ID = "slow " + m.ID
					msgs = append(msgs, message("a", "t", fmt.Sprintf("a%d", p), round))
				}
				if err := publish(t.Context(), msgs...); err != nil {
					t.Errorf("publisher %d: %v", p, err)
					return
				}
				published[p] = append(published[p], msgs[0].ID)
			}
		})
	}
	publishing.Wait()
	close(stop)
	moving.Wait()
	total := 0
	for p, ids := range published {
		total += len(ids)
		for _, id := range ids {
			if !movers[p/4].delivered[id] {
				lost++
			}
		}
	}
	t.Logf("published %d, lost %d, fenced %d times", total, lost, scope.Snapshot().Counters()["publish_fence_retries+"].Value())
	return lost
}

// publishInTx is what callers of PublishTx do.
func publishInTx(ctx context.Context, db *sql.DB, q *Queue, msgs []backend.Message) error {
	for {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		_, err = q.PublishTx(ctx, tx, msgs...)
		if err == nil {
			err = tx.Commit()
		}
		if err == nil {
			return nil
		}
		_ = tx.Rollback()
		if !errors.Is(err, ErrRetryTransaction) {
			return err
		}
	}
}

func TestFenceLosesNoMessage(t *testing.T) {
	if lost := stressFence(t, slowDB(t), Config{}, false, 60); lost != 0 {
		t.Errorf("%d messages were never delivered", lost)
	}
}

// Without the fence the same stress loses messages. That it does shows that the
// test above can fail.
func TestFenceOffLosesMessages(t *testing.T) {
	for range 10 {
		if stressFence(t, slowDB(t), Config{}, true, 60) > 0 {
			return
		}
	}
	t.Error("no message was lost without the fence: the stress proves nothing")
}

// gate holds up the insert of the message "slow", after its offset was
// allocated: the offsets of a statement are allocated with its first row.
type gate struct {
	conn *sql.Conn
	db   *sql.DB
	name string
}

func closeGate(t testing.TB, db *sql.DB) *gate {
	t.Helper()
	var name string
	if err := db.QueryRowContext(t.Context(), "SELECT CONCAT('gate ', MD5(DATABASE()))").Scan(&name); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, `CREATE TRIGGER gate BEFORE INSERT ON queue_messages FOR EACH ROW
		IF NEW.id = 'slow' THEN DO GET_LOCK('`+name+`', 60); DO RELEASE_LOCK('`+name+`'); END IF`)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	mustExec(t, conn, "DO GET_LOCK('"+name+"', 0)")
	return &gate{conn, db, name}
}

// reached waits until an insert stands at the gate.
func (g *gate) reached(t testing.TB) {
	t.Helper()
	eventually(t, "an insert waits at the gate", func() bool {
		return queryInt(t, g.db, "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock' AND db = DATABASE()") > 0
	})
}

func (g *gate) open(t testing.TB) {
	t.Helper()
	mustExec(t, g.conn, "DO RELEASE_LOCK('"+g.name+"')")
}

// The interleaving of the comment in fence.go, one step at a time, for Publish
// and PublishTx, with the fence and without. The message held up is in the
// second of two statements: nothing may be read between them.
func TestFenceSeesWatermarksThatPassedAllocatedOffsets(t *testing.T) {
	publishers := map[string]func(context.Context, *sql.DB, *Queue, []backend.Message) error{
		"Publish": func(ctx context.Context, _ *sql.DB, q *Queue, msgs []backend.Message) error {
			_, err := q.Publish(ctx, msgs...)
			return err
		},
		"PublishTx": publishInTx,
	}
	for name, publish := range publishers {
		for _, fenceOff := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/off=%v", name, fenceOff), func(t *testing.T) {
				db := migratedDB(t)
				a, b := newTestQueue(t, Params{DB: db, Config: Config{MaxBatchRows: 2}}), newTestQueue(t, Params{DB: db})
				a.hooks.fenceOff = fenceOff
				g := closeGate(t, db)

				slow := message("a", "t", "z", 1)
				slow.ID = "slow"
				done := make(chan error, 1)
				go func() {
					done <- publish(context.WithoutCancel(t.Context()), db, a, []backend.Message{
						message("a", "t", "first", 1), message("a", "t", "first", 2), message("a", "t", "second", 3), slow,
					})
				}()
				g.reached(t)
				mustPublish(t, b, message("a", "t", "z", 2))
				m := newMover(db, "t", "z")
				if _, err := m.step(t.Context()); err != nil || m.watermark == 0 {
					t.Fatalf("watermark at %d: %v", m.watermark, err)
				}
				g.open(t)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if _, err := m.step(t.Context()); err != nil {
					t.Fatal(err)
				}
				if m.delivered["slow"] == fenceOff {
					t.Errorf("delivered: %v", m.delivered["slow"])
				}
			})
		}
	}
}

// A group that joins at Latest while a message is between allocation and
// insert has a position for partitions without a row of its own.
func TestFenceSeesTheRegistrationOfAGroup(t *testing.T) {
	q, db := onDB(t)
	g := closeGate(t, db)
	slow := message("a", "t", "z", 1)
	slow.ID = "slow"
	done := make(chan error, 1)
	var receipts []backend.Receipt
	go func() {
		var err error
		receipts, err = q.Publish(context.WithoutCancel(t.Context()), message("a", "t", "first", 1), slow)
		done <- err
	}()
	g.reached(t)
	mustExec(t, db, "INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES ('a', 't', '', 'g', 50, 0)")
	g.open(t)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if receipts[0].Offset <= 50 || receipts[1].Offset <= 50 {
		t.Errorf("offsets %d and %d are below the group's position of 50", receipts[0].Offset, receipts[1].Offset)
	}
}

// Restored or resharded: the counter of offsets is far behind the watermarks.
func TestCounterBehindTheWatermarkIsRaised(t *testing.T) {
	for _, kind := range []string{"Publish", "PublishTx"} {
		for _, key := range []string{"k", ""} { // a watermark, a registration
			t.Run(fmt.Sprintf("%s/key=%q", kind, key), func(t *testing.T) {
				db := migratedDB(t)
				scope := tally.NewTestScope("", nil)
				q := newTestQueue(t, Params{DB: db, Scope: scope})
				mustExec(t, db, "INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES ('a', 't', ?, 'g', 1000000, 0)", key)
				msgs := []backend.Message{message("a", "t", "k", 1), message("a", "t", "k", 2)}
				if kind == "Publish" {
					mustPublish(t, q, msgs...)
				} else if err := publishInTx(t.Context(), db, q, msgs); err != nil {
					t.Fatal(err)
				}
				if low := queryInt(t, db, "SELECT MIN(`offset`) FROM queue_messages"); low <= 1_000_000 {
					t.Errorf("stored at %d", low)
				}
				if n := queryInt(t, db, "SELECT COUNT(*) FROM queue_messages"); n != 2 {
					t.Errorf("%d messages stored, want 2", n)
				}
				counters := scope.Snapshot().Counters()
				if raised := counters["offset_counter_raises+"].Value(); raised != 1 {
					t.Errorf("raised %d times, want once", raised)
				}
				mustPublish(t, q, message("a", "t", "k", 3))
				if fenced := counters["publish_fence_retries+"].Value(); fenced != fencesBeforeRaise {
					t.Errorf("fenced %d times, want %d", fenced, fencesBeforeRaise)
				}
			})
		}
	}
}

// The counter is behind stored rows: an allocated offset is in use, which
// ON DUPLICATE KEY takes for a repeat. No server lets itself be brought there by
// statements alone, so a trigger hands out an offset in use until it sees the
// counter raised, by a row with an explicit offset.
func TestCounterBehindStoredOffsetsIsRaised(t *testing.T) {
	for _, kind := range []string{"Publish", "PublishTx"} {
		t.Run(kind, func(t *testing.T) {
			q, db := onDB(t)
			old := mustPublish(t, q, message("a", "t", "k", 1))[0].Offset
			mustExec(t, db, "CREATE TABLE raised (above BIGINT UNSIGNED) ENGINE = MyISAM") // keeps rows over a rollback
			mustExec(t, db, fmt.Sprintf(`CREATE TRIGGER behind BEFORE INSERT ON queue_messages FOR EACH ROW
				IF NEW.offset > 0 THEN INSERT INTO raised VALUES (NEW.offset);
				ELSEIF NEW.id = 'm2' AND NOT EXISTS (SELECT 1 FROM raised) THEN SET NEW.offset = %d; END IF`, old))

			msgs := []backend.Message{message("a", "t", "k", 2), message("a", "t", "k", 1)}
			var receipts []backend.Receipt
			if kind == "Publish" {
				receipts = mustPublish(t, q, msgs...)
			} else {
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback()
				if receipts, err = q.PublishTx(t.Context(), tx, msgs...); err != nil {
					t.Fatal(err)
				}
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
			}
			if receipts[0].Duplicate || receipts[0].Offset <= old || !receipts[1].Duplicate || receipts[1].Offset != old {
				t.Errorf("receipts %+v with the first row at %d", receipts, old)
			}
			if above := queryInt(t, db, "SELECT above FROM raised"); above != int(old)+1 {
				t.Errorf("raised by a row at %d, want %d", above, old+1)
			}
			if n := queryInt(t, db, "SELECT COUNT(*) FROM queue_messages"); n != 2 {
				t.Errorf("%d messages stored, want 2", n)
			}
		})
	}
}
