package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// holder is what is known of a lease row.
type holder struct {
	epoch   uint64
	left    time.Duration // not positive: expired or released
	expired bool          // and not released
}

// Acquire implements [engine.Store]. Leases that others hold validly are read
// and never written to.
func (s *store) Acquire(ctx context.Context, tenant tenants.ID, candidates []engine.Candidate) (engine.Acquired, error) {
	result := engine.Acquired{Denied: make(map[string]time.Duration)}
	before, err := s.holders(ctx, tenant, candidates)
	if err != nil {
		return result, s.wrap(tenant, "read the leases", err)
	}
	var free []engine.Candidate
	for _, c := range candidates {
		if left := before[c.Key].left; left > 0 {
			result.Denied[c.Key] = left
		} else {
			free = append(free, c)
		}
	}
	slices.SortFunc(free, func(a, b engine.Candidate) int { return strings.Compare(a.Key, b.Key) })
	if err := s.acquire(ctx, tenant, free, before, &result); err != nil {
		return result, s.wrap(tenant, fmt.Sprintf("acquire %d partitions", len(free)), err)
	}
	return result, nil
}

// blockedFor is how soon to try again at a lease whose row is locked.
const blockedFor = time.Second

// errBlocked: an owner whose lease has expired is inside a transaction.
var errBlocked = errors.New("a former owner is inside a transaction")

// acquire takes leases in one transaction. The rows are locked before anything
// is read, so its snapshot holds all that a former owner has committed: he
// cannot settle any more. One who is stuck in the middle of a settlement keeps
// his partition, but not the others.
func (s *store) acquire(ctx context.Context, tenant tenants.ID, free []engine.Candidate, before map[string]holder, result *engine.Acquired) error {
	if len(free) == 0 {
		return nil
	}
	var got engine.Acquired
	err := s.q.inTx(ctx, func(tx *sql.Tx) error {
		got = engine.Acquired{Denied: make(map[string]time.Duration)}
		if err := s.probe(ctx, tx, tenant, free, before); err != nil {
			return err
		}
		if err := s.lease(ctx, tx, tenant, free); err != nil {
			return err
		}
		pending, err := s.grants(ctx, tx, tenant, free, before, &got)
		if err != nil {
			return err
		}
		return s.states(ctx, tx, tenant, pending)
	})
	switch {
	case errors.Is(err, errBlocked) && len(free) == 1:
		result.Denied[free[0].Key] = blockedFor
		return nil
	case errors.Is(err, errBlocked):
		half := len(free) / 2
		if err := s.acquire(ctx, tenant, free[:half], before, result); err != nil {
			return err
		}
		return s.acquire(ctx, tenant, free[half:], before, result)
	case err != nil:
		return err
	}
	result.Grants = append(result.Grants, got.Grants...)
	maps.Copy(result.Denied, got.Denied)
	result.Paused = got.Paused
	return nil
}

// probe locks the rows of leases that have expired and were not released. It
// waits for nobody.
func (s *store) probe(ctx context.Context, tx *sql.Tx, tenant tenants.ID, free []engine.Candidate, before map[string]holder) error {
	var expired []rowKey
	for _, c := range free {
		if h := before[c.Key]; h.expired {
			expired = append(expired, rowKey{c.Key, h.epoch})
		}
	}
	for rows := range slices.Chunk(expired, listRows) {
		var r rowKey
		q := leaseList.query(s.q.joins(), selectLeases, rows, string(tenant), s.group, s.topic).add(lockNowait)
		err := q.each(ctx, tx, []any{&r.key, &r.number}, func() {})
		if isNowait(err) {
			return errBlocked
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *store) holders(ctx context.Context, tenant tenants.ID, candidates []engine.Candidate) (map[string]holder, error) {
	holders := make(map[string]holder, len(candidates))
	for chunk := range slices.Chunk(candidates, listKeys) {
		var key string
		var epoch uint64
		var left, until int64
		q := newQuery(len(chunk), stmtHolders, string(tenant), s.group, s.topic).in(keysOf(chunk)...)
		err := s.each(ctx, q, []any{&key, &epoch, &left, &until}, func() {}, func() {
			holders[key] = holder{epoch, fromMillis(left), left <= 0 && until > 0}
		})
		if err != nil {
			return nil, err
		}
	}
	return holders, nil
}

func keysOf(candidates []engine.Candidate) []any {
	keys := make([]any, len(candidates))
	for i, c := range candidates {
		keys[i] = c.Key
	}
	return keys
}

// lease takes the rows that are missing, expired or released.
func (s *store) lease(ctx context.Context, tx *sql.Tx, tenant tenants.ID, free []engine.Candidate) error {
	duration := millis(s.cfg.LeaseDuration)
	for chunk := range slices.Chunk(free, listKeys) {
		q := newQuery(4*len(chunk), stmtLease)
		for i, c := range chunk {
			q.item(i, ", ", leaseRow, string(tenant), s.group, s.topic, c.Key, s.name, s.instance, duration, c.Claim)
		}
		if err := q.add(stmtLeaseEnd).exec(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// grants reads back whose the leases are, and where the group stands there.
// Those that are ours under the epoch they had before were not taken now. It
// returns those that have delivery states.
func (s *store) grants(
	ctx context.Context, tx *sql.Tx, tenant tenants.ID, free []engine.Candidate, before map[string]holder, result *engine.Acquired,
) (pending []*engine.Grant, err error) {
	result.Grants = make([]engine.Grant, 0, len(free)) // pending points into it
	registered := true
	for chunk := range slices.Chunk(free, listKeys) {
		var g engine.Grant
		var mine, states bool
		var left int64
		var mark, base sql.Null[uint64]
		q := newQuery(len(chunk), stmtGrants, s.name, s.instance, string(tenant), s.group, s.topic).in(keysOf(chunk)...)
		err := q.each(ctx, tx, []any{&g.Key, &g.Epoch, &mine, &left, &g.Suspect, &mark, &base, &result.Paused, &states}, func() {
			registered = registered && base.Valid
			if !mine || g.Epoch == before[g.Key].epoch {
				result.Denied[g.Key] = max(fromMillis(left), time.Millisecond)
				return
			}
			grant := g
			grant.Watermark, grant.Stored = base.V, mark.Valid
			if mark.Valid {
				grant.Watermark = mark.V
			}
			if grant.Suspect <= grant.Watermark {
				grant.Suspect = 0
			}
			result.Grants = append(result.Grants, grant)
			if states {
				pending = append(pending, &result.Grants[len(result.Grants)-1])
			}
		})
		if err != nil {
			return nil, err
		}
	}
	if !registered { // dropped by an operator: the group begins again with what is stored
		return pending, newQuery(0, stmtRegister, string(tenant), s.topic, s.group, 0).exec(ctx, tx)
	}
	return pending, nil
}

// states adds the delivery states above the watermarks.
func (s *store) states(ctx context.Context, tx *sql.Tx, tenant tenants.ID, grants []*engine.Grant) error {
	for chunk := range slices.Chunk(grants, listKeys) {
		byKey := make(map[string]*engine.Grant, len(chunk))
		keys := make([]any, len(chunk))
		for i, g := range chunk {
			byKey[g.Key], keys[i] = g, g.Key
		}
		var key string
		var st engine.State
		var delay int64
		var lastError sql.Null[string]
		for rows := maxRead; rows == maxRead; {
			q := newQuery(len(chunk), stmtStates, string(tenant), s.group, s.topic).in(keys...)
			if key != "" {
				q.add(statesBehind, key, key, st.Offset)
			}
			rows = 0
			dest := []any{&key, &st.Offset, &st.Settled, &st.Barrier, &st.Attempts, &st.Deliveries, &delay, &lastError}
			err := q.add(statesPage, maxRead).each(ctx, tx, dest, func() {
				rows++
				g := byKey[key]
				if g == nil || st.Offset <= g.Watermark {
					return
				}
				st.Delay, st.Error = max(fromMillis(delay), 0), lastError.V
				g.States = append(g.States, st)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Renew implements [engine.Store].
func (s *store) Renew(ctx context.Context, tenant tenants.ID, leases []engine.Lease) (lost []string, err error) {
	for rows := range chunksOf(leases, rowOfLease) {
		held, err := s.change(ctx, tenant, rows, stmtRenewEnd, nil)
		if err != nil {
			return nil, s.wrap(tenant, fmt.Sprintf("renew %d leases", len(rows)), err)
		}
		for _, r := range rows {
			if !slices.Contains(held, r) {
				lost = append(lost, r.key)
			}
		}
	}
	return lost, nil
}

// Release implements [engine.Store].
func (s *store) Release(ctx context.Context, tenant tenants.ID, releases []engine.Release) error {
	var keep, forget []engine.Lease
	for _, r := range releases {
		if r.Forget {
			forget = append(forget, r.Lease)
		} else {
			keep = append(keep, r.Lease)
		}
	}
	for rows := range chunksOf(keep, rowOfLease) {
		if _, err := s.change(ctx, tenant, rows, stmtReleaseEnd, nil); err != nil {
			return s.wrap(tenant, fmt.Sprintf("release %d leases", len(rows)), err)
		}
	}
	for rows := range chunksOf(forget, rowOfLease) {
		if err := s.execPromptly(ctx, s.owned("DELETE", tenant, rows)); err != nil {
			return s.wrap(tenant, fmt.Sprintf("give up %d leases", len(rows)), err)
		}
	}
	return nil
}

// Claim implements [engine.Store].
func (s *store) Claim(ctx context.Context, tenant tenants.ID, claims []engine.Claim) error {
	offsets := make(map[string]uint64, len(claims))
	for _, c := range claims {
		offsets[c.Key] = c.Offset
	}
	for rows := range chunksOf(claims, func(c engine.Claim) rowKey { return rowOfLease(c.Lease) }) {
		if _, err := s.change(ctx, tenant, rows, stmtClaimEnd, offsets); err != nil {
			return s.wrap(tenant, fmt.Sprintf("claim messages of %d partitions", len(rows)), err)
		}
	}
	return nil
}

// change locks leases, and changes those that are held as granted.
func (s *store) change(ctx context.Context, tenant tenants.ID, rows []rowKey, end string, claims map[string]uint64) (held []rowKey, err error) {
	duration := millis(s.cfg.LeaseDuration)
	run := func(tx *sql.Tx) error {
		held = held[:0]
		var r rowKey
		q := s.owned(selectLeases, tenant, rows).add(forUpdate)
		if err := q.each(ctx, tx, []any{&r.key, &r.number}, func() { held = append(held, r) }); err != nil || len(held) == 0 {
			return err
		}
		change := newQuery(4*len(held), stmtLease)
		for i, r := range held {
			change.item(i, ", ", leaseRow, string(tenant), s.group, s.topic, r.key, s.name, s.instance, duration, claims[r.key])
		}
		return change.add(end).exec(ctx, tx)
	}
	err = s.promptly(ctx, func(conn *sql.Conn) error { return txOn(ctx, conn, run) })
	return held, err
}

// owned begins a statement on leases, on the condition that they are held as
// granted.
func (s *store) owned(verb string, tenant tenants.ID, rows []rowKey) *query {
	return leaseList.query(s.q.joins(), verb, rows, string(tenant), s.group, s.topic).add(ifOwned, s.name, s.instance)
}

func rowOfLease(l engine.Lease) rowKey { return rowKey{l.Key, l.Epoch} }

// chunksOf makes rows of a list, sorted so that all statements lock in one
// order, and cuts them into lists.
func chunksOf[T any](list []T, row func(T) rowKey) func(yield func([]rowKey) bool) {
	rows := make([]rowKey, len(list))
	for i, x := range list {
		rows[i] = row(x)
	}
	slices.SortFunc(rows, func(a, b rowKey) int {
		return cmp.Or(strings.Compare(a.key, b.key), cmp.Compare(a.number, b.number))
	})
	return slices.Chunk(rows, listRows)
}
