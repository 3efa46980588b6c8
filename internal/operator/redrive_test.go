package operator

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

// bury makes n dead letters, spread over partitions so that the order of the
// keys is not that of time, and those of another group between them.
func bury(f *fixture, n int) {
	f.Helper()
	f.register(orders, billing, audit)
	for i := range n {
		f.publish(dead, string(rune('z'-i%3)), ids(n)[i])
	}
	f.exec("UPDATE queue_messages SET original_topic = ?, original_id = id, failed_group = IF(MOD(`offset`, 4) = 0, ?, ?), failed_at = published_at, "+
		"failure_count = 1 WHERE topic = ?", orders, audit, billing, dead)
}

func (f *fixture) inOrder() []string {
	f.Helper()
	return must[[]string](f)(read(f.ctx, f.tables[0], newQuery("SELECT id FROM queue_messages WHERE topic = ? ORDER BY `offset`", orders), single[string]))
}

func TestRedriveManyGoesByAge(t *testing.T) {
	f := newFixture(t)
	bury(f, 10)
	var told []int
	n := must[int](f)(f.RedriveMany(f.ctx, acme, dead, RedriveOptions{Limit: 4, Progress: func(n int) { told = append(told, n) }}))
	f.want("redriven", 4, n)
	f.want("progress", []int{1, 2, 3, 4}, told)
	f.want("order", ids(4), f.inOrder())
	f.want("the rest", 6, must[int](f)(f.RedriveMany(f.ctx, acme, dead, RedriveOptions{})))
	f.want("order", ids(10), f.inOrder())
	f.want("none", 0, must[int](f)(f.RedriveMany(f.ctx, acme, dead, RedriveOptions{})))
}

func TestRedriveManyOfOneGroup(t *testing.T) {
	f := newFixture(t)
	bury(f, 8)
	f.publish(dead, "a", "no dead letter")
	f.want("redriven", 2, must[int](f)(f.RedriveMany(f.ctx, acme, dead, RedriveOptions{Group: audit})))
	f.want("what is left", 7, f.number("SELECT COUNT(*) FROM queue_messages WHERE topic = ?", dead))
	f.want("for it alone", 2, f.number("SELECT COUNT(*) FROM queue_messages WHERE topic = ? AND target_group = ?", orders, audit))
}

func TestRedriveManyCanBeInterrupted(t *testing.T) {
	f := newFixture(t)
	bury(f, 5)
	ctx, cancel := context.WithCancelCause(f.ctx)
	enough := errors.New("enough")
	n, err := f.RedriveMany(ctx, acme, dead, RedriveOptions{Progress: func(n int) {
		if n == 2 {
			cancel(enough)
		}
	}})
	if n != 2 || !errors.Is(err, enough) || !strings.Contains(err.Error(), "2 are redriven") {
		t.Errorf("%d, %v", n, err)
	}
	f.want("what was redriven", ids(2), f.inOrder())
	f.want("the rest", 3, must[int](f)(f.RedriveMany(f.ctx, acme, dead, RedriveOptions{})))
}

func TestRedriveManyKeepsItsPace(t *testing.T) {
	f := newFixture(t)
	bury(f, 4)
	begun := time.Now()
	must[int](f)(f.RedriveMany(f.ctx, acme, dead, RedriveOptions{PerSecond: 20}))
	if took := time.Since(begun); took < 3*50*time.Millisecond {
		t.Errorf("4 at 20 a second took %v", took)
	}
}

// A message that fails at once when redriven does not keep it busy for ever.
func TestRedriveManyEndsThoughMessagesFailAgain(t *testing.T) {
	f := newFixture(t)
	bury(f, 3)
	f.page = 2
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	again := func(n int) {
		if n > 5 {
			cancel()
		}
		f.exec("UPDATE queue_messages SET topic = ?, original_topic = ?, original_id = id, failed_group = ?, failed_at = "+nowMillis+" + 1000, target_group = '' WHERE topic = ?",
			dead, orders, billing, orders)
	}
	f.want("redriven", 3, must[int](f)(f.RedriveMany(ctx, acme, dead, RedriveOptions{Progress: again})))
}

func TestRedriveManyRefusesBadOptions(t *testing.T) {
	f := newFixture(t)
	for _, o := range []RedriveOptions{{Limit: -1}, {PerSecond: -1}, {PerSecond: math.NaN()}, {Group: "g "}} {
		if _, err := f.RedriveMany(f.ctx, acme, dead, o); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
