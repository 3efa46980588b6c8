package operator

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

// A subscriber whose lease is taken away changes nothing any more, and another
// one goes on with what it had, at once and warily.
func TestReleasedLeaseFencesItsOwner(t *testing.T) {
	f := newFixture(t)
	long := func(c *backend.SubscriptionConfig) { c.LeaseDuration = time.Hour }
	sub := f.subscribe(orders, billing, long)
	receipts := f.publish(orders, "a", "a1", "a2")
	d := f.next(sub)
	held := must[[]Lease](f)(f.Leases(f.ctx, acme, Page{}))[0]

	got := must[Lease](f)(f.ReleaseLease(f.ctx, acme, orders, billing, "a"))
	f.want("what was released", held.Owner, got.Owner)
	after := must[[]Lease](f)(f.Leases(f.ctx, acme, Page{}))[0]
	if after.Epoch <= held.Epoch || after.State != Released || after.Claimed != 0 || after.Suspect != receipts[1].Offset {
		t.Errorf("the lease %+v has become %+v", held, after)
	}
	if err := d.Ack(f.ctx); !errors.Is(err, backend.ErrLeaseLost) {
		t.Errorf("the old owner's Ack: %v", err)
	}
	again := f.next(sub)
	if m := again.Message(); m.ID != "a1" || again.Attempt() != 2 {
		t.Errorf("delivered %q, attempt %d", m.ID, again.Attempt())
	}
	f.check(again.Ack(f.ctx))
	if m := f.next(sub).Message(); m.ID != "a2" {
		t.Errorf("then %q", m.ID)
	}
}

// A message that brings its handler down is found out though the lease was taken
// away every time.
func TestReleasedLeaseLeavesWhatWasClaimedSuspect(t *testing.T) {
	f := newFixture(t)
	sub := f.subscribe(orders, billing, func(c *backend.SubscriptionConfig) { c.LeaseDuration, c.Retry.MaxAttempts = time.Second, 2 })
	f.publish(orders, "a", "poison", "good")
	for d := f.next(sub); ; d = f.next(sub) {
		if d.Message().ID == "good" {
			f.check(d.Ack(f.ctx))
			break
		}
		f.eventually("the lease is taken away", func() bool {
			_, err := f.ReleaseLease(f.ctx, acme, orders, billing, "a")
			return err == nil
		})
		<-d.Context().Done()
	}
	f.want("dead letters", 1, len(must[[]DeadLetter](f)(f.DeadLetters(f.ctx, acme, Page{}))))
}

func TestReleaseOfWhatNobodyHolds(t *testing.T) {
	f := newFixture(t)
	f.publish(orders, "a", "a1")
	if _, err := f.ReleaseLease(f.ctx, acme, orders, billing, "a"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("without a row: %v", err)
	}
	f.exec("INSERT INTO queue_partition_leases VALUES (?, ?, ?, 'a', 's', 7, 1, 1000, 0, 5, 3)", string(acme), billing, orders)
	if _, err := f.ReleaseLease(f.ctx, acme, orders, billing, "a"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("released already: %v", err)
	}
	if l := must[[]Lease](f)(f.Leases(f.ctx, acme, Page{}))[0]; l.Epoch != 7 || l.Claimed != 5 {
		t.Errorf("it has become %+v", l)
	}
	if _, err := f.ReleaseLease(f.ctx, acme, orders, "", "a"); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("of no group: %v", err)
	}
}

// Only what has expired is taken away, of that group of that topic.
func TestReleaseStaleSparesTheOthers(t *testing.T) {
	f := newFixture(t)
	const n = listKeys + 20
	for i := range n {
		f.exec("INSERT INTO queue_partition_leases VALUES (?, ?, ?, ?, 's', 7, 1, 1000, 1, 5, 3)", string(acme), billing, orders, ids(n)[i])
	}
	f.exec("INSERT INTO queue_partition_leases VALUES (?, ?, ?, 'held', 's', 7, 1, 1000, "+nowMillis+" + 60000, 5, 3)", string(acme), billing, orders)
	f.exec("INSERT INTO queue_partition_leases VALUES (?, ?, ?, 'x', 's', 7, 1, 1000, 1, 5, 3), (?, ?, ?, 'x', 's', 7, 1, 1000, 1, 5, 3), ('other', ?, ?, 'x', 's', 7, 1, 1000, 1, 5, 3)",
		string(acme), audit, orders, string(acme), billing, dead, billing, orders)
	got := must[int](f)(f.ReleaseStale(f.ctx, acme, orders, billing))
	f.want("released", n, got)
	f.want("rows changed", n, f.number("SELECT COUNT(*) FROM queue_partition_leases WHERE lease_epoch > 7 AND lease_expires_at = 0 AND suspect_offset = 5 AND claimed_offset = 0"))
	f.want("rows left alone", 4, f.number("SELECT COUNT(*) FROM queue_partition_leases WHERE lease_epoch = 7 AND lease_expires_at > 0 AND suspect_offset = 3"))
	f.want("the second time", 0, must[int](f)(f.ReleaseStale(f.ctx, acme, orders, billing)))
}

// A lease that is renewed, or taken by another, between the listing and its turn
// is not released.
func TestReleaseStaleSparesWhatWasRenewed(t *testing.T) {
	f := newFixture(t)
	f.exec("INSERT INTO queue_partition_leases VALUES (?, ?, ?, 'a', 's', 7, 1, 1000, 1, 5, 3)", string(acme), billing, orders)
	listed := must[[]Lease](f)(f.Leases(f.ctx, acme, Page{StaleOnly: true}))[0]
	for _, change := range []string{"lease_expires_at = " + nowMillis + " + 60000", "lease_expires_at = 1, lease_epoch = 8"} {
		f.exec("UPDATE queue_partition_leases SET " + change)
		f.want("released after "+change, 0, must[int](f)(f.releaseExpired(f.ctx, listed)))
	}
	f.exec("UPDATE queue_partition_leases SET lease_epoch = 7")
	f.want("as it was listed", 1, must[int](f)(f.releaseExpired(f.ctx, listed)))
}

func TestReleaseStaleSaysHowFarItCame(t *testing.T) {
	f := newFixture(t)
	f.exec("INSERT INTO queue_partition_leases VALUES (?, ?, ?, 'a', 's', 7, 1, 1000, 1, 5, 3)", string(acme), billing, orders)
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	if n, err := f.ReleaseStale(ctx, acme, orders, billing); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d, %v", n, err)
	}
}
