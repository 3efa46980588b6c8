package main

import (
	"strings"
	"testing"

	"github.com/uber-go/tally/v4"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
)

func TestServiceRuns(t *testing.T) {
	t.Setenv("MQ_TENANTS", "fx")
	app := fxtest.New(t, service([]string{"config/base.yaml"}), fx.Decorate(func(c Config) Config {
		c.Address = "127.0.0.1:0"
		return c
	}))
	app.RequireStart().RequireStop()
}

func TestServiceNeedsTenants(t *testing.T) {
	t.Setenv("MQ_TENANTS", "")
	// A scope in place of the service's own, whose goroutine ends with the process.
	app := fx.New(service([]string{"config/base.yaml"}), fx.NopLogger, fx.Replace(fx.Annotate(tally.NoopScope, fx.As(new(tally.Scope)))))
	if err := app.Err(); err == nil || !strings.Contains(err.Error(), "MQ_TENANTS") {
		t.Errorf("got %v", err)
	}
}
