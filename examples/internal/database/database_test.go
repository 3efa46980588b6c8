package database_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"testing/fstest"

	"go.uber.org/fx/fxtest"

	"github.com/tenantmq/tenantmq/examples/internal/database"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/mqfx"
)

func TestMain(m *testing.M) { testdb.Main(m) }

func open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", testdb.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// As mq.server_isolation says: vtgate may refuse to have the level set.
func TestOpenSetsTheIsolationUnlessTold(t *testing.T) {
	server := testdb.StartServer(t, "transaction-isolation=READ-COMMITTED")
	dsn := mqfx.DSN(server.Database(t))
	for leave, want := range map[bool]string{false: "REPEATABLE-READ", true: "READ-COMMITTED"} {
		lc := fxtest.NewLifecycle(t)
		db, err := database.Open(lc, mqfx.Config{DSN: dsn, ServerIsolation: leave}, "test", versions)
		if err != nil {
			t.Fatal(err)
		}
		lc.RequireStart()
		var name, got string
		err = db.QueryRow("SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')").Scan(&name, &got)
		if err != nil || got != want {
			t.Errorf("server_isolation %v: %s, %v; want %s", leave, got, err, want)
		}
		lc.RequireStop()
	}
}

var versions = fstest.MapFS{"migrations/00001_counter.sql": {Data: []byte("-- +goose Up\nCREATE TABLE counter (id INT PRIMARY KEY, n INT NOT NULL);\nINSERT INTO counter VALUES (1, 0), (2, 0);\n")}}

// Processes of a service start at once.
func TestConcurrentMigrationsApplyOnce(t *testing.T) {
	for range 10 {
		dsn := testdb.DSN(t)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				db, err := sql.Open("mysql", dsn)
				if err != nil {
					t.Error(err)
					return
				}
				defer db.Close()
				if err := database.Migrate(t.Context(), db, "test", versions); err != nil {
					t.Error(err)
				}
				var n int
				if err := db.QueryRow("SELECT COUNT(*) FROM counter").Scan(&n); err != nil || n != 2 {
					t.Errorf("%d rows, %v", n, err)
				}
			})
		}
		wg.Wait()
	}
}

func TestInTxRepeatsADeadlockVictim(t *testing.T) {
	db := open(t)
	if err := database.Migrate(t.Context(), db, "test", versions); err != nil {
		t.Fatal(err)
	}
	// Each transaction takes the first row once the other has it too: one of
	// them must be run again.
	var barrier sync.WaitGroup
	barrier.Add(2)
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			first := true
			err := database.InTx(t.Context(), db, func(tx *sql.Tx) error {
				if _, err := tx.Exec("UPDATE counter SET n = n + 1 WHERE id = ?", 1+i); err != nil {
					return err
				}
				if first {
					first = false
					barrier.Done()
					barrier.Wait()
				}
				_, err := tx.Exec("UPDATE counter SET n = n + 1 WHERE id = ?", 2-i)
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var sum int
	if err := db.QueryRow("SELECT SUM(n) FROM counter").Scan(&sum); err != nil || sum != 4 {
		t.Errorf("sum %d, %v", sum, err)
	}
}

func TestInTxReturnsOtherErrorsAtOnce(t *testing.T) {
	db := open(t)
	if err := database.Migrate(t.Context(), db, "test", versions); err != nil {
		t.Fatal(err)
	}
	calls, mine := 0, errors.New("mine")
	err := database.InTx(t.Context(), db, func(tx *sql.Tx) error {
		calls++
		if _, err := tx.Exec("UPDATE counter SET n = 7"); err != nil {
			return err
		}
		return mine
	})
	if !errors.Is(err, mine) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
	err = database.InTx(t.Context(), db, func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO counter VALUES (1, 7)")
		return err
	})
	if !database.IsError(err, database.DuplicateKey) {
		t.Errorf("duplicate key: %v", err)
	}
	var sum int
	if err := db.QueryRow("SELECT SUM(n) FROM counter").Scan(&sum); err != nil || sum != 0 {
		t.Errorf("sum %d, %v: not rolled back", sum, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := database.InTx(ctx, db, func(*sql.Tx) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
