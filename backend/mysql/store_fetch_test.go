package mysql

import (
	"fmt"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
)

func TestFetchTellsWhetherThereIsMore(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	run := f.publish("k", 5)
	for name, c := range map[string]struct {
		r         engine.Range
		want      []uint64
		exhausted bool
	}{
		"all of it":        {engine.Range{Through: engine.Unbounded, Limit: 10}, run, true},
		"as many as asked": {engine.Range{Through: engine.Unbounded, Limit: 3}, run[:3], false},
		"up to the bound":  {engine.Range{Through: run[2], Limit: 3}, run[:3], true},
		"a short range":    {engine.Range{After: run[1], Through: run[3], Limit: 10}, run[2:4], true},
		"an empty range":   {engine.Range{After: run[4], Through: run[4], Limit: 10}, nil, true},
		"behind the end":   {engine.Range{After: run[4], Through: engine.Unbounded, Limit: 10}, nil, true},
		"some that exist":  {engine.Range{Only: []uint64{run[4], run[0], run[4] + 1}}, []uint64{run[0], run[4]}, true},
	} {
		c.r.Key = "k"
		got := f.fetch(s, c.r)[0]
		var offsets []uint64
		for _, m := range got.Messages {
			offsets = append(offsets, m.Offset)
		}
		f.want(name, []any{c.want, c.exhausted}, []any{offsets, got.Exhausted})
	}
	f.want("nothing", 0, len(f.fetch(s)))
}

// Ranges that want a few messages are read together. One of them that holds
// many must not cut the others off.
func TestFetchFewOfManyPartitions(t *testing.T) {
	for name, deep := range map[string]int{"none is deep": 0, "some are deep": 40, "the first is deep": 1_000} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			s := f.store(groupA, "one")
			const limit = 3
			var ranges []engine.Range
			var want []engine.Fetched
			for i, key := range partitionKeys(listTerms + 20) {
				n := i % (limit + 2)
				if deep > 0 && i%deep == 0 {
					n += deep
				}
				got := engine.Fetched{Key: key, Exhausted: n < limit}
				if n > 0 {
					for _, offset := range f.publish(key, n)[:min(n, limit)] {
						got.Messages = append(got.Messages, engine.Message{Message: backend.Message{Offset: offset}})
					}
				}
				ranges = append(ranges, engine.Range{Key: key, Through: engine.Unbounded, Limit: limit})
				want = append(want, got)
			}
			got := f.fetch(s, ranges...)
			for i := range got {
				for j, m := range got[i].Messages {
					got[i].Messages[j] = engine.Message{Message: backend.Message{Offset: m.Offset}}
				}
			}
			f.want("fetched", want, got)
		})
	}
}

// Many deep partitions at once: no statement reads more than the server may
// hand out, and none is cut short by another.
func TestFetchManyRanges(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	const each = 7
	var ranges []engine.Range
	want := make(map[string][]uint64)
	for i, key := range partitionKeys(2*listTerms + 30) {
		run := f.publish(key, each)
		r := engine.Range{Key: key, Through: engine.Unbounded, Limit: 1000}
		want[key] = run
		switch i % 3 {
		case 1:
			r.Through = run[each-1]
			r.After = run[0]
			want[key] = run[1:]
		case 2:
			r.Limit = 2
			want[key] = run[:2]
		}
		ranges = append(ranges, r)
	}
	got := make(map[string][]uint64)
	for i, p := range f.fetch(s, ranges...) {
		if p.Key != ranges[i].Key {
			t.Fatalf("range %d is of %q", i, p.Key)
		}
		for _, m := range p.Messages {
			got[p.Key] = append(got[p.Key], m.Offset)
		}
	}
	f.want("fetched", want, got)
}

// Rows that somebody wrote by hand must not hold up a partition.
func TestMetadataWrittenByHand(t *testing.T) {
	for text, want := range map[string]map[string]string{
		`{}`:                                    nil,
		`{"a":"b"}`:                             {"a": "b"},
		`{ "a": 1, "b": "c", "d": {"e": [2]} }`: {"a": "1", "b": "c", "d": `{"e": [2]}`},
		`[1]`:                                   {"": "[1]"},
		`null`:                                  nil,
	} {
		got := decodeMetadata([]byte(text))
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
