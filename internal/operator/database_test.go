//go:build !vitess

package operator

import (
	"database/sql"
	"testing"

	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/tenants"
)

// newDatabase has one of the test's own.
func newDatabase(t testing.TB, _ tenants.ID) database {
	t.Helper()
	d := database{dsn: testdb.DSN(t)}
	d.pool = openPool(t, func() (*sql.DB, error) { return mysql.Open(d.dsn) })
	if err := mysql.Migrate(t.Context(), d.pool); err != nil {
		t.Fatal(err)
	}
	d.tables = []*sql.DB{d.pool}
	return d
}
