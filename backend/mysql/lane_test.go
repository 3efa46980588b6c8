package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

// holdCommits makes the first transactions wait after their insert until
// release is called; entered says when one has got there.
func holdCommits(t testing.TB, q *Queue) (entered <-chan struct{}, release func()) {
	in, out := make(chan struct{}, 100), make(chan struct{})
	q.hooks.inserted = func(*sql.Tx) {
		in <- struct{}{}
		<-out
	}
	release = sync.OnceFunc(func() { close(out) })
	t.Cleanup(release)
	return in, release
}

// fillLanes starts as many publishes of a tenant as run at once, and returns
// when all are under way.
func fillLanes(t testing.TB, q *Queue, entered <-chan struct{}, wait *sync.WaitGroup) {
	t.Helper()
	for i := range runnersPerLane {
		wait.Go(func() {
			if _, err := q.Publish(context.WithoutCancel(t.Context()), message("a", "t", fmt.Sprintf("held%d", i), 0)); err != nil {
				t.Errorf("held publish: %v", err)
			}
		})
		<-entered
	}
}

// waitingCalls polls until n calls wait in the lane of tenant a.
func waitingCalls(t testing.TB, q *Queue, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d calls wait", n), func() bool {
		q.lanes.mu.Lock()
		defer q.lanes.mu.Unlock()
		ln := q.lanes.byTenant["a"]
		return ln != nil && len(ln.waiting) == n
	})
}

func TestConcurrentPublishesShareATransaction(t *testing.T) {
	q, db := onDB(t)
	mustPublish(t, q, message("a", "t", "k", 0))
	entered, release := holdCommits(t, q)
	var wait sync.WaitGroup
	fillLanes(t, q, entered, &wait)

	const callers = 40
	receipts := make([][]backend.Receipt, callers)
	for i := range callers {
		wait.Go(func() {
			// Each has a message of its own, one that all have, one stored before.
			var err error
			receipts[i], err = q.Publish(context.WithoutCancel(t.Context()),
				message("a", "t", "own", i), message("a", "t", "shared", 1), message("a", "t", "k", 0))
			if err != nil {
				t.Errorf("caller %d: %v", i, err)
			}
		})
	}
	waitingCalls(t, q, callers)
	release()
	wait.Wait()
	if len(entered) != 1 {
		t.Errorf("%d callers took %d transactions, want 1", callers, len(entered))
	}
	firsts := 0
	for i, r := range receipts {
		own := queryInt(t, db, "SELECT `offset` FROM queue_messages WHERE partition_key = 'own' AND id = ?", fmt.Sprintf("m%d", i))
		if r[0].Offset != uint64(own) || r[0].Duplicate {
			t.Errorf("caller %d: receipt %+v for the message at %d", i, r[0], own)
		}
		if !r[1].Duplicate {
			firsts++
		}
		if !r[2].Duplicate {
			t.Errorf("caller %d: a message stored before is not called a duplicate", i)
		}
	}
	if firsts != 1 {
		t.Errorf("%d callers were told that they stored the one message all of them had", firsts)
	}
}

// Calls that are stored one by one, since one of them fails, tell repeats among
// them all the same.
func TestRepeatsAmongCallsStoredOneByOne(t *testing.T) {
	q, db := onDB(t)
	refuseIDs(t, db, "bad")
	mustPublish(t, q, message("a", "t", "k", 0))
	of := func(ids ...string) *call {
		c := &call{tenant: "a", done: make(chan struct{})}
		for i, id := range ids {
			m := message("a", "t", "k", 0)
			m.ID = id
			c.rows, c.at = append(c.rows, mustRow(t, m)), append(c.at, i)
		}
		return c
	}
	calls := []*call{of("bad"), of("x", "y", "x"), of("y", "z")}
	q.commit(calls)
	if calls[0].err == nil || calls[1].err != nil || calls[2].err != nil {
		t.Fatalf("errors: %v, %v, %v", calls[0].err, calls[1].err, calls[2].err)
	}
	var repeats []bool
	for _, c := range calls[1:] {
		for _, r := range c.receipts {
			repeats = append(repeats, r.Duplicate)
		}
	}
	if want := []bool{false, false, true, true, false}; !slices.Equal(repeats, want) {
		t.Errorf("duplicates: %v, want %v", repeats, want)
	}
}

func TestOneCallCannotFailTheOthersOfItsTransaction(t *testing.T) {
	q, db := onDB(t)
	refuseIDs(t, db, "bad")
	mustPublish(t, q, message("a", "t", "k", 0))
	entered, release := holdCommits(t, q)
	var wait sync.WaitGroup
	fillLanes(t, q, entered, &wait)

	errs := make([]error, 10)
	for i := range errs {
		wait.Go(func() {
			m := message("a", "t", "k", i+1)
			if i == 3 {
				m.ID = "bad"
			}
			_, errs[i] = q.Publish(context.WithoutCancel(t.Context()), m)
		})
	}
	waitingCalls(t, q, len(errs))
	release()
	wait.Wait()
	for i, err := range errs {
		if bad := i == 3; bad != (err != nil) {
			t.Errorf("caller %d: %v", i, err)
		}
	}
}

func TestPublishEndsWithItsContext(t *testing.T) {
	q, db := onDB(t)
	mustPublish(t, q, message("a", "t", "k", 0))
	entered, release := holdCommits(t, q)
	var wait sync.WaitGroup
	fillLanes(t, q, entered, &wait)

	// One that waits for its turn is taken back.
	ctx, cancel := context.WithCancel(t.Context())
	queued := make(chan error, 1)
	wait.Go(func() {
		_, err := q.Publish(ctx, message("a", "t", "queued", 1))
		queued <- err
	})
	waitingCalls(t, q, 1)
	cancel()
	if err := <-queued; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "nothing was stored") {
		t.Errorf("queued publish: %v", err)
	}

	// One under way goes on without its caller.
	ctx, cancel = context.WithCancel(t.Context())
	payload := []byte("before")
	underWay := make(chan error, 1)
	wait.Go(func() {
		m := message("b", "t", "under way", 1)
		m.Payload = payload
		_, err := q.Publish(ctx, m)
		underWay <- err
	})
	<-entered
	cancel()
	if err := <-underWay; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("publish under way: %v", err)
	}
	copy(payload, "after!") // the caller's again: the race detector watches
	release()
	wait.Wait()
	eventually(t, "the publish under way is stored", func() bool {
		return queryInt(t, db, "SELECT COUNT(*) FROM queue_messages WHERE partition_key = 'under way' AND payload = 'before'") == 1
	})
	if n := queryInt(t, db, "SELECT COUNT(*) FROM queue_messages WHERE partition_key = 'queued'"); n != 0 {
		t.Error("the publish taken back was stored")
	}
}

func TestPublishTimeoutIsNamed(t *testing.T) {
	db := migratedDB(t)
	q := newTestQueue(t, Params{DB: db, Config: Config{PublishTimeout: 50 * time.Millisecond}})
	mustPublish(t, q, message("a", "t", "k", 1))
	blocker, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer blocker.Rollback()
	mustExec(t, blocker, "SELECT * FROM queue_messages WHERE tenant = 'a' AND topic = 't' AND partition_key = 'k' FOR UPDATE")
	_, err = q.Publish(t.Context(), message("a", "t", "k", 1))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "publish timeout of 50ms") {
		t.Errorf("got %v", err)
	}
}
