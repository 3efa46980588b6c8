package mqfx_test

import (
	"testing"
	"time"

	"go.uber.org/fx"

	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/publish"
)

// Of a handle that was handed in as many connections are kept aside; of ours,
// none: its reserve comes on top.
func TestPoolReserveOfAHandedInHandle(t *testing.T) {
	db := opened(t, migrated(t))
	db.SetMaxOpenConns(8)
	start(t, mqfx.Module, mqfx.WithDB(db), mqfx.WithConfig(mqfx.Config{Pool: mqfx.Pool{Reserve: 3}, Log: quiet}))
	if got := db.Stats().InUse; got != 3 {
		t.Errorf("%d connections are kept aside", got)
	}
}

// PublishTx reads on the reserve, which is not of the pool: with all of that in
// callers' hands it goes on.
func TestPoolReserveOfOurOwn(t *testing.T) {
	dsn := testdb.DSN(t)
	var out publish.Publisher
	start(t, mqfx.Module, fx.Populate(&out), mqfx.WithConfig(mqfx.Config{
		DSN: mqfx.DSN(dsn), Migrate: true, Pool: mqfx.Pool{MaxOpen: 4, MaxLifetime: time.Minute, Reserve: 1}, Log: quiet,
	}))
	watch := opened(t, dsn)
	watch.SetMaxIdleConns(1)
	tx, err := watch.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	connections := func() (n int) {
		t.Helper()
		if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := connections()
	if _, err := out.PublishTx(t.Context(), tx, "acme", "land", message("1")); err != nil {
		t.Fatal(err)
	}
	if after := connections(); after != before+1 {
		t.Errorf("%d connections, then %d: the reserve was not used", before, after)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}
