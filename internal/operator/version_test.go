package operator

import (
	"context"
	"errors"
	"testing"

	"github.com/tenantmq/tenantmq/backend/mysql"
)

// Nothing is written to tables of another version.
func TestNothingIsWrittenToTablesOfAnotherVersion(t *testing.T) {
	f := newFixture(t)
	f.register(orders, billing)
	f.publish(orders, "a", "a1")
	f.exec("INSERT INTO queue_partition_leases VALUES (?, ?, ?, 'a', 's', 7, 1, 1000, 1, 0, 0)", string(acme), billing, orders)
	f.exec("UPDATE mq_schema_version SET version_id = version_id + 1 WHERE version_id = ?", mysql.SchemaVersion)
	before := f.rows(orders)
	fresh, err := mysql.NewQueue(mysql.Params{DB: f.db}) // that has not verified the tables yet
	f.check(err)
	t.Cleanup(func() { f.check(fresh.Close(context.Background())) })
	o := New(f.db, fresh)
	for name, write := range map[string]func() error{
		"CheckSchema":   func() error { return o.CheckSchema(f.ctx) },
		"DeleteMessage": func() error { return o.DeleteMessage(f.ctx, acme, orders, "a", "a1") },
		"Purge":         func() error { _, err := o.Purge(f.ctx, acme, orders, PurgeOptions{}); return err },
		"ReleaseLease":  func() error { _, err := o.ReleaseLease(f.ctx, acme, orders, billing, "a"); return err },
		"ReleaseStale":  func() error { _, err := o.ReleaseStale(f.ctx, acme, orders, billing); return err },
		"RedriveMany":   func() error { _, err := o.RedriveMany(f.ctx, acme, dead, RedriveOptions{Force: true}); return err },
	} {
		if err := write(); !errors.Is(err, mysql.ErrSchemaNewer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.want("rows", before, f.rows(orders))
	f.want("leases released", 0, f.number("SELECT COUNT(*) FROM queue_partition_leases WHERE lease_expires_at = 0"))

	f.exec("UPDATE mq_schema_version SET version_id = ? WHERE version_id = ?", mysql.SchemaVersion, mysql.SchemaVersion+1)
	f.check(o.CheckSchema(f.ctx))
	f.exec("RENAME TABLE mq_schema_version TO elsewhere")
	f.check(o.CheckSchema(f.ctx)) // not looked at again
}
