//go:build vitess

package mysql

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A watermark of each group in each of many partitions is more than the 10,000
// rows that Vitess returns at most.
func TestVitessManyGroupsAreReadInParts(t *testing.T) {
	f := newVitessFixture(t)
	if err := f.q.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := f.store(groupA, "one")
	keys := partitionKeys(listKeys)
	const groups = 21
	for g := range groups {
		name := fmt.Sprintf("g%d", g)
		q := newQuery(0, stmtSetMarks)
		q.item(0, ", ", markRow, string(tenantA), topicA, "", name, 0)
		for i, key := range keys {
			q.item(1, ", ", markRow, string(tenantA), topicA, key, name, g*len(keys)+i)
		}
		if err := q.add(stmtSetMarksEnd).exec(t.Context(), f.db); err != nil {
			t.Fatal(err)
		}
	}
	for _, when := range []string{"before their number is known", "after"} {
		m, err := s.readMarks(t.Context(), f.db, tenantA, keys)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if len(m.base) != groups+1 {
			t.Errorf("%s: %d groups, want %d and our own", when, len(m.base), groups)
		}
		for i, key := range keys {
			for g := range groups {
				if at, stored := m.of(key, fmt.Sprintf("g%d", g)); !stored || at != uint64(g*len(keys)+i) {
					t.Fatalf("%s: group %d in %s is at %d, %v", when, g, key, at, stored)
				}
			}
		}
	}
}

// A caller whose transaction is on another shard is told so, and not to try
// again.
func TestVitessPublishTxOnAnotherShard(t *testing.T) {
	f := newVitessFixture(t)
	for i := 0; ; i++ {
		tx, err := f.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		other := fmt.Sprintf("tenant-%d", i) // one of them is on another shard
		if _, err := tx.ExecContext(t.Context(), stmtSetMarks+markRow+stmtSetMarksEnd, other, topicA, "k", groupA, 1); err != nil {
			t.Fatal(err)
		}
		_, err = f.q.PublishTx(t.Context(), tx, message(tenantA, topicA, "k", i))
		if e := tx.Rollback(); e != nil {
			t.Fatal(e)
		}
		switch {
		case err == nil && i < 50:
			continue
		case err == nil:
			t.Fatal("no tenant is on another shard")
		case errors.Is(err, ErrRetryTransaction) || !strings.Contains(err.Error(), "touched another shard"):
			t.Errorf("got %v", err)
		}
		return
	}
}
