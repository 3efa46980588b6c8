package engine_test

import (
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// Every line says what it is about, and none is written while all is well.
func TestLogLinesNameWhatTheyAreAbout(t *testing.T) {
	var away atomic.Bool
	place := map[string]any{"topic": "topic", "group": "group", "tenant": "a", "partition_key": "key"}
	for message, c := range map[string]struct {
		cfg    backend.SubscriptionConfig
		happen func(t *testing.T, d backend.Delivery)
		fields map[string]any
	}{
		"": {happen: func(t *testing.T, d backend.Delivery) {
			if err := d.Ack(t.Context()); err != nil {
				t.Error(err)
			}
		}},
		"message dead-lettered": {
			happen: func(t *testing.T, d backend.Delivery) {
				if err := d.Reject(t.Context(), errors.New("never")); err != nil {
					t.Error(err)
				}
			},
			fields: map[string]any{"id": "1", "error": "never", "to": "topic_dlq"},
		},
		"message given up and dropped: dead letters are disabled": {
			cfg: backend.SubscriptionConfig{DeadLetter: backend.DeadLetterPolicy{Disabled: true}},
			happen: func(t *testing.T, d backend.Delivery) {
				if err := d.Reject(t.Context(), errors.New("never")); err != nil {
					t.Error(err)
				}
			},
			fields: map[string]any{"id": "1", "error": "never"},
		},
		"lease lost": {
			happen: func(_ *testing.T, d backend.Delivery) {
				away.Store(true)
				<-d.Context().Done()
			},
			fields: map[string]any{"in_flight": int64(1)},
		},
		"store error, retrying": {
			happen: func(*testing.T, backend.Delivery) { away.Store(true) },
			fields: map[string]any{"work": "renew", "partition_key": nil}, // of many
		},
	} {
		t.Run(message, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				away.Store(false)
				core, lines := observer.New(zap.InfoLevel)
				s := &script{log: zap.New(core), onRenew: func(tenants.ID, []engineLease) error {
					if away.Load() {
						return errAway
					}
					return nil
				}}
				s.put("a", "key", 1, 1)
				sub, _ := s.start(t, c.cfg, "a")
				d := <-sub.Deliveries()
				c.happen(t, d)
				time.Sleep(10 * time.Second)
				stop(t, sub)
				if message == "" {
					if n := lines.Len(); n > 0 {
						t.Errorf("%d lines while all is well: %v", n, lines.All())
					}
					return
				}
				found := lines.FilterMessage(message).All()
				if len(found) != 1 {
					t.Fatalf("%d lines: %v", len(found), lines.All())
				}
				want := maps.Clone(place)
				maps.Copy(want, c.fields)
				got := found[0].ContextMap()
				for name := range want {
					if got[name] != want[name] {
						t.Errorf("%s = %v, want %v", name, got[name], want[name])
					}
				}
			})
		})
	}
}
