package operator

import (
	"errors"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestPresenceTellsWhatThereIs(t *testing.T) {
	f := newFixture(t)
	f.exec("INSERT INTO queue_messages (tenant, topic, partition_key, id, payload, metadata, published_at, publish_id) VALUES ('sent', 'x', 'k', '1', '', '{}', 1, 1)")
	f.exec("INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES ('reads', 'y', '', 'g', 0, 1), ('marked', 'y', 'k', 'g', 1, 1)")
	f.exec("INSERT INTO queue_partition_leases VALUES ('leased', 'g', 'x', 'k', 's', 7, 1, 1, 1, 0, 0)")
	f.exec("INSERT INTO queue_delivery_state (tenant, consumer_group, topic, partition_key, message_offset) VALUES ('stated', 'g', 'x', 'k', 1)")
	f.exec("INSERT INTO queue_subscriber_heartbeats VALUES ('beats', 'g', 'x', 's', 1, 1, 1)")
	for _, c := range []struct {
		tenant tenants.ID
		topic  string
		want   Presence
	}{
		{"nobody", "", Presence{}},
		{"sent", "", Presence{Messages: true}},
		{"sent", "x", Presence{Messages: true}},
		{"sent", "y", Presence{}},
		{"reads", "", Presence{Groups: true}},
		{"reads", "y", Presence{Groups: true}},
		{"reads", "x", Presence{}},
		{"marked", "", Presence{Rest: true}},
		{"marked", "y", Presence{Rest: true}},
		{"leased", "", Presence{Rest: true}},
		{"leased", "x", Presence{Rest: true}},
		{"leased", "y", Presence{}},
		{"stated", "", Presence{Rest: true}},
		{"beats", "x", Presence{Rest: true}},
	} {
		got := must[Presence](f)(f.Presence(f.ctx, c.tenant, c.topic))
		f.want(string(c.tenant)+" "+c.topic, c.want, got)
		f.want(string(c.tenant)+" "+c.topic+", any", c.want != Presence{}, got.Any())
	}
	if _, err := f.Presence(f.ctx, "", ""); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("no tenant: %v", err)
	}
}
