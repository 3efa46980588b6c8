package mysql

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

const topicDead = topicA + backend.DefaultDeadLetterSuffix

// letters reads a dead-letter partition as a group of its own would.
func (f *fixture) letters(key string) []engine.Message {
	f.Helper()
	s := f.unregistered(topicDead, "undertaker", "one")
	return f.fetch(s, engine.Range{Key: key, Through: engine.Unbounded, Limit: 1000})[0].Messages
}

// giveUp dead-letters the first message that a group sees of a partition.
func (f *fixture) giveUp(s *store, key string, attempts int, cause string) engine.Settled {
	f.Helper()
	g := f.grant(s, key, 0)
	m := f.fetch(s, engine.Range{Key: key, After: g.Watermark, Through: engine.Unbounded, Limit: 1})[0].Messages[0]
	r := f.settle(s, engine.Settlement{
		Lease: g.Lease, Watermark: g.Watermark, Stored: g.Stored, Run: []uint64{m.Offset}, HasStates: true,
		DeadLetters: []engine.DeadLetter{{Message: m.Message, Attempts: attempts, Error: cause}},
	})[0]
	f.release(s, engine.Release{Lease: g.Lease})
	return r
}

func TestDeadLetterKeepsTheMessageAndItsFailure(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	m := backend.Message{
		Tenant: tenantA, Topic: topicA, PartitionKey: "it's 💥", ID: `a "b" \c`, Payload: []byte("\x00\xff'\\"),
		Metadata: map[string]string{"k": "it's <ü> \"&\" \\"},
	}
	offset := mustPublish(t, f.q, m)[0].Offset
	cause := "broke\xff: " + strings.Repeat("ü", maxErrorText)
	f.giveUp(s, m.PartitionKey, 3, cause)

	got := f.letters(m.PartitionKey)
	want := m
	want.Topic = topicDead
	if d := cmp.Diff([]engine.Message{{Message: want, Failure: &backend.Failure{
		OriginalTopic: topicA, OriginalID: m.ID, OriginalOffset: offset, Group: groupA, Attempts: 3,
	}}}, got, cmpopts.IgnoreFields(backend.Message{}, "Offset", "PublishedAt"), cmpopts.IgnoreFields(backend.Failure{}, "LastError", "FailedAt")); d != "" {
		t.Errorf("dead letter (-want +got):\n%s", d)
	}
	if e := got[0].Failure.LastError; !utf8.ValidString(e) || !strings.HasPrefix(e, "broke\uFFFD: üü") || len(e) < maxErrorText-1 || len(e) > maxErrorText {
		t.Errorf("error text of %d bytes: %.20q", len(e), e)
	}
	if age := time.Since(got[0].Failure.FailedAt).Abs(); age > time.Minute {
		t.Errorf("failed %v ago", age)
	}
}

func TestDeadLettersOfTwoGroupsStandBesideEachOther(t *testing.T) {
	f := newFixture(t)
	a, b := f.store(groupA, "one"), f.store(groupB, "one")
	id := strings.Repeat("💥", backend.MaxIdentLength)
	mustPublish(t, f.q, backend.Message{Tenant: tenantA, Topic: topicA, PartitionKey: "k", ID: id})
	f.giveUp(a, "k", 1, "a")
	f.giveUp(b, "k", 2, "b")
	got := f.letters("k")
	if len(got) != 2 || got[0].Failure.Group != groupA || got[1].Failure.Group != groupB {
		t.Fatalf("dead letters: %+v", got)
	}
	f.want("the first keeps its id", id, got[0].ID)
	if other := got[1]; other.ID == id || backend.CheckMessageID(other.ID) != nil || other.Failure.OriginalID != id {
		t.Errorf("the second has id %q, original %q", other.ID, other.Failure.OriginalID)
	}
	f.want("messages of the topic", 0, len(f.offsets(a, "k", 0)))
}

// An answer may be lost: the settlement is written again.
func TestSameDeadLetterTwiceIsOne(t *testing.T) {
	f := newFixture(t)
	a, b := f.store(groupA, "one"), f.store(groupB, "one")
	f.publish("k", 2)
	for _, s := range []*store{a, b} {
		g := f.grant(s, "k", 0)
		var letters []engine.DeadLetter
		for _, m := range f.fetch(s, engine.Range{Key: "k", Through: engine.Unbounded, Limit: 2})[0].Messages {
			letters = append(letters, engine.DeadLetter{Message: m.Message, Attempts: 1, Error: s.group})
		}
		for range 2 {
			f.settle(s, engine.Settlement{Lease: g.Lease, DeadLetters: letters, States: []engine.State{{Offset: letters[0].Message.Offset, Settled: true}}})
		}
	}
	got := f.letters("k")
	f.want("dead letters", 4, len(got))
	for _, m := range got[2:] {
		f.want("group of the later ones", groupB, m.Failure.Group)
	}
}

func TestDisabledDeadLettersAreDropped(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one", func(c *backend.SubscriptionConfig) { c.DeadLetter.Disabled = true })
	f.publish("k", 1)
	f.giveUp(s, "k", 1, "no")
	f.want("dead letters", 0, len(f.letters("k")))
	f.want("messages", 0, len(f.offsets(s, "k", 0)))
}

// A dead letter is a publish: a watermark that has moved past its offset before
// it was stored would hide it.
func TestDeadLettersObeyTheFence(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	f.publish("k", 3)
	under := f.unregistered(topicDead, "undertaker", "one")
	if err := under.Register(t.Context(), []tenants.ID{tenantA}); err != nil {
		t.Fatal(err)
	}
	const ahead = 10_000
	mustExec(t, f.db, "INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES (?, ?, 'k', 'undertaker', ?, 0)",
		string(tenantA), topicDead, ahead)
	f.giveUp(s, "k", 1, "no")
	got := f.letters("k")
	if len(got) != 1 || got[0].Offset <= ahead {
		t.Errorf("dead letters: %+v", got)
	}
}

func TestRedriveGoesToTheGroupThatFailedOnly(t *testing.T) {
	f := newFixture(t)
	a, b := f.store(groupA, "one"), f.store(groupB, "one")
	m := backend.Message{Tenant: tenantA, Topic: topicA, PartitionKey: "k", ID: "it's", Payload: []byte("p\x00"), Metadata: map[string]string{"m": "ü"}}
	offset := mustPublish(t, f.q, m)[0].Offset
	f.giveUp(a, "k", 3, "no")
	redrive := func() {
		t.Helper()
		if err := f.q.Redrive(t.Context(), tenantA, topicDead, "k", f.letters("k")[0].ID); err != nil {
			t.Fatal(err)
		}
	}
	redrive()
	f.want("dead letters", 0, len(f.letters("k")))

	// The original is still stored: the second group has not passed it.
	ignore := cmpopts.IgnoreFields(backend.Message{}, "Offset", "PublishedAt")
	for _, c := range []struct {
		s    *store
		skip bool
	}{{a, false}, {b, true}} {
		got := f.fetch(c.s, engine.Range{Key: "k", After: offset, Through: engine.Unbounded, Limit: 10})[0].Messages
		if d := cmp.Diff([]engine.Message{{Message: m, Skip: c.skip}}, got, ignore); d != "" {
			t.Errorf("as group %s sees it (-want +got):\n%s", c.s.group, d)
		}
	}

	// It fails again, and is redriven again, while its first copy is stored too.
	f.giveUp(a, "k", 1, "again")
	f.want("original id of the second dead letter", m.ID, f.letters("k")[0].ID)
	redrive()
	f.want("stored", 3, len(f.offsets(a, "k", 0)))

	// With nobody waiting for the original the copy takes its id.
	run := f.publish("k2", 1)
	f.giveUp(a, "k2", 1, "no")
	g := f.grant(b, "k2", 0)
	f.settle(b, engine.Settlement{Lease: g.Lease, Run: run})
	id := f.letters("k2")[0].ID
	if err := f.q.Redrive(t.Context(), tenantA, topicDead, "k2", id); err != nil {
		t.Fatal(err)
	}
	f.want("rows with its id", 1, queryInt(t, f.db, "SELECT COUNT(*) FROM queue_messages WHERE topic = ? AND partition_key = 'k2' AND id = ?", topicA, id))
}

func TestRedriveWhatIsNotThere(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	f.publish("k", 1)
	for name, err := range map[string]error{
		"no such message": f.q.Redrive(t.Context(), tenantA, topicDead, "k", "nope"),
		"no dead letter":  f.q.Redrive(t.Context(), tenantA, topicA, "k", message(tenantA, topicA, "k", 1).ID),
	} {
		if !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.want("messages", 1, len(f.offsets(s, "k", 0)))
	for name, err := range map[string]error{
		"tenant":        f.q.Redrive(t.Context(), "", topicDead, "k", "m"),
		"topic":         f.q.Redrive(t.Context(), tenantA, "ü", "k", "m"),
		"partition key": f.q.Redrive(t.Context(), tenantA, topicDead, "k ", "m"),
		"message id":    f.q.Redrive(t.Context(), tenantA, topicDead, "k", "\xff"),
	} {
		if field, ok := errors.AsType[*backend.FieldError](err); !ok || field.Field != name {
			t.Errorf("bad %s: %v", name, err)
		}
	}
}

func TestDerivedIDsAreValidAndDiffer(t *testing.T) {
	seen := make(map[string]bool)
	for _, id := range []string{"a", "a ~", strings.Repeat("💥", 255), strings.Repeat("e\u0301", 127)} {
		for _, group := range []string{groupA, groupB} {
			for offset := range uint64(3) {
				derived := derivedID(id, group, offset)
				if err := backend.CheckMessageID(derived); err != nil {
					t.Error(err)
				}
				if seen[derived] {
					t.Errorf("%q twice", derived)
				}
				seen[derived] = true
				if again := derivedID(id, group, offset); again != derived {
					t.Errorf("%q, then %q", derived, again)
				}
			}
		}
	}
}
