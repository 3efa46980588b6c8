package mqfx_test

import (
	"testing"
	"time"

	"go.uber.org/fx"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenantmq/tenantmq/mqfx"
)

// An overlay that several services share lists topics of others; a misspelt one
// looks the same.
func TestUnusedSettingsAreLogged(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	start(t, mqfx.Module, mqfx.WithTenants(set(t, "acme")), mqfx.Handle(newCollector("land")), fx.Provide(func() *zap.Logger { return zap.New(core) }),
		mqfx.WithConfig(mqfx.Config{Backend: mqfx.BackendMemory, Topics: map[string]mqfx.Subscription{
			"land": {BatchSize: 7}, "lend": {PollInterval: time.Second},
		}}))
	entries := logs.FilterMessage("setting of no use to this process").All()
	if len(entries) != 1 || logs.Len() != 1 {
		t.Fatalf("logged %+v", logs.All())
	}
	if got, want := entries[0].ContextMap()["setting"], "mq.topics.lend: no handler consumes this topic; did you mean land? the handlers' are land"; got != want {
		t.Errorf("logged %q, want %q", got, want)
	}
}
