package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// Settle implements [engine.Store]. Its transaction, in order:
//
//  1. own: lock the lease rows; what is somebody else's now drops out.
//  2. writeDeadLetters, while the transaction has no snapshot yet: their fence
//     must see the watermarks as they are after the insert.
//  3. readMarks: where all groups stand. Here the snapshot begins.
//  4. readRuns: the locking reads that find how far watermarks may move.
//  5. write: states, messages, watermarks, and what drained partitions leave.
//
// A partition that drains, with no other group on the topic, needs no
// watermark: deleting exactly its messages settles them, and one that commits
// late is simply a new message.
func (s *store) Settle(ctx context.Context, tenant tenants.ID, settlements []engine.Settlement) ([]engine.Settled, error) {
	if len(settlements) == 0 {
		return nil, nil
	}
	t := &settling{
		store: s, tenant: tenant, given: settlements, conflicts: make(map[string]int),
		stalled: make(map[string]bool), renamed: make(map[messageAt]bool),
	}
	for {
		err := s.q.inTx(ctx, func(tx *sql.Tx) error { return t.run(ctx, tx) })
		if err == nil {
			t.notify()
			return t.results(), nil
		}
		if err := t.learn(ctx, err); err != nil {
			return nil, s.wrap(tenant, fmt.Sprintf("settle %d partitions", len(settlements)), err)
		}
	}
}

// settling is one call of Settle: what its runs have learned, and the state of
// the current run.
type settling struct {
	*store
	tenant tenants.ID
	given  []engine.Settlement

	conflicts  map[string]int     // times a locking read has failed beside other groups
	stalled    map[string]bool    // partitions that are to be settled without one
	allStalled bool               // too many of them to find out one by one
	oneByOne   bool               // one of several runs could not be read
	renamed    map[messageAt]bool // dead letters whose id is taken
	fences     int                // times the dead letters met a watermark
	publication

	tx      *sql.Tx
	parts   []*part // those still ours, in order of keys
	marks   marks
	letters []*letter
	lost    []bool // by index in given
}

// blockedError tells that somebody holds a row for long, as an open PublishTx of
// a repeated id does. The transaction is not run again here, with the leases of
// all its partitions locked meanwhile: the engine tries them one by one.
type blockedError struct{ err error }

func (e *blockedError) Error() string { return e.err.Error() }

// part is a settlement on its way.
type part struct {
	engine.Settlement
	at int // in given

	before  uint64 // the group's position
	stored  bool   // it is a row of its own
	mark    uint64 // the position to be
	run     []uint64
	ahead   []uint64 // of run, what the watermark does not reach
	gone    []uint64 // messages to be deleted
	late    []uint64
	listed  bool // drains without a watermark
	stalled bool
	leaving bool // gives its lease up
	erased  bool // and its watermark
}

// Bounds of a transaction's runs.
const (
	maxStalls    = 8
	maxConflicts = 2
)

// learn prepares another run after err, or returns err.
func (t *settling) learn(ctx context.Context, err error) error {
	if stall, ok := errors.AsType[*stalledError](err); ok {
		t.stalled[stall.key] = true
		t.allStalled = len(t.stalled) >= maxStalls
		return nil
	}
	if _, ok := errors.AsType[*crowdedError](err); ok {
		t.oneByOne = true
		return nil
	}
	if taken, ok := errors.AsType[*takenError](err); ok {
		for _, at := range taken.letters {
			if t.renamed[at] {
				return err // somebody else's row has the id derived from ours
			}
			t.renamed[at] = true
		}
		return nil
	}
	if fenced, ok := errors.AsType[*fencedError](err); ok && t.fences < maxFences {
		t.fences++
		t.q.metrics.fences.Inc(1)
		if fenced.shouldRaise(t.fences) {
			return t.q.raise(ctx, t.tenant, fenced)
		}
		return nil
	}
	return err
}

func (t *settling) run(ctx context.Context, tx *sql.Tx) error {
	t.tx, t.letters = tx, nil
	if err := t.own(ctx); err != nil {
		return err
	}
	if len(t.parts) == 0 {
		return nil
	}
	if err := t.writeDeadLetters(ctx); err != nil {
		return err
	}
	keys := make([]string, len(t.parts))
	for i, p := range t.parts {
		keys[i] = p.Key
	}
	var err error
	if t.marks, err = t.readMarks(ctx, tx, t.tenant, keys); err != nil {
		return err
	}
	if err := t.readRuns(ctx, t.prepare()); err != nil {
		return err
	}
	if err := t.write(ctx); isNowait(err) {
		t.q.metrics.countError(err) // it is no database error any more
		return &blockedError{err}
	} else if err != nil {
		return err
	}
	return nil
}

// own locks the lease rows and keeps the settlements whose epoch still holds.
func (t *settling) own(ctx context.Context) error {
	t.parts = t.parts[:0]
	t.lost = make([]bool, len(t.given))
	for i, g := range t.given {
		t.parts = append(t.parts, &part{Settlement: g, at: i})
	}
	slices.SortFunc(t.parts, func(a, b *part) int { return strings.Compare(a.Key, b.Key) })
	owned := make(map[rowKey]bool, len(t.parts))
	for rows := range chunksOf(t.parts, rowOfPart) {
		var r rowKey
		q := t.owned(selectLeases, t.tenant, rows).add(forUpdate)
		if err := q.each(ctx, t.tx, []any{&r.key, &r.number}, func() { owned[r] = true }); err != nil {
			return fmt.Errorf("lock the leases: %w", err)
		}
	}
	t.parts = slices.DeleteFunc(t.parts, func(p *part) bool {
		t.lost[p.at] = !owned[rowOfPart(p)]
		return t.lost[p.at]
	})
	return nil
}

func rowOfPart(p *part) rowKey { return rowOfLease(p.Lease) }

// prepare says where each partition stands, and returns those whose watermark
// may move as far as a locking read allows.
func (t *settling) prepare() []*part {
	var read []*part
	for _, p := range t.parts {
		p.before, p.stored = t.marks.of(p.Key, t.group)
		p.mark = p.before
		first, _ := slices.BinarySearch(p.Run, p.before+1)
		p.run = p.Run[first:]
		p.leaving = p.Drained && len(p.States) == 0
		switch {
		case p.leaving && t.marks.single() && len(p.run) <= listTerms:
			p.listed, p.gone = true, p.run
		case len(p.run) == 0:
		case t.allStalled || t.stalled[p.Key]:
			p.stalled, p.leaving, p.ahead = true, false, p.run
		default:
			read = append(read, p)
		}
	}
	return read
}

// write carries out what the reads have found.
func (t *settling) write(ctx context.Context) error {
	if err := t.writeStates(ctx); err != nil {
		return err
	}
	if !t.marks.single() {
		if err := t.findPassed(ctx); err != nil {
			return err
		}
	}
	if err := t.dropMessages(ctx); err != nil {
		return err
	}
	if err := t.writeMarks(ctx); err != nil {
		return err
	}
	upTo := make(map[string]uint64)
	var leaving []*part
	for _, p := range t.parts {
		if p.HasStates {
			upTo[p.Key] = p.mark
		}
		if p.leaving {
			leaving = append(leaving, p)
			if p.HasStates {
				upTo[p.Key] = math.MaxUint64
			}
		}
	}
	if err := t.dropStates(ctx, t.tx, t.tenant, upTo); err != nil {
		return err
	}
	for rows := range chunksOf(leaving, rowOfPart) {
		if err := t.owned("DELETE", t.tenant, rows).exec(ctx, t.tx); err != nil {
			return fmt.Errorf("give up %d leases: %w", len(rows), err)
		}
	}
	return nil
}

// findPassed decides what to delete where several groups read: what all of them
// have passed.
func (t *settling) findPassed(ctx context.Context) error {
	upTo := make(map[string]uint64)
	for _, p := range t.parts {
		p.gone = nil
		if passed := t.marks.passed(p.Key, t.group, p.mark); passed > 0 && (p.mark > p.before || p.leaving) {
			upTo[p.Key] = passed
		}
	}
	gone, err := t.passedMessages(ctx, t.tx, t.tenant, upTo)
	if err != nil {
		return err
	}
	for _, p := range t.parts {
		p.gone = gone[p.Key]
	}
	return nil
}

func (t *settling) dropMessages(ctx context.Context) error {
	var removals []removal
	for _, p := range t.parts {
		if len(p.gone) > 0 {
			removals = append(removals, removal{p.Key, p.gone, p.listed, p.leaving})
		}
	}
	return t.drop(ctx, t.tx, t.tenant, removals)
}

// writeMarks moves the watermarks, and removes those of partitions that are
// left with nothing for them to hold back.
func (t *settling) writeMarks(ctx context.Context) error {
	// A watermark goes only if no message at or below it is stored, which would
	// be delivered again. Without a row, and without other groups, all are gone.
	var asked []string
	for _, p := range t.parts {
		if p.leaving && (p.stored || !t.marks.single()) {
			asked = append(asked, p.Key)
		}
	}
	heads, err := t.heads(ctx, t.tx, t.tenant, asked)
	if err != nil {
		return err
	}
	var moved []*part
	var idle []mark
	for _, p := range t.parts {
		head, waiting := heads[p.Key]
		p.erased = p.leaving && (!waiting || head > p.mark)
		switch {
		case !p.erased && p.mark > p.before:
			moved = append(moved, p)
		case p.erased && p.stored:
			idle = append(idle, mark{p.Key, t.group, p.before})
		}
	}
	if err := t.setMarks(ctx, t.tx, t.tenant, moved); err != nil {
		return err
	}
	others, err := t.idleMarks(ctx, t.tx, t.tenant, t.marks, asked, heads, t.group)
	if err != nil {
		return err
	}
	return t.dropMarks(ctx, t.tx, t.tenant, append(idle, others...))
}

// results are those of the last run.
func (t *settling) results() []engine.Settled {
	results := make([]engine.Settled, len(t.given))
	for i, lost := range t.lost {
		results[i].Lost = lost
	}
	for _, p := range t.parts {
		r := engine.Settled{
			Drained: p.leaving, Watermark: p.mark, Stored: p.stored || p.mark > p.before, Late: p.late, Stalled: p.stalled,
		}
		if p.erased {
			r.Watermark, r.Stored = t.marks.base[t.group], false
		}
		results[p.at] = r
	}
	return results
}
