package main

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/uber-go/tally/v4"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/tenantmq/tenantmq/examples/internal/git"
	"github.com/tenantmq/tenantmq/internal/testdb"
)

// The service as it is shipped, in memory and on a database.
func TestServiceRuns(t *testing.T) {
	for name, files := range map[string][]string{
		"memory": {"config/base.yaml"},
		"mysql":  {"config/base.yaml", "config/development.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("MQ_TENANTS", "fx")
			if name == "mysql" {
				t.Setenv("MQ_DSN", testdb.DSN(t))
			}
			dir := t.TempDir()
			if err := git.Create(t.Context(), dir, []git.Commit{{Ref: "refs/heads/fx", Files: "a"}}); err != nil {
				t.Fatal(err)
			}
			head, err := git.Repository(dir).Resolve(t.Context(), "refs/heads/fx")
			if err != nil {
				t.Fatal(err)
			}
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			address := listener.Addr().String()
			if err := listener.Close(); err != nil {
				t.Fatal(err)
			}
			app := fxtest.New(t, service(files), fx.Decorate(func(c Config) Config {
				c.Address, c.Repository, c.Target = address, dir, "refs/heads/{queue}"
				return c
			}))
			app.RequireStart()
			defer app.RequireStop()
			defer http.DefaultClient.CloseIdleConnections()

			response, err := http.Post("http://"+address+"/ingest", "application/json", strings.NewReader(`{"queue": "fx"}`))
			if err != nil || response.StatusCode != http.StatusAccepted {
				t.Fatalf("%+v, %v", response, err)
			}
			response.Body.Close()
			for body, deadline := "", time.Now().Add(20*time.Second); !strings.Contains(body, head); {
				if time.Now().After(deadline) {
					t.Fatalf("%s, want %s", body, head)
				}
				response, err := http.Get("http://" + address + "/queues/fx")
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(response.Body)
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				body = string(text)
			}
		})
	}
}

func TestServiceNeedsTenants(t *testing.T) {
	t.Setenv("MQ_TENANTS", "")
	// A scope in place of the service's own, whose goroutine ends with the process.
	app := fx.New(service([]string{"config/base.yaml"}), fx.NopLogger, fx.Replace(fx.Annotate(tally.NoopScope, fx.As(new(tally.Scope)))))
	if err := app.Err(); err == nil || !strings.Contains(err.Error(), "MQ_TENANTS") {
		t.Errorf("got %v", err)
	}
}
