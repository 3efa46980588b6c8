package consume_test

import (
	"context"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
)

// What a runner adds to a delivery: goroutine, contexts, timer, counters.
func BenchmarkDelivery(b *testing.B) {
	s := &script{}
	r, err := consume.NewRunner(consume.Params{Subscriber: s, Handlers: handlers(consume.Func(onMerge, nothing))})
	if err != nil {
		b.Fatal(err)
	}
	if err := r.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	var sub *subscription
	s.topic("merge", func(found *subscription) { sub = found })
	d := &instant{delivery{message: backend.Message{Tenant: "docs", Topic: "merge"}, ctx: context.Background()}}
	b.ReportAllocs()
	for b.Loop() {
		sub.out <- d
	}
	if err := r.Stop(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// instant is a delivery that may be settled again and again.
type instant struct{ delivery }

func (*instant) Ack(context.Context) error { return nil }
