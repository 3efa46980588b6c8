package memory

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

const deadTopic = changes + backend.DefaultDeadLetterSuffix

// kill dead-letters the first message of a partition and releases the lease.
func (m *member) kill(key string) engine.Message {
	m.b.Helper()
	grant := m.take(key, 0)
	msg := m.fetch(engine.Range{Key: key, After: grant.Watermark, Through: 1 << 62, Limit: 1})[0].Messages[0]
	m.settle(engine.Settlement{
		Lease: grant.Lease, Watermark: grant.Watermark, Stored: grant.Stored, Run: []uint64{msg.Offset}, Drained: true,
		DeadLetters: []engine.DeadLetter{{Message: msg.Message, Attempts: 3, Error: "no"}},
	})
	return msg
}

func (b *bench) undertaker() *member {
	b.Helper()
	return b.joinTopic(deadTopic, backend.SubscriptionConfig{Group: "undertakers", SubscriberName: "u"})
}

func TestDeadLetterTellsHowItFailed(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	o := b.publish("key", "a")
	m.kill("key")
	u := b.undertaker()
	u.read("key")[0].Failure.LastError = "scribble"
	dead := u.read("key")
	want := change("key", "a")
	want.Topic, want.Offset, want.PublishedAt = deadTopic, o[0]+1, b.now
	equal(t, "dead letters", []engine.Message{{Message: want, Failure: &backend.Failure{
		OriginalTopic: changes, OriginalID: "a", OriginalOffset: o[0],
		Group: "landers", Attempts: 3, LastError: "no", FailedAt: b.now,
	}}}, dead)
}

func TestEveryGroupKeepsItsDeadLetter(t *testing.T) {
	long := strings.Repeat("ä", backend.MaxIdentLength)
	b := newBench(t)
	one, two := b.join("landers"), b.join("watchers")
	b.publish("key", long)
	one.kill("key")
	two.kill("key")
	b.publish("key", long) // settled by both, so it is new
	one.kill("key")

	dead := b.undertaker().read("key")
	var groups []string
	for _, d := range dead {
		if err := d.Validate(); err != nil {
			t.Error(err)
		}
		equal(t, "original id", long, d.Failure.OriginalID)
		groups = append(groups, d.Failure.Group)
	}
	equal(t, "groups", []string{"landers", "watchers", "landers"}, groups)
	if list := ids(dead); len(slices.Compact(slices.Sorted(slices.Values(list)))) != 3 || list[0] != long {
		t.Errorf("ids %q, want the original one first, and three", list)
	}
}

func TestFailureIsRecordedOnce(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	o := b.publish("key", "a", "b")
	lease := m.take("key", o[1]).Lease
	dead := engine.DeadLetter{Message: m.read("key")[0].Message}
	for range 2 {
		m.settle(engine.Settlement{Lease: lease, Run: o[:1], DeadLetters: []engine.DeadLetter{dead}})
	}
	equal(t, "dead letters", []string{"a"}, ids(b.undertaker().read("key")))
}

func TestRedriveIsForTheGroupThatFailed(t *testing.T) {
	b := newBench(t)
	one, two := b.join("landers"), b.join("watchers")
	b.publish("key", "a")
	one.kill("key")
	if err := b.Redrive(t.Context(), tenant, deadTopic, "key", "a"); err != nil {
		t.Fatal(err)
	}
	// The original still waits for the other group, so the id is taken.
	for _, m := range []*member{one, two} {
		list := m.read("key")
		equal(t, "ids", []string{"a", "a"}, ids(list))
		equal(t, "skip of "+m.group, m == two, list[1].Skip)
		equal(t, "payload", list[0].Payload, list[1].Payload)
		if list[0].Skip || list[1].Failure != nil {
			t.Errorf("messages %+v", list)
		}
	}
	if n := b.Stats(); n.Messages != 2 {
		t.Errorf("%d messages stored, want the dead letter gone", n.Messages)
	}

	// It can fail and come back again.
	again := one.kill("key")
	dead := b.undertaker().read("key")
	equal(t, "dead again", []string{"a"}, ids(dead))
	equal(t, "original offset", again.Offset, dead[0].Failure.OriginalOffset)
	if err := b.Redrive(t.Context(), tenant, deadTopic, "key", "a"); err != nil {
		t.Fatal(err)
	}
}

func TestRedriveNamesOneDeadLetter(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	b.publish("key", "a", "b")
	m.kill("key")
	for name, id := range map[string][3]string{
		"not a dead letter": {changes, "key", "b"},
		"other id":          {deadTopic, "key", "b"},
		"other key":         {deadTopic, "other", "a"},
		"other topic":       {"nothing", "key", "a"},
	} {
		if err := b.Redrive(t.Context(), tenant, id[0], id[1], id[2]); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", name, err)
		}
	}
	if err := b.Redrive(t.Context(), "other", deadTopic, "key", "a"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("other tenant: %v, want ErrNotFound", err)
	}
	if err := b.Redrive(t.Context(), tenant, deadTopic, "key", ""); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("no id: %v, want ErrInvalid", err)
	}
}

func TestPauseIsKeptWithTheGroup(t *testing.T) {
	b := newBench(t)
	one, two := b.join("landers"), b.join("watchers")
	b.publish("key", "a")
	for _, step := range []struct {
		do   func() error
		want bool
	}{
		{func() error { return b.Pause(t.Context(), tenant, changes, "landers") }, true},
		{func() error { return b.Pause(t.Context(), tenant, changes, "landers") }, true},
		{func() error { return one.Register(t.Context(), []tenants.ID{tenant}) }, true},
		{func() error { return b.Resume(t.Context(), tenant, changes, "landers") }, false},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		for m, want := range map[*member]bool{one: step.want, two: false} {
			c, err := m.Control(t.Context(), []tenants.ID{tenant})
			if err != nil {
				t.Fatal(err)
			}
			equal(t, m.group+" paused by Control", want, c[tenant].Paused)
			equal(t, m.group+" paused by Acquire", want, m.acquire().Paused)
		}
	}
}

func TestDroppedGroupIsForgotten(t *testing.T) {
	b := newBench(t)
	one, two := b.join("landers", backend.Latest), b.join("watchers")
	o := b.publish("key", "a", "b")
	lease := one.take("key", o[1]).Lease
	one.settle(engine.Settlement{Lease: lease, Run: o[:1], States: []engine.State{{Offset: o[1]}}})
	second := two.take("key", o[1]).Lease
	if err := b.DropGroup(t.Context(), tenant, changes, "landers"); err != nil {
		t.Fatal(err)
	}
	b.left(Stats{Messages: 2, Leases: 1, Heartbeats: 1})
	equal(t, "settlement of the dropped", engine.Settled{Lost: true}, one.settle(engine.Settlement{Lease: lease, Run: o[1:]}))
	equal(t, "settlement of the other", engine.Settled{Drained: true}, two.settle(engine.Settlement{Lease: second, Run: o, Drained: true}))

	one.beat()
	if err := b.Pause(t.Context(), tenant, changes, "landers"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("Pause of the dropped: %v, want ErrNotFound", err)
	}

	// Still subscribed, it comes back, and takes whatever is stored.
	b.publish("key", "c")
	equal(t, "watermark", uint64(0), one.take("key", 0).Watermark)
	equal(t, "groups", 2, b.Stats().Groups)
}

func TestAdminNeedsAGroup(t *testing.T) {
	b := newBench(t)
	b.join("landers")
	b.publish("key", "a")
	for name, do := range map[string]func(topic, group string) error{
		"Pause":     func(topic, group string) error { return b.Pause(t.Context(), tenant, topic, group) },
		"Resume":    func(topic, group string) error { return b.Resume(t.Context(), tenant, topic, group) },
		"DropGroup": func(topic, group string) error { return b.DropGroup(t.Context(), tenant, topic, group) },
	} {
		for _, at := range [][2]string{{changes, "others"}, {"nothing", "landers"}} {
			if err := do(at[0], at[1]); !errors.Is(err, backend.ErrNotFound) {
				t.Errorf("%s of %q: %v, want ErrNotFound", name, at, err)
			}
		}
		if err := do("", "landers"); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s without a topic: %v, want ErrInvalid", name, err)
		}
	}
}
