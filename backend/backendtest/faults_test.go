package backendtest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/tenantmq/tenantmq/backend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script makes a timeline of what consumers did to messages of one partition,
// numbered by their offsets.
type script struct{ timeline }

func (s *script) add(v verb, consumer string, delivery int, offset uint64, attempt int) *script {
	m := message("t", "key", string(rune('a'+offset)))
	m.Offset = offset
	s.timeline = append(s.timeline, event{verb: v, consumer: consumer, delivery: delivery, attempt: attempt, msg: m})
	return s
}

// TestFaultsAreFound shows that the checks can fail, and when they do not.
func TestFaultsAreFound(t *testing.T) {
	one, two := message("t", "key", "b"), message("t", "key", "c")
	for name, c := range map[string]struct {
		script *script
		check  func(timeline) []string
		faults int
	}{
		"order kept": {
			new(script).add(delivered, "c", 1, 1, 1).add(delivered, "c", 2, 1, 2).add(delivered, "c", 3, 2, 1),
			func(l timeline) []string { return l.inOrder(backend.Strict) }, 0,
		},
		"strict order broken by a repeat": {
			new(script).add(delivered, "c", 1, 1, 1).add(delivered, "c", 2, 2, 1).add(delivered, "c", 3, 1, 2),
			func(l timeline) []string { return l.inOrder(backend.Strict) }, 1,
		},
		"relaxed order allows a repeat": {
			new(script).add(delivered, "c", 1, 1, 1).add(delivered, "c", 2, 2, 1).add(delivered, "c", 3, 1, 2),
			func(l timeline) []string { return l.inOrder(backend.Relaxed) }, 0,
		},
		"relaxed order broken": {
			new(script).add(delivered, "c", 1, 2, 1).add(delivered, "c", 2, 1, 1),
			func(l timeline) []string { return l.inOrder(backend.Relaxed) }, 1,
		},
		"one after the other": {
			new(script).add(delivered, "c", 1, 1, 1).add(settling, "c", 1, 1, 1).add(delivered, "d", 2, 2, 1).add(acked, "c", 1, 1, 1),
			timeline.oneAtATime, 0,
		},
		"two at once": {
			new(script).add(delivered, "c", 1, 1, 1).add(delivered, "d", 2, 2, 1).add(settling, "c", 1, 1, 1),
			timeline.oneAtATime, 1,
		},
		"a crash ends what was out": {
			new(script).add(delivered, "c", 1, 1, 1).add(crashed, "c", 0, 0, 0).add(delivered, "d", 2, 1, 2),
			timeline.oneAtATime, 0,
		},
		"another's crash does not": {
			new(script).add(delivered, "c", 1, 1, 1).add(crashed, "d", 0, 0, 0).add(delivered, "d", 2, 1, 2),
			timeline.oneAtATime, 1,
		},
		"once each": {
			new(script).add(acked, "c", 1, 1, 1).add(acked, "d", 2, 2, 1),
			func(l timeline) []string { return l.exactlyOnce([]backend.Message{one, two}) }, 0,
		},
		"lost": {
			new(script).add(acked, "c", 1, 1, 1),
			func(l timeline) []string { return l.exactlyOnce([]backend.Message{one, two}) }, 1,
		},
		"twice": {
			new(script).add(acked, "c", 1, 1, 1).add(acked, "d", 2, 1, 2),
			func(l timeline) []string { return l.exactlyOnce([]backend.Message{one}) }, 1,
		},
		"never published": {
			new(script).add(acked, "c", 1, 1, 1).add(acked, "c", 2, 2, 1),
			func(l timeline) []string { return l.exactlyOnce([]backend.Message{one}) }, 1,
		},
		"attempt skipped": {
			new(script).add(delivered, "c", 1, 1, 1).add(delivered, "c", 2, 1, 3),
			timeline.attemptsCount, 1,
		},
		"attempt repeated": {
			new(script).add(delivered, "c", 1, 1, 1).add(delivered, "c", 2, 1, 1),
			timeline.attemptsCount, 1,
		},
		"attempt not allowed": {
			new(script).add(delivered, "c", 1, 1, 1).add(delivered, "c", 2, 1, 2),
			func(l timeline) []string { return l.attemptsIn(1) }, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.check(c.script.timeline); len(got) != c.faults {
				t.Errorf("%d faults, want %d: %q", len(got), c.faults, got)
			}
		})
	}
}

func TestHistoryWaits(t *testing.T) {
	h := newHistory()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.wait(ended, count(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("wait with an ended context: %v", err)
	}
	done := make(chan error)
	go func() {
		done <- h.wait(t.Context(), every{count(2), count(1, is(delivered))})
	}()
	h.notef("first")
	h.add(event{verb: delivered, consumer: "c", msg: message("t", "key", "m"), attempt: 1})
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := h.log().attempts(message("t", "key", "m")); !slices.Equal(got, []int{1}) {
		t.Errorf("attempts %v", got)
	}
}
