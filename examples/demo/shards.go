package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// shard of a Vitess keyspace, and the tenants whose rows are on it.
type shard struct {
	name  string // key range
	holds map[string]holding
}

// holding is what a shard has of one tenant.
type holding struct {
	groups   int // registrations of consumer groups, which the queue keeps
	requests int
	messages int // all that there were, each once
}

// showShards prints which shard holds which tenant, and checks it. There is
// nothing to show of a database without shards.
func showShards(ctx context.Context, db *database, tenants []account, plan Plan) error {
	if !db.sharded {
		return nil
	}
	list, err := shards(ctx, db)
	if err != nil {
		return err
	}
	printShards(list)
	return placed(list, tenants, plan)
}

// shards looks at every shard of the keyspace, from beside the routing: a
// connection to keyspace:shard takes statements to that shard only.
func shards(ctx context.Context, db *database) ([]shard, error) {
	names, err := shardNames(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("list the shards: %w", err)
	}
	list := make([]shard, len(names))
	for i, name := range names {
		if list[i], err = readShard(ctx, db, name); err != nil {
			return nil, fmt.Errorf("read shard %s: %w", name, err)
		}
	}
	return list, nil
}

func shardNames(ctx context.Context, db *database) ([]string, error) {
	rows, err := db.QueryContext(ctx, "SHOW VITESS_SHARDS")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var of string
		if err := rows.Scan(&of); err != nil {
			return nil, err
		}
		if name, ok := strings.CutPrefix(of, db.config.DBName+"/"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, rows.Err()
}

// What a shard has of its tenants. The messages are long gone, but each has left
// its step in a request's history, or a head: request, check and merge are
// published with the step that they follow from, a signal or a dead letter has
// led to the last one. Only a failed check leads to no message.
const stmtHoldings = `SELECT tenant, SUM(registered), SUM(requests), SUM(messages) FROM (
	SELECT tenant, 1 AS registered, 0 AS requests, 0 AS messages FROM queue_offsets
	UNION ALL SELECT queue, 0, 1, 0 FROM submit_requests
	UNION ALL SELECT queue, 0, 0, 1 FROM submit_history WHERE state <> 'check_failed'
	UNION ALL SELECT queue, 0, 0, 1 FROM stovepipe_heads
) traces GROUP BY tenant`

func readShard(ctx context.Context, db *database, name string) (s shard, err error) {
	cfg := db.config.Clone()
	cfg.DBName += ":" + name
	direct, err := openDB(cfg)
	if err != nil {
		return shard{}, err
	}
	defer func() { err = errors.Join(err, direct.Close()) }()
	rows, err := direct.QueryContext(ctx, stmtHoldings)
	if err != nil {
		return shard{}, err
	}
	defer rows.Close()
	s = shard{name: name, holds: make(map[string]holding)}
	for rows.Next() {
		var tenant string
		var h holding
		if err := rows.Scan(&tenant, &h.groups, &h.requests, &h.messages); err != nil {
			return shard{}, err
		}
		s.holds[tenant] = h
	}
	return s, rows.Err()
}

// placed returns an error for a tenant whose rows, the queue's and the services',
// are not all on one shard, and for a shard that none of the plan's tenants is
// on although it was made to have one.
func placed(list []shard, tenants []account, plan Plan) error {
	var errs []error
	for _, a := range tenants {
		var on []string
		requests := 0
		for _, s := range list {
			if h, ok := s.holds[a.queue]; ok {
				on = append(on, s.name)
				if h.groups > 0 {
					requests = h.requests
				}
			}
		}
		if len(on) != 1 || requests != a.accepted {
			errs = append(errs, fmt.Errorf("tenant %s has rows on the shards %q, %d of %d requests where its groups are; want all on one",
				a.queue, on, requests, a.accepted))
		}
	}
	for _, s := range list {
		if len(s.holds) == 0 && len(list) <= plan.Shards {
			errs = append(errs, fmt.Errorf("shard %s has no tenant", s.name))
		}
	}
	return errors.Join(errs...)
}

func printShards(list []shard) {
	t := table.NewWriter()
	t.SetOutputMirror(os.Stdout)
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header, t.Style().Format.Footer = text.FormatDefault, text.FormatDefault
	t.AppendHeader(table.Row{"shard", "tenant", "requests", "messages"})
	var total holding
	for _, s := range list {
		var all holding
		for _, tenant := range slices.Sorted(maps.Keys(s.holds)) {
			h := s.holds[tenant]
			t.AppendRow(table.Row{s.name, tenant, h.requests, h.messages})
			all.requests, all.messages = all.requests+h.requests, all.messages+h.messages
		}
		t.AppendRow(table.Row{s.name, "all", all.requests, all.messages})
		t.AppendSeparator()
		total.requests, total.messages = total.requests+all.requests, total.messages+all.messages
	}
	t.AppendFooter(table.Row{"all", "", total.requests, total.messages})
	t.Render()
	fmt.Println("messages were published on the shard, as its histories and heads tell; each is counted once.")
}
