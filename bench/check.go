package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
)

// A probe measures costs that depend on the code and not on the machine.
type probe struct {
	name    string
	measure func(ctx context.Context, b *bench) (map[string]float64, error)
	// play is by which part a figure may grow: little where everything is in
	// sequence, more where time decides what comes together in a batch. Of
	// several rounds the least counts.
	play float64
}

var probes = []probe{
	{"publish-single", trial{load: load{n: 400, keys: 20, batch: 1}, work: publishers(1)}.least, 0.05},
	{"publish-batch", trial{load: load{n: 10_000, keys: 20, batch: 100}, work: publishers(1)}.least, 0.05},
	{"settle", trial{load: load{n: 10_000, keys: 20, batch: 500}, tenants: 4, inFlight: 4096, setup: store, work: drain}.least, 0.3},
	{"many-keys", trial{load: load{n: 1000, keys: 1000, batch: 250}, tenants: 4, inFlight: 1024, setup: store, work: drain}.least, 0.3},
	{"idle-1000", probeIdle, 0.2},
	{"discovery", probeDiscovery, 0.3},
}

// The figures of a trial.
const (
	statements  = "statements a message"
	rowsRead    = "rows read a message"
	allocations = "allocations a message"
)

const probeRounds = 5

// least is the cost of the queue's best round, figure by figure.
func (t trial) least(ctx context.Context, b *bench) (map[string]float64, error) {
	t.load.size, t.tenants = usualSize, max(1, t.tenants)
	us := &ours{bench: b, tenants: tenantIDs(t.tenants), inFlight: t.inFlight}
	var samples []sample
	for range probeRounds {
		s, err := b.round(ctx, t, us, t.load)
		if err != nil {
			return nil, errors.Join(err, us.Close())
		}
		samples = append(samples, s)
	}
	n := float64(t.load.n)
	return map[string]float64{
		statements:  lowest(samples, func(u usage) float64 { return u.statements / n }),
		rowsRead:    lowest(samples, func(u usage) float64 { return u.rowsRead / n }),
		allocations: lowest(samples, func(u usage) float64 { return float64(u.mallocs) / n }),
	}, us.Close()
}

func lowest(samples []sample, f func(usage) float64) float64 {
	v := f(samples[0].usage)
	for _, s := range samples {
		v = min(v, f(s.usage))
	}
	return v
}

func probeIdle(ctx context.Context, b *bench) (map[string]float64, error) {
	var samples []sample
	err := b.with(ctx, tenantIDs(1000), func(q *mysql.Queue) error {
		return subscribed(ctx, q, backend.SubscriptionConfig{}, func(backend.Subscription) (err error) {
			samples, err = b.rest(ctx, 3)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	second := restSpan.Seconds()
	return map[string]float64{
		"statements a second": lowest(samples, func(u usage) float64 { return u.statements / second }),
		"rows read a second":  lowest(samples, func(u usage) float64 { return u.rowsRead / second }),
	}, nil
}

func probeDiscovery(ctx context.Context, b *bench) (map[string]float64, error) {
	list := tenantIDs(discoveredTenants)
	var samples []sample
	err := b.with(ctx, list, func(q *mysql.Queue) error {
		if err := storeBacklog(ctx, q, list, 0, 20_000); err != nil {
			return err
		}
		return subscribed(ctx, q, backend.SubscriptionConfig{Start: backend.Latest}, func(backend.Subscription) (err error) {
			samples, err = b.rest(ctx, 3)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return map[string]float64{"rows read a statement and partition": lowest(samples, func(u usage) float64 {
		return u.rowsRead / max(1, u.statements) / discoveredKeys
	})}, nil
}

// committed is a figure as the file has it.
type committed struct {
	Value float64 `json:"value"`
	Limit float64 `json:"limit"` // Value and its play
}

// check compares the probes with the file, or writes it.
func (b *bench) check(ctx context.Context, file string, update bool) error {
	now := make(map[string]map[string]committed)
	for _, p := range probes {
		figures, err := p.measure(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		now[p.name] = make(map[string]committed)
		for figure, v := range figures {
			now[p.name][figure] = committed{round(v), round(v * (1 + p.play))}
		}
	}
	if update {
		return writeCommitted(file, now)
	}
	was, err := readCommitted(file)
	if err != nil {
		return err
	}
	return compareCommitted(was, now)
}

// round keeps four digits.
func round(v float64) float64 {
	r, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64) // what was just formatted
	return r
}

// compareCommitted prints all figures and returns an error that names those
// above their limits. A figure that only one side has is an error as well.
func compareCommitted(was, now map[string]map[string]committed) error {
	t := newTable("probe", "figure", "was", "limit", "is")
	var errs []error
	for _, p := range probes {
		for _, figure := range slices.Sorted(maps.Keys(now[p.name])) {
			old, ok := was[p.name][figure]
			is := now[p.name][figure].Value
			switch {
			case !ok:
				errs = append(errs, fmt.Errorf("%s, %s: is %s and was not measured before", p.name, figure, number(&is)))
			case is > old.Limit:
				errs = append(errs, fmt.Errorf("%s, %s: was %s, is %s, above the limit of %s",
					p.name, figure, number(&old.Value), number(&is), number(&old.Limit)))
			}
			t.AppendRow(table.Row{p.name, figure, number(&old.Value), number(&old.Limit), number(&is)})
		}
	}
	for name, figures := range was {
		for figure := range figures {
			if _, ok := now[name][figure]; !ok {
				errs = append(errs, fmt.Errorf("%s, %s: is in the file and not measured any more", name, figure))
			}
		}
	}
	fmt.Println(t.Render())
	if len(errs) > 0 {
		return fmt.Errorf("%w\nfind out why, or accept it: make bench-check UPDATE=1", errors.Join(errs...))
	}
	return nil
}

func readCommitted(file string) (was map[string]map[string]committed, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; make it: make bench-check UPDATE=1", err)
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &was); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return was, nil
}

func writeCommitted(file string, now map[string]map[string]committed) error {
	text, err := json.MarshalIndent(now, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
