package operator

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Bounds of [examination.heads].
const (
	// maxHeads is how many partitions Doctor looks at, those of a group that
	// are beyond [MaxLimit] left out.
	maxHeads = 30_000
	// manyFailures tell a message that will not pass from one that meets a
	// passing trouble.
	manyFailures = 3
	// handlerPatience is how long a message may be in the hands of a handler.
	handlerPatience = 5 * time.Minute
)

// head is the first message of a partition that a group has not settled.
type head struct {
	key, id   string
	offset    uint64
	age       time.Duration
	stored    bool // it has a delivery state, as the fields below say
	attempts  int
	visibleIn time.Duration
	lastError string
}

// strain is what the heads of a group show.
type strain struct {
	Group
	looked        int // partitions with messages, of this group or others
	partitions    int // that have work
	failing, many int // whose head has failed, often
	hanging       int // whose head is with a handler for long
	worst         head
	slowest       head
	owner         string // of the slowest
	idle          time.Duration
}

// names of the group, for a command.
func (s *strain) names() []string {
	return []string{"tenant", string(s.Tenant), "topic", s.Topic, "group", s.Group.Group}
}

// heads looks at where the partitions of the groups with work stand: one that
// cannot get on holds up all that is behind it, while its subscribers are alive.
func (e *examination) heads(ctx context.Context) {
	var list []strain
	left, missed := e.maxHeads, 0
	for _, g := range e.known.groups {
		switch {
		case g.Lag.Messages == 0:
			continue
		case left == 0:
			missed++
			continue
		}
		s, err := e.strain(ctx, g, min(left, MaxLimit))
		if err != nil {
			e.blind("failures", wrap("look at the partitions", g.Tenant, g.Topic, err), "see the check of the database")
			return
		}
		left -= s.looked
		list = append(list, s)
	}
	e.failures(list, missed)
	e.handlers(list)
}

// failures tells of messages that fail again and again. A few failures are daily
// life, and no more than told.
func (e *examination) failures(list []strain, missed int) {
	found := several{examination: e, check: "failures"}
	for _, s := range list {
		if s.failing == 0 {
			continue
		}
		h, severity, next, remedy := s.worst, OK, "now", ""
		if h.visibleIn > 0 {
			next = "in " + h.visibleIn.String()
		}
		switch {
		case s.many > 1 && s.many == s.partitions:
			severity = Bad
		case s.many > 0:
			severity = Warn
		}
		if severity > OK {
			message := []string{"tenant", string(s.Tenant), "topic", s.Topic, "key", h.key, "id", h.id}
			remedy = "mend the cause, see " + mqctl("message show", message...) + "; to give it up for all groups: " + mqctl("message delete", message...)
		}
		found.find(severity, remedy,
			"%d of %s with work of tenant %q, topic %q, group %q: the first message has failed, such as %q of partition %q: "+
				"attempts %d, the next %s, last error %q",
			s.failing, words(s.partitions, "partition"), s.Tenant, s.Topic, s.Group.Group, h.id, h.key, h.attempts, next, firstLine(h.lastError))
	}
	if missed > 0 {
		found.find(Warn, "look at one tenant at a time: `mqctl doctor --tenant NAME`",
			"%s left out, after %s of others", words(missed, "group"), words(e.maxHeads, "partition"))
	}
	found.end("no partition begins with a message that has failed")
}

// handlers tells of partitions that do not move though a subscriber has them.
func (e *examination) handlers(list []strain) {
	found := several{examination: e, check: "handlers"}
	for _, s := range list {
		if s.hanging == 0 {
			continue
		}
		found.find(Warn, "look at what its process is doing; if it hangs, restart it, or let another have the partition: "+
			mqctl("lease release", append(s.names(), "key", s.slowest.key)...),
			"a handler may hang: no move for %v or longer in %d of %s with work of tenant %q, topic %q, group %q, such as %q: "+
				"%q has message %q of it, for up to %v",
			e.handlerPatience, s.hanging, words(s.partitions, "partition"), s.Tenant, s.Topic, s.Group.Group, s.slowest.key, s.owner, s.slowest.id, s.idle.Round(time.Second))
	}
	found.end("no message is with a handler for long")
}

// strain looks at up to n partitions of a group.
func (e *examination) strain(ctx context.Context, g Group, n int) (s strain, err error) {
	s.Group = g
	const page = 1_000
	for after, more := "", true; more && n > 0; {
		keys, err := e.keys(ctx, g.Tenant, g.Topic, after, min(page, n))
		if err != nil || len(keys) == 0 {
			return s, err
		}
		n -= len(keys)
		s.looked += len(keys)
		after, more = keys[len(keys)-1], len(keys) == page
		marks, err := e.marks(ctx, g, keys)
		if err != nil {
			return s, err
		}
		heads, err := e.firsts(ctx, g, keys, marks)
		if err != nil {
			return s, err
		}
		leases, err := e.leasesOf(ctx, g.Tenant, pair{g.Topic, g.Group}, keys)
		if err != nil {
			return s, err
		}
		now, _, err := readOne(ctx, e.db, newQuery(stmtNowOf, string(g.Tenant)), single[int64])
		if err != nil {
			return s, err
		}
		for _, h := range heads {
			lease, still := leases[h.key], h.age
			if m, ok := marks[h.key]; ok && m.moved {
				still = min(still, m.age)
			}
			if h.stored {
				still = min(still, -h.visibleIn)
			}
			still = min(still, at(now).Sub(lease.Since))
			inHand := lease.State == Held && h.offset <= lease.Claimed
			s.add(h, lease.Owner, still, !g.Paused && inHand && still >= e.handlerPatience)
		}
	}
	return s, nil
}

// add counts a head, which nothing has been done about for so long.
func (s *strain) add(h head, owner string, idle time.Duration, hangs bool) {
	s.partitions++
	if h.attempts > 0 {
		s.failing++
		if h.attempts >= manyFailures {
			s.many++
		}
		if h.attempts > s.worst.attempts {
			s.worst = h
		}
	}
	if hangs {
		s.hanging++
		if idle > s.idle {
			s.slowest, s.owner, s.idle = h, owner, idle
		}
	}
}

// mark is a group's position in a partition.
type mark struct {
	offset uint64
	moved  bool          // there is a watermark, and not only the group's start
	age    time.Duration // since it has moved
}

func (e *examination) marks(ctx context.Context, g Group, keys []string) (map[string]mark, error) {
	type row struct {
		key    string
		offset uint64
		age    int64
	}
	found := make(map[string]mark, len(keys))
	for _, key := range keys {
		found[key] = mark{offset: g.StartOffset}
	}
	for chunk := range slices.Chunk(keys, listKeys) {
		q := newQuery(stmtMarkAges, string(g.Tenant), g.Topic, g.Group).in(chunk)
		rows, err := read(ctx, e.db, q, func(r *row) []any { return []any{&r.key, &r.offset, &r.age} })
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			found[r.key] = mark{r.offset, true, fromMillis(r.age)}
		}
	}
	return found, nil
}

// firsts are the heads of partitions; those in which all is settled have none.
func (e *examination) firsts(ctx context.Context, g Group, keys []string, marks map[string]mark) ([]head, error) {
	type row struct {
		head
		i              int
		age, visibleIn int64
	}
	var list []head
	for chunk := range slices.Chunk(keys, unions) {
		q := new(query)
		for i, key := range chunk {
			q.item(i, " UNION ALL ", stmtHead, i, g.Group, string(g.Tenant), g.Topic, key, marks[key].offset, g.Group)
		}
		rows, err := read(ctx, e.db, q, func(r *row) []any {
			return []any{&r.i, &r.offset, &r.id, &r.age, &r.stored, &r.attempts, &r.visibleIn, &r.lastError}
		})
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			h := r.head
			h.key, h.age, h.visibleIn = chunk[r.i], fromMillis(r.age), fromMillis(r.visibleIn)
			list = append(list, h)
		}
	}
	return list, nil
}

// errorShown bounds what is shown of an error, in bytes.
const errorShown = 200

// firstLine is what has room in a finding.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if len(line) > errorShown {
		line = strings.ToValidUTF8(line[:errorShown], "") + "…"
	}
	return line
}
