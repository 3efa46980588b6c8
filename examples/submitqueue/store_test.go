package main

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/examples/internal/database"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// recorder is a publisher that remembers, or fails.
type recorder struct {
	mu   sync.Mutex
	sent []string // tenant/topic/key/id
	err  error
}

func (r *recorder) Publish(_ context.Context, tenant tenants.ID, topic string, msgs ...publish.Message) ([]backend.Receipt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return nil, r.err
	}
	for _, m := range msgs {
		r.sent = append(r.sent, string(tenant)+"/"+topic+"/"+m.PartitionKey+"/"+m.ID)
	}
	return make([]backend.Receipt, len(msgs)), nil
}

func (r *recorder) PublishTx(ctx context.Context, _ *sql.Tx, tenant tenants.ID, topic string, msgs ...publish.Message) ([]backend.Receipt, error) {
	return r.Publish(ctx, tenant, topic, msgs...)
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent
	r.sent = nil
	return sent
}

// eachStore runs a test on both implementations.
func eachStore(t *testing.T, test func(t *testing.T, s Store, published *recorder)) {
	t.Run("memory", func(t *testing.T) {
		published := new(recorder)
		test(t, NewMemoryStore(published), published)
	})
	t.Run("mysql", func(t *testing.T) {
		db, err := sql.Open("mysql", testdb.DSN(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		published := new(recorder)
		s := NewMySQLStore(db, published)
		if err := database.Migrate(t.Context(), db, "submit", versions); err != nil {
			t.Fatal(err)
		}
		test(t, s, published)
	})
}

func out(id string) Outgoing {
	return Outgoing{Topic: "topic", Message: publish.Message{ID: id, PartitionKey: "key"}}
}

func states(r Request) []State {
	list := []State{}
	for _, e := range r.History {
		list = append(list, e.State)
	}
	return list
}

func TestAcceptIsIdempotent(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store, published *recorder) {
		first, created, err := s.Accept(t.Context(), "fx", "c", out("1"))
		if err != nil || !created || first.ID != "c@fx" || first.State != Accepted || first.History[0].At == 0 {
			t.Fatalf("%+v, %v, %v", first, created, err)
		}
		again, created, err := s.Accept(t.Context(), "fx", "c", out("2"))
		if diff := cmp.Diff(first, again); err != nil || created || diff != "" {
			t.Errorf("%v, %v, %s", created, err, diff)
		}
		if _, created, err := s.Accept(t.Context(), "river", "c", out("3")); err != nil || !created {
			t.Errorf("other queue: %v, %v", created, err)
		}
		if got, want := published.take(), []string{"fx/topic/key/1", "river/topic/key/3"}; !slices.Equal(got, want) {
			t.Errorf("published %q, want %q", got, want)
		}
	})
}

func TestConcurrentAcceptsMakeOneRequest(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store, _ *recorder) {
		var wg sync.WaitGroup
		created := make(chan bool, 8)
		for range cap(created) {
			wg.Go(func() {
				_, c, err := s.Accept(t.Context(), "fx", "c", out("1"))
				if err != nil {
					t.Error(err)
				}
				created <- c
			})
		}
		wg.Wait()
		close(created)
		n := 0
		for c := range created {
			if c {
				n++
			}
		}
		if n != 1 {
			t.Errorf("created %d times", n)
		}
	})
}

func TestAdvanceMovesOnceAndPublishesOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store, published *recorder) {
		if _, _, err := s.Accept(t.Context(), "fx", "c", out("1")); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			from, to State
			ids      []Outgoing
		}{
			{Accepted, Checking, []Outgoing{out("2")}},
			{Accepted, Checking, []Outgoing{out("2")}}, // repeated
			{Merging, Landed, []Outgoing{out("never")}},
			{Checking, Merging, []Outgoing{out("3"), out("4")}},
			{Merging, Conflicted, nil},
			{Merging, Landed, []Outgoing{out("never")}}, // it has ended
			{Accepted, DeadLettered, []Outgoing{out("never")}},
		} {
			if err := s.Advance(t.Context(), "fx", "c", step.from, step.to, "detail of "+string(step.to), step.ids...); err != nil {
				t.Fatal(err)
			}
		}
		r, err := s.Get(t.Context(), "fx", "c")
		if err != nil || r.State != Conflicted || r.History[3].Detail != "detail of conflicted" ||
			!slices.Equal(states(r), []State{Accepted, Checking, Merging, Conflicted}) {
			t.Errorf("%+v, %v", r, err)
		}
		if got := published.take(); len(got) != 4 {
			t.Errorf("published %q", got)
		}
	})
}

func TestNothingMovesWithoutItsMessage(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store, published *recorder) {
		if _, _, err := s.Accept(t.Context(), "fx", "c", out("1")); err != nil {
			t.Fatal(err)
		}
		published.err = errors.New("queue is away")
		if _, _, err := s.Accept(t.Context(), "fx", "d", out("2")); !errors.Is(err, published.err) {
			t.Errorf("accept: %v", err)
		}
		if err := s.Advance(t.Context(), "fx", "c", Accepted, Checking, "", out("3")); !errors.Is(err, published.err) {
			t.Errorf("advance: %v", err)
		}
		published.err = nil
		if r, err := s.Get(t.Context(), "fx", "c"); err != nil || !slices.Equal(states(r), []State{Accepted}) {
			t.Errorf("%+v, %v", r, err)
		}
		if _, err := s.Get(t.Context(), "fx", "d"); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("get: %v", err)
		}
	})
}

func TestUnknownRequests(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store, published *recorder) {
		if _, _, err := s.Accept(t.Context(), "fx", "c", out("1")); err != nil {
			t.Fatal(err)
		}
		for _, name := range [][2]string{{"fx", "d"}, {"river", "c"}, {"fx", "C"}} {
			if _, err := s.Get(t.Context(), name[0], name[1]); !errors.Is(err, backend.ErrNotFound) {
				t.Errorf("get %q: %v", name, err)
			}
			if err := s.Advance(t.Context(), name[0], name[1], Accepted, Checking, "", out("never")); !errors.Is(err, backend.ErrNotFound) {
				t.Errorf("advance %q: %v", name, err)
			}
		}
		if got := published.take(); len(got) != 1 {
			t.Errorf("published %q", got)
		}
	})
}

func TestListAndCountShowOneQueue(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store, _ *recorder) {
		for _, c := range []string{"b", "d", "a", "c"} {
			if _, _, err := s.Accept(t.Context(), "fx", c, out(c)); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := s.Accept(t.Context(), "river", "x", out("x")); err != nil {
			t.Fatal(err)
		}
		if err := s.Advance(t.Context(), "fx", "c", Accepted, Checking, ""); err != nil {
			t.Fatal(err)
		}
		list, err := s.List(t.Context(), "fx", "a", 2)
		if err != nil || len(list) != 2 || list[0].ID != "b@fx" || list[1].ID != "c@fx" || !slices.Equal(states(list[1]), []State{Accepted, Checking}) {
			t.Errorf("%+v, %v", list, err)
		}
		for _, none := range []struct {
			queue, after string
			limit        int
		}{{"fx", "d", 10}, {"fx", "", 0}, {"nobody", "", 10}} {
			if list, err := s.List(t.Context(), none.queue, none.after, none.limit); err != nil || list == nil || len(list) != 0 {
				t.Errorf("%+v: %+v, %v", none, list, err)
			}
		}
		count, err := s.Count(t.Context(), "fx")
		if diff := cmp.Diff(map[State]int{Accepted: 3, Checking: 1}, count); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	})
}
