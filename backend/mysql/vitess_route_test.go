//go:build vitess

package mysql

import (
	"database/sql"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/tenantmq/tenantmq/internal/vitesstest"
)

// openHeard is [Open] with an ear on the wire.
func openHeard(s *vitesstest.Sent) func(dsn string) (*sql.DB, error) {
	return func(dsn string) (*sql.DB, error) {
		cfg, err := openOptions{serverIsolation: true}.driverConfig(dsn)
		if err != nil {
			return nil, err
		}
		inner, err := mysql.NewConnector(cfg)
		if err != nil {
			return nil, err
		}
		db := sql.OpenDB(s.Connector(&connector{Connector: inner, target: target(cfg), database: cfg.DBName}))
		db.SetMaxOpenConns(DefaultMaxOpenConns)
		db.SetMaxIdleConns(DefaultMaxOpenConns)
		return db, nil
	}
}

// checkRoutes looks at all that the suite has sent.
func checkRoutes(t *testing.T, s *vitesstest.Sent, db *sql.DB) {
	t.Helper()
	s.Check(t, db, vitesstest.Expected{
		Statements: vitesstest.Statements(t, "statements.go"),
		// Those that need the name of the version table, which another file has, are not among them.
		Never: map[string]string{
			"stmtIsolation":       "vtgate over MariaDB refuses it: ServerIsolation",
			"stmtEngines":         "ExternalSchema",
			"stmtLockMigration":   "ExternalSchema",
			"stmtUnlockMigration": "ExternalSchema",
		},
		Anywhere: []string{"SHOW ", "SET ", "SAVEPOINT ", "ROLLBACK ", "RELEASE ", stmtDatabase},
	})
}
