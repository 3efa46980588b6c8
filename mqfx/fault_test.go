package mqfx_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/fx/fxtest"

	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/mqfx"
)

// Only what no retry can mend ends an application.
func TestFaultShutsTheApplicationDown(t *testing.T) {
	server := testdb.StartServer(t)
	dsn := server.Database(t)
	db, err := mysql.Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	app := fxtest.New(t, mqfx.Module, mqfx.WithTenants(set(t, "acme")), mqfx.Handle(newCollector("land")),
		mqfx.WithConfig(mqfx.Config{DSN: mqfx.DSN(dsn), Migrate: true, Log: quiet}))
	app.RequireStart()
	defer app.RequireStop()
	ended := app.Wait()

	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	for db.PingContext(ctx) != nil && ctx.Err() == nil { // away, and back
	}
	select {
	case signal := <-ended:
		t.Fatalf("a database that is away shut the application down: %+v", signal)
	default:
	}

	if _, err := db.ExecContext(ctx, "DROP TABLE queue_messages"); err != nil {
		t.Fatal(err)
	}
	select {
	case signal := <-ended:
		if signal.ExitCode != mqfx.ExitFault {
			t.Errorf("exit code %d, want %d", signal.ExitCode, mqfx.ExitFault)
		}
	case <-ctx.Done():
		t.Error("the application goes on without its tables")
	}
}
