package consume_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/tenants"
)

// subscribed returns the configuration that a handler's subscription comes to.
func subscribed(t *testing.T, s consume.Subscription, defaults backend.SubscriptionConfig) backend.SubscriptionConfig {
	t.Helper()
	q := &script{}
	start(t, q, consume.Params{Handlers: handlers(consume.Func(s, nothing)), Defaults: defaults})
	var got backend.SubscriptionConfig
	q.topic(s.Topic, func(sub *subscription) { got = sub.config })
	return got
}

var full = backend.SubscriptionConfig{
	Group: "g", SubscriberName: "me", Ordering: backend.Relaxed, MaxInFlight: 2, BatchSize: 3,
	PollInterval: 4 * time.Second, VisibilityTimeout: 5 * time.Second,
	LeaseDuration: 6 * time.Second, LeaseRenewal: time.Second,
	Retry:         backend.RetryPolicy{MaxAttempts: 7, InitialBackoff: 8 * time.Second, MaxBackoff: 9 * time.Second, Multiplier: 1.5},
	DeadLetter:    backend.DeadLetterPolicy{Disabled: true, Suffix: "_dead"},
	Start:         backend.Latest,
	TenantWeights: map[tenants.ID]int{"docs": 2},
}

// overriding sets every field of a subscription that a configuration has.
func overriding(t *testing.T, c backend.SubscriptionConfig) consume.Subscription {
	t.Helper()
	s := consume.Subscription{Topic: "merge"}
	to, from := reflect.ValueOf(&s).Elem(), reflect.ValueOf(c)
	for i := range from.NumField() {
		name := from.Type().Field(i).Name
		if from.Field(i).IsZero() {
			t.Fatalf("this test sets no %s", name)
		}
		if !to.FieldByName(name).IsValid() {
			t.Fatalf("consume.Subscription has no %s", name)
		}
		to.FieldByName(name).Set(from.Field(i))
	}
	return s
}

func TestSubscriptionOverridesEveryField(t *testing.T) {
	if diff := cmp.Diff(full, subscribed(t, overriding(t, full), backend.SubscriptionConfig{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestZeroFieldsMeanTheDefaults(t *testing.T) {
	if diff := cmp.Diff(full, subscribed(t, consume.Subscription{Topic: "merge"}, full)); diff != "" {
		t.Errorf("the runner's (-want +got):\n%s", diff)
	}
	want := backend.SubscriptionConfig{Group: "lander"}.WithDefaults()
	if diff := cmp.Diff(want, subscribed(t, onMerge, backend.SubscriptionConfig{})); diff != "" {
		t.Errorf("the backend's (-want +got):\n%s", diff)
	}
}

func TestOverriddenLeaseBringsItsRenewal(t *testing.T) {
	got := subscribed(t, consume.Subscription{Topic: "merge", Group: "g", LeaseDuration: 300 * time.Millisecond}, full)
	if got.LeaseRenewal != 100*time.Millisecond {
		t.Errorf("got renewal %v", got.LeaseRenewal)
	}
}

func TestTopicsHaveDefaultsOfTheirOwn(t *testing.T) {
	q := &script{}
	start(t, q, consume.Params{
		Handlers: handlers(consume.Func(on("merge", "g"), nothing), consume.Func(on("check", "g"), nothing)),
		Defaults: full, // not asked
		TopicDefaults: func(topic string) backend.SubscriptionConfig {
			return backend.SubscriptionConfig{MaxInFlight: len(topic), BatchSize: map[string]int{"merge": 7, "check": 8}[topic]}
		},
	})
	for topic, batch := range map[string]int{"merge": 7, "check": 8} {
		want := backend.SubscriptionConfig{Group: "g", MaxInFlight: 5, BatchSize: batch}.WithDefaults()
		q.topic(topic, func(sub *subscription) {
			if diff := cmp.Diff(want, sub.config); diff != "" {
				t.Errorf("%s (-want +got):\n%s", topic, diff)
			}
		})
	}
}
