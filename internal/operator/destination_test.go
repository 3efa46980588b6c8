package operator

import (
	"errors"
	"strings"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
)

// Dead letters are not returned to a group that nobody has registered, unless
// that is what is wanted.
func TestRedriveIntoNothingIsRefused(t *testing.T) {
	f := newFixture(t)
	bury(f, 8)
	f.check(f.q.DropGroup(f.ctx, acme, orders, audit))
	f.want("destinations", []Destination{{orders, audit, 2, false}, {orders, billing, 6, true}},
		must[[]Destination](f)(f.Destinations(f.ctx, acme, dead, "")))
	n, err := f.RedriveMany(f.ctx, acme, dead, RedriveOptions{})
	unknown, ok := errors.AsType[*GroupUnknownError](err)
	if n != 0 || !errors.Is(err, ErrGroupUnknown) || !ok || unknown.Group != audit || unknown.Topic != orders || unknown.Tenant != acme || unknown.Messages != 2 {
		t.Errorf("%d, %v", n, err)
	}
	if err == nil || !strings.Contains(err.Error(), `group "audit"`) || !strings.Contains(err.Error(), `topic "orders"`) {
		t.Errorf("it does not name both: %v", err)
	}
	f.want("dead letters left", 8, f.rows(dead)["queue_messages"])
	f.want("of the other group", 6, must[int](f)(f.RedriveMany(f.ctx, acme, dead, RedriveOptions{Group: billing})))
	f.want("by force", 2, must[int](f)(f.RedriveMany(f.ctx, acme, dead, RedriveOptions{Force: true})))
}

func TestCheckRedriveTellsWhereItGoes(t *testing.T) {
	f := newFixture(t)
	bury(f, 1)
	id, key := ids(1)[0], "z"
	f.exec("UPDATE queue_messages SET failed_group = ?", billing)
	f.want("destination", Destination{orders, billing, 1, true}, must[Destination](f)(f.CheckRedrive(f.ctx, acme, dead, key, id)))
	f.check(f.q.DropGroup(f.ctx, acme, orders, billing))
	d, err := f.CheckRedrive(f.ctx, acme, dead, key, id)
	if !errors.Is(err, ErrGroupUnknown) {
		t.Errorf("a dropped group: %v", err)
	}
	f.want("destination", Destination{orders, billing, 1, false}, d)
	f.publish(orders, "a", "a1")
	for _, topic := range []string{orders, dead} {
		if _, err := f.CheckRedrive(f.ctx, acme, topic, "a", "a1"); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("no dead letter on %s: %v", topic, err)
		}
	}
}
