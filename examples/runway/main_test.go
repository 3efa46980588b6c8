package main

import (
	"strings"
	"testing"

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
	app := fx.New(service([]string{"config/base.yaml"}), fx.NopLogger)
	if err := app.Err(); err == nil || !strings.Contains(err.Error(), "MQ_TENANTS") {
		t.Errorf("got %v", err)
	}
}
