package operator

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// PurgeOptions of [Operator.Purge].
type PurgeOptions struct {
	PartitionKey string // "" for all
	// Progress is told after every transaction what all of them have removed. It
	// is called by the calling goroutine. Nil: nobody is.
	Progress func(Purged)
}

// Purged is what a purge has removed.
type Purged struct {
	Messages, States, Watermarks, Leases int
}

func (p *Purged) add(q Purged) {
	p.Messages += q.Messages
	p.States += q.States
	p.Watermarks += q.Watermarks
	p.Leases += q.Leases
}

// Bounds of a transaction's rows: in all 1,000.
const (
	purgeLeases = 200 // taken; as many watermarks
	purgeRows   = 600 // messages and states
)

// Purge removes the messages of a topic with all that is known of them, in
// transactions of at most 1,000 rows. The groups stay registered. Messages that
// are published in a partition after its turn has come stay; those published
// before are gone, whether or not anybody works on them: their settlements fail
// with [backend.ErrLeaseLost].
//
// It may run beside publishers and subscribers. When it fails or is cancelled
// half way, what was removed stays so, the error says how much, and it can be
// called again.
//
// Each transaction takes the leases of its partitions for all groups, those that
// are missing included, before it looks at anything. So no settlement is under
// way in them until it commits, nobody can begin to work on them, and a
// watermark is removed only where no message is left that it has passed: one
// that commits meanwhile is simply new.
func (o *Operator) Purge(ctx context.Context, tenant tenants.ID, topic string, opts PurgeOptions) (Purged, error) {
	err := o.check(backend.CheckTenant(tenant), backend.CheckTopic(topic), unless(opts.PartitionKey, backend.CheckPartitionKey))
	if err != nil {
		return Purged{}, err
	}
	p := purging{Operator: o, tenant: tenant, topic: topic, progress: opts.Progress}
	if err = o.CheckSchema(ctx); err == nil {
		err = p.run(ctx, opts.PartitionKey)
	}
	if err != nil {
		return p.total, fmt.Errorf("purge tenant %q, topic %q; %d messages are removed and stay so, purge again for the rest: %w",
			tenant, topic, p.total.Messages, err)
	}
	return p.total, nil
}

// purging is one call of Purge.
type purging struct {
	*Operator
	tenant   tenants.ID
	topic    string
	progress func(Purged)
	total    Purged

	joined bool // see [rowList]
	groups []string
}

func (p *purging) run(ctx context.Context, partitionKey string) error {
	shards, err := p.shards(ctx)
	if err != nil {
		return err
	}
	p.joined = len(shards) == 0
	if p.groups, err = p.groupsWithRows(ctx, p.tenant, p.topic); err != nil {
		return err
	}
	if partitionKey != "" {
		return p.partitions(ctx, []string{partitionKey}, false)
	}
	width := max(purgeLeases/max(len(p.groups), 1), 1)
	for i, list := range p.lists() {
		for after, more := "", true; more; {
			var keys []string
			if keys, more, err = list(ctx, after, width); err != nil {
				return fmt.Errorf("list the partitions: %w", err)
			}
			if err := p.partitions(ctx, keys, i > 0); err != nil {
				return err
			}
			if more {
				after = keys[len(keys)-1]
			}
		}
	}
	return nil
}

// lister finds partitions behind a key ("": from the start), at most n, and tells
// whether there may be more.
type lister func(ctx context.Context, after string, n int) (keys []string, more bool, err error)

// lists are the ways to find partitions: those with messages, and those with
// nothing but other rows.
func (p *purging) lists() []lister {
	lists := []lister{func(ctx context.Context, after string, n int) ([]string, bool, error) {
		keys, err := p.keys(ctx, p.tenant, p.topic, after, n)
		return keys, len(keys) == n, err
	}}
	rest := func(statement string, args ...any) {
		lists = append(lists, func(ctx context.Context, after string, n int) ([]string, bool, error) {
			q := newQuery(statement, args...)
			if after != "" {
				q.add(keyBehind, after)
			}
			rows, err := read(ctx, p.db, q.add(keyPage, n), single[string])
			return slices.Compact(rows), len(rows) == n, err
		})
	}
	rest(stmtMarkKeys, string(p.tenant), p.topic)
	for _, group := range p.groups {
		rest(stmtLeaseKeys, string(p.tenant), group, p.topic)
		rest(stmtStateKeys, string(p.tenant), group, p.topic)
	}
	return lists
}

// partitions purges some partitions, up to the messages they hold now. Of those
// listed for other rows, the ones with messages are left alone: their turn has
// been, and what came in since stays.
func (p *purging) partitions(ctx context.Context, keys []string, idle bool) error {
	stored, err := p.ends(ctx, p.db, p.tenant, p.topic, keys)
	if err != nil {
		return err
	}
	if idle {
		keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { _, ok := stored[key]; return ok })
	}
	if len(keys) == 0 {
		return nil
	}
	// Groups that have joined meanwhile, or were dropped and left something.
	others, err := read(ctx, p.db, newQuery(stmtMarkGroups, string(p.tenant), p.topic).in(keys), single[string])
	if err != nil {
		return fmt.Errorf("list the groups of %d partitions: %w", len(keys), err)
	}
	p.groups = append(p.groups, others...)
	slices.Sort(p.groups)
	p.groups = slices.Compact(p.groups)
	upTo := make(map[string]uint64, len(keys))
	for _, key := range keys {
		upTo[key] = stored[key].tail
	}
	for done := false; !done; {
		var removed Purged
		err := p.inTx(ctx, func(tx *sql.Tx) (err error) {
			removed = Purged{}
			done, err = p.round(ctx, tx, keys, upTo, &removed)
			return err
		})
		if err != nil {
			return err
		}
		p.total.add(removed)
		if p.progress != nil && removed != (Purged{}) {
			p.progress(p.total)
		}
	}
	return nil
}

// round is one transaction. It tells whether nothing is left to be removed.
func (p *purging) round(ctx context.Context, tx *sql.Tx, keys []string, upTo map[string]uint64, removed *Purged) (done bool, err error) {
	if err := p.take(ctx, tx, keys); err != nil {
		return false, fmt.Errorf("take the leases of %d partitions: %w", len(keys), err)
	}
	removed.Messages, err = p.dropMessages(ctx, tx, keys, upTo)
	if err != nil || removed.Messages == purgeRows {
		return false, err
	}
	stored, err := p.ends(ctx, tx, p.tenant, p.topic, keys)
	if err != nil {
		return false, err
	}
	states := make(map[string]uint64, len(keys))
	var empty []rowKey
	for _, key := range keys {
		states[key] = upTo[key]
		if _, ok := stored[key]; !ok {
			states[key] = math.MaxUint64
			empty = append(empty, rowKey{key: key})
		}
	}
	room := purgeRows - removed.Messages
	for _, group := range p.groups {
		n, err := p.dropStates(ctx, tx, group, keys, states, room)
		removed.States += n
		if room -= n; err != nil || room == 0 {
			return false, err
		}
	}
	for _, group := range p.groups {
		n, err := p.drop(ctx, tx, markList, empty, string(p.tenant), p.topic, group)
		if err != nil {
			return false, fmt.Errorf("delete watermarks: %w", err)
		}
		removed.Watermarks += n
		for _, list := range []rowList{takenList, leaseList} {
			if n, err = p.drop(ctx, tx, list, empty, string(p.tenant), group, p.topic); err != nil {
				return false, fmt.Errorf("delete leases: %w", err)
			}
		}
		removed.Leases += n // but those that were missing
	}
	return true, nil
}

// take is in the order of the primary key, as all who lock leases.
func (p *purging) take(ctx context.Context, tx *sql.Tx, keys []string) error {
	q, n := newQuery(stmtTake), 0
	for _, group := range p.groups {
		for _, key := range keys {
			q.item(n, ", ", takeRow, string(p.tenant), group, p.topic, key)
			n++
		}
	}
	if n == 0 {
		return nil
	}
	_, err := q.add(takeEnd).exec(ctx, tx)
	return err
}

func (p *purging) dropMessages(ctx context.Context, tx *sql.Tx, keys []string, through map[string]uint64) (int, error) {
	n := 0
	for chunk := range slices.Chunk(keys, listTerms) {
		q := newQuery(stmtUpTo, string(p.tenant), p.topic)
		for i, key := range chunk {
			q.item(i, " OR ", upTo, key, through[key])
		}
		rows, err := read(ctx, tx, q.add(upToPage, purgeRows-n), (*rowKey).dest)
		if err != nil {
			return 0, fmt.Errorf("list messages: %w", err)
		}
		if _, err := p.drop(ctx, tx, messageList, rows, string(p.tenant), p.topic); err != nil {
			return 0, fmt.Errorf("delete %d messages: %w", len(rows), err)
		}
		if n += len(rows); n == purgeRows {
			break
		}
	}
	return n, nil
}

func (p *purging) dropStates(ctx context.Context, tx *sql.Tx, group string, keys []string, through map[string]uint64, room int) (int, error) {
	n := 0
	for chunk := range slices.Chunk(keys, listTerms) {
		q := newQuery(stmtStatesUpTo, string(p.tenant), group, p.topic)
		for i, key := range chunk {
			q.item(i, " OR ", stateUpTo, key, through[key])
		}
		rows, err := read(ctx, tx, q.add(statesPage, room-n), (*rowKey).dest)
		if err != nil {
			return 0, fmt.Errorf("list delivery states: %w", err)
		}
		if _, err := p.drop(ctx, tx, stateList, rows, string(p.tenant), group, p.topic); err != nil {
			return 0, fmt.Errorf("delete %d delivery states: %w", len(rows), err)
		}
		if n += len(rows); n == room {
			break
		}
	}
	return n, nil
}

// drop deletes rows of a list and returns how many there were.
func (p *purging) drop(ctx context.Context, tx *sql.Tx, list rowList, rows []rowKey, fixed ...any) (int, error) {
	n := 0
	for len(rows) > 0 {
		size := min(len(rows), listRows)
		if !p.joined { // by halves: what is left of the rows is stored, too, so that the limit stays below what the table holds
			size = min((len(rows)+1)/2, listRows)
		}
		removed, err := list.remove(p.joined, rows[:size], fixed...).exec(ctx, tx)
		if err != nil {
			return n, err
		}
		n += removed
		rows = rows[size:]
	}
	return n, nil
}
