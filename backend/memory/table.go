package memory

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/tenantmq/tenantmq/tenants"
)

// place names a topic of a tenant.
type place struct {
	tenant tenants.ID
	topic  string
}

// tables hold every row of a queue. mu guards all of it.
type tables struct {
	mu       sync.Mutex
	topics   map[place]*topicTable
	offset   uint64 // the last one given to a message
	epoch    uint64 // the last one given to a lease
	instance uint64 // the last one given to a subscription
}

func newTables() *tables { return &tables{topics: make(map[place]*topicTable)} }

// topicTable holds the rows of one (tenant, topic). A partition is filed under
// stored or drained, never both, and under neither once it has no row.
type topicTable struct {
	stored  btree.Map[string, *partition] // those with messages, for Discover
	drained map[string]*partition         // those with none, for Purge
	groups  map[string]*group
}

// group is what is known of a consumer group of a topic as a whole.
type group struct {
	registered bool // messages wait for it
	paused     bool
	base       uint64               // watermark of partitions without one
	seen       time.Time            // when a subscriber last gave a sign of life
	members    map[string]time.Time // subscribers, with the end of their heartbeat
}

// partition holds the messages of one key and what the groups have done there.
type partition struct {
	key      string
	messages btree.Map[uint64, *message]
	ids      map[string]*message
	groups   []*progress // few: searched one by one
}

// progress is what one group has done in one partition.
type progress struct {
	group     string
	stored    bool // whether there is a watermark
	watermark uint64
	states    btree.Map[uint64, *state]
	lease     *lease
}

// state is what a group knows of one message it has not passed.
type state struct {
	settled    bool
	barrier    bool
	attempts   int
	deliveries int
	visible    time.Time
	err        string
}

// lease is a row of its own even after it ended: it remembers the suspects.
type lease struct {
	instance uint64 // the subscription that holds it
	epoch    uint64
	released bool
	until    time.Time // when it ends, or was released
	claimed  uint64
	suspect  uint64
}

// left is the time the holder still has.
func (l *lease) left(now time.Time) time.Duration {
	if l == nil || l.released {
		return 0
	}
	return max(l.until.Sub(now), 0)
}

// topic returns nil for one that has no row.
func (tb *tables) topic(tenant tenants.ID, name string) *topicTable {
	return tb.topics[place{tenant, name}]
}

// openTopic returns a topic to be written to.
func (tb *tables) openTopic(tenant tenants.ID, name string) *topicTable {
	at := place{tenant, name}
	t := tb.topics[at]
	if t == nil {
		t = &topicTable{drained: make(map[string]*partition), groups: make(map[string]*group)}
		tb.topics[at] = t
	}
	return t
}

// forget drops a topic that has no row left.
func (tb *tables) forget(tenant tenants.ID, name string) {
	t := tb.topic(tenant, name)
	if t != nil && t.stored.Len() == 0 && len(t.drained) == 0 && len(t.groups) == 0 {
		delete(tb.topics, place{tenant, name})
	}
}

// find returns nil for a partition that has no row, and for any of a nil topic.
func (t *topicTable) find(key string) *partition {
	if t == nil {
		return nil
	}
	if p, ok := t.stored.Get(key); ok {
		return p
	}
	return t.drained[key]
}

// open returns a partition to be written to. The writer calls file at the end.
func (t *topicTable) open(key string) *partition {
	if p := t.find(key); p != nil {
		return p
	}
	return &partition{key: key}
}

// file puts a partition where its rows say it belongs.
func (t *topicTable) file(p *partition) {
	p.groups = slices.DeleteFunc(p.groups, (*progress).empty)
	switch {
	case p.messages.Len() > 0:
		t.stored.Set(p.key, p)
		delete(t.drained, p.key)
	case len(p.groups) > 0:
		t.stored.Delete(p.key)
		t.drained[p.key] = p
	default:
		t.stored.Delete(p.key)
		delete(t.drained, p.key)
	}
}

// all lists every partition that has a row.
func (t *topicTable) all() []*partition {
	list := t.stored.Values()
	for _, p := range t.drained {
		list = append(list, p)
	}
	return list
}

// group returns nil for one that has no row, and for any of a nil topic.
func (t *topicTable) group(name string) *group {
	if t == nil {
		return nil
	}
	return t.groups[name]
}

func (t *topicTable) openGroup(name string) *group {
	g := t.groups[name]
	if g == nil {
		g = &group{members: make(map[string]time.Time)}
		t.groups[name] = g
	}
	return g
}

// forgetGroup drops a group that has no row left.
func (t *topicTable) forgetGroup(name string) {
	if g := t.groups[name]; g != nil && !g.registered && len(g.members) == 0 {
		delete(t.groups, name)
	}
}

// dropGroup removes every row of a group.
func (t *topicTable) dropGroup(name string) {
	delete(t.groups, name)
	for _, p := range t.all() {
		p.drop(name)
		t.file(p)
	}
}

// alone tells whether messages wait for this group and no other.
func (t *topicTable) alone(name string) bool {
	for other, g := range t.groups {
		if g.registered != (other == name) {
			return false
		}
	}
	return t.groups[name] != nil
}

// position is a group's watermark in a partition, and whether it has one of
// its own there.
func (t *topicTable) position(p *partition, name string) (watermark uint64, stored bool) {
	if own := p.progress(name); own != nil && own.stored {
		return own.watermark, true
	}
	if g := t.groups[name]; g != nil {
		return g.base, false
	}
	return 0, false
}

// collect removes the messages that every registered group has passed. Without
// any group they stay for the first.
func (t *topicTable) collect(p *partition) {
	var floor uint64 = math.MaxUint64
	waiting := false
	for name, g := range t.groups {
		if g.registered {
			at, _ := t.position(p, name)
			floor, waiting = min(floor, at), true
		}
	}
	if waiting {
		p.removeThrough(floor)
	}
}

// progress returns nil for a group that has no row.
func (p *partition) progress(name string) *progress {
	if p == nil {
		return nil
	}
	for _, g := range p.groups {
		if g.group == name {
			return g
		}
	}
	return nil
}

func (p *partition) openProgress(name string) *progress {
	if own := p.progress(name); own != nil {
		return own
	}
	own := &progress{group: name}
	p.groups = append(p.groups, own)
	return own
}

// drop removes everything a group has done in the partition.
func (p *partition) drop(name string) {
	p.groups = slices.DeleteFunc(p.groups, func(g *progress) bool { return g.group == name })
}

// dropUnleased removes what groups without a lease have done in a partition.
func (p *partition) dropUnleased() {
	p.groups = slices.DeleteFunc(p.groups, func(g *progress) bool { return g.lease == nil })
}

func (p *partition) add(m *message) {
	if p.ids == nil {
		p.ids = make(map[string]*message)
	}
	p.messages.Set(m.offset, m)
	p.ids[m.id] = m
}

func (p *partition) remove(offset uint64) {
	if m, ok := p.messages.Delete(offset); ok {
		delete(p.ids, m.id)
	}
}

func (p *partition) removeThrough(offset uint64) {
	for {
		first, m, ok := p.messages.Min()
		if !ok || first > offset {
			return
		}
		p.messages.PopMin()
		delete(p.ids, m.id)
	}
}

func (g *progress) empty() bool {
	return !g.stored && g.lease == nil && g.states.Len() == 0
}

// forgetThrough removes the states that the watermark has passed.
func (g *progress) forgetThrough(offset uint64) {
	for {
		first, _, ok := g.states.Min()
		if !ok || first > offset {
			return
		}
		g.states.PopMin()
	}
}
