package main

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/uber-go/tally/v4"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/tenantmq/tenantmq/internal/testdb"
)

// start runs the service and returns its URL.
func start(t *testing.T, files ...string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	app := fxtest.New(t, service(files), fx.Decorate(func(c Config) Config {
		c.Address, c.Queues = address, map[string]QueueConfig{"river": {Check: "exit 1"}}
		return c
	}))
	app.RequireStart()
	t.Cleanup(app.RequireStop)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return "http://" + address
}

// The service as it is shipped, in memory and on a database: a change that
// passes its check waits for runway, another fails it.
func TestServiceRuns(t *testing.T) {
	for name, files := range map[string][]string{
		"memory": {"config/base.yaml"},
		"mysql":  {"config/base.yaml", "config/development.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("MQ_TENANTS", "fx,river")
			if name == "mysql" {
				t.Setenv("MQ_DSN", testdb.DSN(t))
			}
			url := start(t, files...)
			for queue, want := range map[string]State{"fx": Merging, "river": CheckFailed} {
				response, err := http.Post(url+"/land", "application/json", strings.NewReader(`{"queue": "`+queue+`", "change": "c"}`))
				if err != nil || response.StatusCode != http.StatusAccepted {
					t.Fatalf("%+v, %v", response, err)
				}
				response.Body.Close()
				var r Request
				for deadline := time.Now().Add(20 * time.Second); r.State != want; {
					if time.Now().After(deadline) {
						t.Fatalf("%+v, want %s", r, want)
					}
					response, err := http.Get(url + "/requests/c@" + queue)
					if err != nil {
						t.Fatal(err)
					}
					if err := json.NewDecoder(response.Body).Decode(&r); err != nil {
						t.Fatal(err)
					}
					response.Body.Close()
				}
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
