package mysql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
)

// SchemaVersion is the version of the tables this package works on.
const SchemaVersion = 1

// versionTable records the migrations that were applied.
const versionTable = "mq_schema_version"

//go:embed migrations/*.sql
var migrationFiles embed.FS

// SchemaStatus compares the tables of a database with what this package needs.
type SchemaStatus struct {
	// Current is the version of the database, 0 for an empty one.
	Current int64
	// Latest is [SchemaVersion].
	Latest int64
	// Pending names the migrations that [Migrate] would apply.
	Pending []string
}

// Migrate brings the tables up to [SchemaVersion]; it changes nothing when they
// are there already. Any number of processes may call it at once: one works and
// the others wait for it. It returns [ErrSchemaNewer] for tables of a later
// version than this package knows.
func Migrate(ctx context.Context, db *sql.DB) error {
	status, err := Status(ctx, db)
	if err != nil {
		return err
	}
	if status.Current > status.Latest {
		return schemaError(status.Current)
	}
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectMySQL, db, files,
		goose.WithTableName(versionTable), goose.WithSessionLocker(migrationLock{}),
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return fmt.Errorf("prepare migrations: %w", err)
	}
	// The provider looks for pending migrations before it takes the lock, and
	// stumbles over a version table that another process has made and not filled.
	for attempt := 1; ; attempt++ {
		_, err := provider.Up(ctx)
		if err == nil {
			return nil
		}
		if attempt == migrateAttempts || !strings.Contains(err.Error(), "missing zero version") {
			return fmt.Errorf("migrate the queue's tables: %w", err)
		}
		select {
		case <-time.After(migratePause):
		case <-ctx.Done():
			return fmt.Errorf("migrate the queue's tables: %w", context.Cause(ctx))
		}
	}
}

const (
	migrateAttempts = 20
	migratePause    = 250 * time.Millisecond
)

// Status reads which migrations a database has seen. It changes nothing.
func Status(ctx context.Context, db *sql.DB) (SchemaStatus, error) {
	current, err := schemaVersion(ctx, db)
	if err != nil {
		return SchemaStatus{}, fmt.Errorf("read the schema version: %w", forVitess(err))
	}
	status := SchemaStatus{Current: current, Latest: SchemaVersion}
	names, err := migrationNames()
	if err != nil {
		return SchemaStatus{}, err
	}
	for _, name := range names {
		if version, err := goose.NumericComponent(name); err == nil && version > current {
			status.Pending = append(status.Pending, name)
		}
	}
	return status, nil
}

// Schema returns the statements that make the tables, for those who apply them
// with a migration tool of their own. They record the version as [Migrate]
// does, so that Verify finds it.
func Schema() string {
	return stmtVersionTable + ";\n\n" + schema(func(version int64) string { return fmt.Sprintf("\n"+stmtRecordVersion+";\n", version) })
}

// VitessSchema returns the statements of [Schema] that make the queue's own
// tables and record no version, for ApplySchema in a sharded keyspace, where the
// version would have no shard to be on. Set Config.ExternalSchema, and see
// [VSchema].
func VitessSchema() string {
	return schema(func(int64) string { return "" })
}

// schema returns the statements of all migrations, each followed by what after
// says.
func schema(after func(version int64) string) string {
	var b strings.Builder
	names, err := migrationNames()
	if err != nil {
		panic(err) // embedded
	}
	for _, name := range names {
		text, err := migrationFiles.ReadFile(path.Join("migrations", name))
		if err != nil {
			panic(err)
		}
		_, up, _ := strings.Cut(string(text), "-- +goose Up\n")
		up, _, _ = strings.Cut(up, "-- +goose Down\n")
		version, err := goose.NumericComponent(name)
		if err != nil {
			panic(err)
		}
		b.WriteString(strings.TrimSpace(up) + "\n" + after(version))
	}
	return b.String()
}

func migrationNames() ([]string, error) {
	entries, err := migrationFiles.ReadDir("migrations") // sorted by name
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// schemaVersion returns 0 for a database without tables. The table that vtgate
// lacks is not missing: it has no shard to be on.
func schemaVersion(ctx context.Context, db querier) (int64, error) {
	var version sql.NullInt64
	switch err := db.QueryRowContext(ctx, stmtSchemaVersion).Scan(&version); {
	case hasNumber(err, errNoSuchTable):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return version.Int64, nil
}

// Returned by Verify, Migrate, and by the first Publish, PublishTx or
// Subscribe, for tables that do not fit.
var (
	// ErrSchemaMissing: there are no tables.
	ErrSchemaMissing = errors.New("the queue's tables are missing")
	// ErrSchemaOlder: migrations have to be applied.
	ErrSchemaOlder = errors.New("the queue's tables are of an older version")
	// ErrSchemaNewer: a later release of this package has migrated them.
	ErrSchemaNewer = errors.New("the queue's tables are of a newer version")
)

const migrateRemedy = `call mysql.Migrate, or apply backend/mysql/schema.sql`

// schemaError is nil for the right version.
func schemaError(current int64) error {
	switch {
	case current == 0:
		return fmt.Errorf("%w, or their version in %s: %s", ErrSchemaMissing, versionTable, migrateRemedy)
	case current < SchemaVersion:
		return fmt.Errorf("%w, %d, and %d is needed: %s", ErrSchemaOlder, current, SchemaVersion, migrateRemedy)
	case current > SchemaVersion:
		return fmt.Errorf("%w, %d, and this program knows %d: deploy the release that migrated them", ErrSchemaNewer, current, SchemaVersion)
	}
	return nil
}

// migrationLock lets one process at a time migrate a database. It is held by
// the connection, so a process that dies gives it up.
type migrationLock struct{}

// SessionLock waits for the lock until ctx ends. It asks again and again for a
// few seconds each, below any read timeout of the connection.
func (migrationLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	for {
		var got sql.NullBool
		if err := conn.QueryRowContext(ctx, stmtLockMigration).Scan(&got); err != nil {
			return fmt.Errorf("wait for another migration: %w", err)
		}
		if !got.Valid {
			return errors.New("the server refuses GET_LOCK for the migration")
		}
		if got.Bool {
			return nil
		}
	}
}

// SessionUnlock gives the lock back.
func (migrationLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, stmtUnlockMigration)
	return err
}
