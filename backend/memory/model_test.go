package memory

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenantmq/tenantmq/backend/internal/engine"
)

// TestEveryGroupSeesEveryMessage compares the store with the simplest model of
// it, over random sequences of what publishers, subscribers, operators and
// crashes do: to each group a message is settled or not.
func TestEveryGroupSeesEveryMessage(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, rt)
		actions := map[string]func(*rapid.T){
			"":        w.check,
			"publish": w.publish,
			"consume": w.consume,
			"acquire": w.acquire,
			"fetch":   w.fetch,
			"settle":  w.settle,
			"renew":   w.renew,
			"release": w.release,
			"crash":   w.crash,
			"collect": w.collect,
			"purge":   w.purge,
			"delete":  w.delete,
			"drop":    w.drop,
			"pass":    w.pass,
		}
		for range 10 { // one makes 30 steps or so
			rt.Repeat(actions)
		}
		w.finish(rt)
	})
}

// world is the model. Of a message it knows which groups have settled it.
type world struct {
	b       *bench
	keys    []string
	groups  []string
	stored  map[string]map[uint64]*fact // by key
	owners  map[string]map[string]*owner
	members []*actor
	epoch   uint64
}

// fact is a message that may be stored.
type fact struct {
	id      string
	settled map[string]bool // by group
}

// owner is who holds a lease, as the model knows it.
type owner struct {
	actor *actor
	until time.Time
}

// actor is a subscriber with what it believes.
type actor struct {
	*member
	held map[string]*holding
}

type holding struct {
	engine.Grant
	fetched uint64
	known   []uint64        // unpassed offsets, ascending
	settled map[uint64]bool // of those
}

func newWorld(t *testing.T, rt *rapid.T) *world {
	w := &world{
		b:      newBench(t),
		keys:   []string{"a", "b"},
		groups: []string{"landers", "watchers"}[:rapid.IntRange(1, 2).Draw(rt, "groups")],
		stored: make(map[string]map[uint64]*fact),
		owners: make(map[string]map[string]*owner),
	}
	for _, key := range w.keys {
		w.stored[key] = make(map[uint64]*fact)
		w.owners[key] = make(map[string]*owner)
	}
	for _, group := range w.groups {
		for range 2 {
			w.members = append(w.members, &actor{member: w.b.join(group), held: make(map[string]*holding)})
		}
	}
	return w
}

func (w *world) actor(rt *rapid.T) *actor { return rapid.SampledFrom(w.members).Draw(rt, "member") }
func (w *world) key(rt *rapid.T) string   { return rapid.SampledFrom(w.keys).Draw(rt, "key") }

// holder draws an actor that believes to hold a partition; nil if none does.
func (w *world) holder(rt *rapid.T) (*actor, string, *holding) {
	type pair struct {
		a   *actor
		key string
	}
	var pairs []pair
	for _, a := range w.members {
		for _, key := range w.keys {
			if a.held[key] != nil {
				pairs = append(pairs, pair{a, key})
			}
		}
	}
	if len(pairs) == 0 {
		return nil, "", nil
	}
	p := rapid.SampledFrom(pairs).Draw(rt, "holder")
	return p.a, p.key, p.a.held[p.key]
}

func (w *world) owns(a *actor, key string) bool {
	o := w.owners[key][a.group]
	return o != nil && o.actor == a
}

// lose is what an actor does that is told.
func (a *actor) lose(key string) { delete(a.held, key) }

func (w *world) everySettled(f *fact) bool {
	return !slices.ContainsFunc(w.groups, func(g string) bool { return !f.settled[g] })
}

func (w *world) publish(rt *rapid.T) {
	key := w.key(rt)
	for range rapid.IntRange(1, 4).Draw(rt, "messages") {
		w.publishOne(rt, key, fmt.Sprint(rapid.IntRange(1, 40).Draw(rt, "id")))
	}
}

func (w *world) publishOne(rt *rapid.T, key, id string) {
	receipts, err := w.b.Publish(w.b.Context(), change(key, id))
	if err != nil {
		rt.Fatal(err)
	}
	r := receipts[0]
	f := w.stored[key][r.Offset]
	if r.Duplicate != (f != nil) || f != nil && f.id != id {
		rt.Fatalf("receipt %+v, but the model has %+v", r, f)
	}
	for offset, other := range w.stored[key] {
		if !r.Duplicate && other.id == id {
			rt.Fatalf("id %s stored twice, at %d and %d", id, offset, r.Offset)
		}
	}
	if f == nil {
		w.stored[key][r.Offset] = &fact{id: id, settled: make(map[string]bool)}
	}
}

func (w *world) pass(rt *rapid.T) {
	w.b.pass(time.Duration(rapid.Int64Range(0, int64(duration)).Draw(rt, "time")))
}

// consume is what a healthy subscriber does.
func (w *world) consume(rt *rapid.T) {
	a, key := w.actor(rt), w.key(rt)
	if a.held[key] == nil {
		w.acquireAs(rt, a, key)
	}
	if h := a.held[key]; h != nil {
		w.fetchAs(rt, a, key, h)
		w.settleAs(rt, a, key, h)
	}
}

func (w *world) acquire(rt *rapid.T) { w.acquireAs(rt, w.actor(rt), w.key(rt)) }

func (w *world) acquireAs(rt *rapid.T, a *actor, key string) {
	got := a.acquire(engine.Candidate{Key: key})
	o := w.owners[key][a.group]
	if o != nil && o.until.After(w.b.now) {
		if want := o.until.Sub(w.b.now); got.Denied[key] != want {
			rt.Fatalf("acquired %+v, want denied for %v", got, want)
		}
		return
	}
	if len(got.Grants) != 1 {
		rt.Fatalf("acquired %+v, want a grant", got)
	}
	g := got.Grants[0]
	if g.Epoch <= w.epoch {
		rt.Fatalf("epoch %d does not follow %d", g.Epoch, w.epoch)
	}
	w.epoch = g.Epoch
	w.owners[key][a.group] = &owner{a, w.b.now.Add(duration)}
	h := &holding{Grant: g, fetched: g.Watermark, settled: make(map[uint64]bool)}
	for _, st := range g.States {
		h.settled[st.Offset] = st.Settled
	}
	a.held[key] = h
}

func (w *world) fetch(rt *rapid.T) {
	if a, key, h := w.holder(rt); h != nil {
		w.fetchAs(rt, a, key, h)
	}
}

// fetchAs now and then overlooks a message, as a reader does that of MySQL's
// offsets sees a later one first.
func (w *world) fetchAs(rt *rapid.T, a *actor, key string, h *holding) {
	limit := rapid.IntRange(1, 5).Draw(rt, "limit")
	for _, m := range a.fetch(engine.Range{Key: key, After: h.fetched, Through: 1 << 62, Limit: limit})[0].Messages {
		h.fetched = m.Offset
		_, told := h.settled[m.Offset]
		if told || rapid.IntRange(0, 5).Draw(rt, "overlook") > 0 {
			h.known = append(h.known, m.Offset)
		}
		if f := w.stored[key][m.Offset]; f == nil || f.id != m.ID {
			rt.Fatalf("fetched %q at offset %d, but the model has %+v", m.ID, m.Offset, f)
		}
	}
}

func (w *world) settle(rt *rapid.T) {
	if a, key, h := w.holder(rt); h != nil {
		w.settleAs(rt, a, key, h)
	}
}

func (w *world) settleAs(rt *rapid.T, a *actor, key string, h *holding) {
	s := engine.Settlement{Lease: h.Lease, Watermark: h.Watermark, Stored: h.Stored, HasStates: true}
	inRun := true
	for _, offset := range h.known {
		acked := rapid.IntRange(0, 5).Draw(rt, "ack") > 0
		inRun = inRun && (acked || h.settled[offset])
		switch {
		case inRun:
			s.Run = append(s.Run, offset)
		case acked || h.settled[offset]:
			s.States = append(s.States, engine.State{Offset: offset, Settled: true})
		default:
			s.States = append(s.States, engine.State{Offset: offset, Attempts: 1})
		}
	}
	last := h.Watermark
	if len(s.Run) > 0 {
		last = s.Run[len(s.Run)-1]
	}
	s.Drained = inRun
	for offset := range h.settled { // those of the grant have not all been read
		s.Drained = s.Drained && offset <= last
	}
	r := a.settle(s)
	if r.Lost == w.owns(a, key) {
		rt.Fatalf("settled %+v, but the model says owner: %v", r, w.owns(a, key))
	}
	if r.Lost {
		a.lose(key)
		return
	}
	mark := func(offset uint64) {
		h.settled[offset] = true
		if f := w.stored[key][offset]; f != nil {
			f.settled[a.group] = true
		}
	}
	for _, offset := range s.Run {
		mark(offset)
	}
	for _, st := range s.States {
		if st.Settled {
			mark(st.Offset)
		}
	}
	h.Watermark, h.Stored = r.Watermark, r.Stored
	h.known = append(h.known, r.Late...)
	slices.Sort(h.known)
	h.known = slices.DeleteFunc(h.known, func(o uint64) bool { return o <= r.Watermark })
	if r.Drained {
		if !s.Drained {
			rt.Fatal("drained, unasked")
		}
		delete(w.owners[key], a.group)
		a.lose(key)
	}
}

func (w *world) renew(rt *rapid.T) {
	a, key, h := w.holder(rt)
	if h == nil {
		return
	}
	lost := a.renew(h.Lease)
	if (len(lost) > 0) == w.owns(a, key) {
		rt.Fatalf("lost %v, but the model says owner: %v", lost, w.owns(a, key))
	}
	if len(lost) > 0 {
		a.lose(key)
		return
	}
	w.owners[key][a.group].until = w.b.now.Add(duration)
}

func (w *world) release(rt *rapid.T) {
	a, key, h := w.holder(rt)
	if h == nil {
		return
	}
	a.release(h.Lease, rapid.Bool().Draw(rt, "forget"))
	if w.owns(a, key) {
		delete(w.owners[key], a.group)
	}
	a.lose(key)
}

// crash makes an actor forget what it held, its leases staying behind.
func (w *world) crash(rt *rapid.T) { clear(w.actor(rt).held) }

func (w *world) collect(rt *rapid.T) {
	if a, key, h := w.holder(rt); h != nil {
		a.collect(engine.Passed{Key: key, Watermark: h.Watermark, Stored: h.Stored})
	}
}

func (w *world) purge(rt *rapid.T) {
	a := w.actor(rt)
	a.purge()
	for _, key := range w.keys {
		// Leases may be purged after two durations where nothing is stored.
		if o := w.owners[key][a.group]; o != nil && w.b.now.Sub(o.until) > 2*duration && w.lease(key, a.group) == nil {
			delete(w.owners[key], a.group)
		}
	}
}

func (w *world) lease(key, group string) *lease {
	if own := w.b.tables.topic(tenant, changes).find(key).progress(group); own != nil {
		return own.lease
	}
	return nil
}

// delete is an operator's.
func (w *world) delete(rt *rapid.T) {
	key := w.key(rt)
	offsets := w.offsets(key)
	if len(offsets) == 0 {
		return
	}
	offset := rapid.SampledFrom(offsets).Draw(rt, "offset")
	w.b.tables.delete(change(key, w.stored[key][offset].id))
	delete(w.stored[key], offset)
}

// drop is an operator's, too: the group comes back with the next acquisition
// and sees again whatever is stored.
func (w *world) drop(rt *rapid.T) {
	if rapid.IntRange(0, 4).Draw(rt, "drop") > 0 {
		return
	}
	group := rapid.SampledFrom(w.groups).Draw(rt, "group")
	if err := w.b.DropGroup(w.b.Context(), tenant, changes, group); err != nil {
		rt.Fatal(err)
	}
	for _, key := range w.keys {
		delete(w.owners[key], group)
		for _, f := range w.stored[key] {
			delete(f.settled, group)
		}
	}
	w.member(group).register(w.b.now, tenant, 0)
}

func (w *world) member(group string) *actor {
	return w.members[slices.IndexFunc(w.members, func(a *actor) bool { return a.group == group })]
}

func (w *world) offsets(key string) (list []uint64) {
	for _, m := range w.members[0].read(key) {
		list = append(list, m.Offset)
	}
	return list
}

// check compares what each group would be given with the model, and forgets of
// the model what has been removed.
func (w *world) check(rt *rapid.T) {
	for _, key := range w.keys {
		stored := w.offsets(key)
		for offset, f := range w.stored[key] {
			switch {
			case slices.Contains(stored, offset):
			case !w.everySettled(f):
				rt.Fatalf("offset %d of %s is gone, settled by %v alone", offset, key, f.settled)
			default:
				delete(w.stored[key], offset)
			}
		}
		t := w.b.tables.topic(tenant, changes)
		for _, group := range w.groups {
			p := t.find(key)
			for _, offset := range stored {
				passed := false
				if watermark, _ := t.position(p, group); offset <= watermark {
					passed = true
				} else if own := p.progress(group); own != nil {
					st, ok := own.states.Get(offset)
					passed = ok && st.settled
				}
				if want := w.stored[key][offset].settled[group]; passed != want {
					rt.Fatalf("offset %d of %s: settled by %s: %v, model: %v", offset, key, group, passed, want)
				}
			}
		}
	}
}

// finish has every group settle everything, and expects nothing to be left.
func (w *world) finish(rt *rapid.T) {
	for range w.groups { // a group may have to wait for the leases of another
		w.b.pass(duration)
		for _, group := range w.groups {
			a := w.member(group)
			for _, key := range w.keys {
				if len(w.offsets(key)) == 0 {
					continue
				}
				g := a.take(key, 0)
				var run []uint64
				for _, offset := range w.offsets(key) {
					if offset > g.Watermark {
						run = append(run, offset)
					}
				}
				a.settle(engine.Settlement{
					Lease: g.Lease, Watermark: g.Watermark, Stored: g.Stored, Run: run, HasStates: true, Drained: true,
				})
			}
		}
	}
	w.b.pass(4 * duration)
	for _, group := range w.groups {
		w.member(group).purge()
	}
	got := w.b.Stats()
	got.Groups = 0
	if got != (Stats{}) {
		rt.Fatalf("rows left: %+v", got)
	}
}
