// Command vitess measures four tenants on a Vitess cluster of two shards beside
// the same four on one server, alternating, and prints the rates with what both
// counted: the server its statements, vtgate its queries and what it sent to
// shards for them.
//
//	make bench-vitess
//
// The server is the one MQ_TEST_DSN names; the cluster is its own. Client,
// servers and all of Vitess share one machine: the figures tell what the way
// through vtgate costs, not what more shards would bring.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/sync/errgroup"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/internal/vitesstest"
	"github.com/tenantmq/tenantmq/tenants"
)

const (
	topic  = "bench"
	rounds = 5
	shards = 2
)

// load is what is measured: messages of four tenants, published in batches by a
// goroutine a tenant, then consumed and acknowledged.
type load struct {
	name                    string
	messages, batch         int // of each tenant
	partitions, maxInFlight int // partitions of each tenant
}

var loads = []load{
	{"few partitions", 5000, 100, 5, 4096},
	{"a partition each", 500, 100, 500, 1024},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench-vitess:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	plain, dropDatabase, err := newServer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dropDatabase()) }()
	programs, err := filepath.Abs(cmp.Or(os.Getenv(vitesstest.EnvPrograms), filepath.Join("bin", "vitess")))
	if err != nil {
		return err
	}
	cluster, err := vitesstest.Start(ctx, vitesstest.Config{
		Shards: shards, Programs: programs, Schema: mysql.VitessSchema(), VSchema: mysql.VSchema(),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	db, err := mysql.Open(cluster.DSN(), mysql.ServerIsolation())
	if err != nil {
		return err
	}
	vitess := &system{name: "Vitess, 2 shards", db: db, count: func(ctx context.Context) (counts, error) { return gateCounts(ctx, cluster) }}
	defer func() { err = errors.Join(err, db.Close()) }()
	list, err := spread(ctx, cluster, db)
	if err != nil {
		return err
	}
	fmt.Printf("%d tenants, %s on %s and %s on %s; median of %d alternating rounds, lowest to highest\n", len(list),
		join(list[:2]), cluster.Shards[0].Name, join(list[2:]), cluster.Shards[1].Name, rounds)
	for _, l := range loads {
		if err := l.measure(ctx, list, plain, vitess); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}

// system is one of the two that are compared.
type system struct {
	name  string
	db    *sql.DB
	count func(context.Context) (counts, error)
}

// counts are what arrived since the start: statements, and for Vitess what came
// of them at the shards.
type counts struct{ statements, atShards float64 }

// newServer makes a database for the queue on one server.
func newServer(ctx context.Context) (*system, func() error, error) {
	cfg, err := driver.ParseDSN(os.Getenv("MQ_TEST_DSN"))
	if err != nil || cfg.Addr == "" || os.Getenv("MQ_TEST_DSN") == "" {
		return nil, nil, errors.New("MQ_TEST_DSN names no server: run it by `make bench-vitess`, which provides one")
	}
	root, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		return nil, nil, err
	}
	cfg.DBName = "mq_bench_vitess_" + strconv.Itoa(os.Getpid())
	if _, err := root.ExecContext(ctx, "CREATE DATABASE "+cfg.DBName); err != nil {
		return nil, nil, errors.Join(err, root.Close())
	}
	db, err := mysql.Open(cfg.FormatDSN())
	if err == nil {
		err = mysql.Migrate(ctx, db)
	}
	remove := func() error {
		_, dropErr := root.Exec("DROP DATABASE " + cfg.DBName) //nolint:noctx // also when interrupted
		if db != nil {
			dropErr = errors.Join(dropErr, db.Close())
		}
		return errors.Join(dropErr, root.Close())
	}
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	return &system{name: "one server", db: db, count: func(ctx context.Context) (c counts, err error) {
		var name string
		err = root.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &c.statements)
		return c, err
	}}, remove, nil
}

// gateCounts are vtgate's own.
func gateCounts(ctx context.Context, cluster *vitesstest.Cluster) (c counts, err error) {
	var vars struct {
		QueryExecutions map[string]float64 // by kind, plan and type of tablet
		QueryRoutes     map[string]float64 // what was sent to shards for them
	}
	if err := cluster.GateVars(ctx, &vars); err != nil {
		return counts{}, err
	}
	for _, n := range vars.QueryExecutions {
		c.statements += n
	}
	for _, n := range vars.QueryRoutes {
		c.atShards += n
	}
	return c, nil
}

// spread finds four tenants, the first two on the first shard.
func spread(ctx context.Context, cluster *vitesstest.Cluster, db *sql.DB) ([]tenants.ID, error) {
	var on [shards][]tenants.ID
	for i := 0; len(on[0]) < 2 || len(on[1]) < 2; i++ {
		id := tenants.ID(fmt.Sprintf("tenant-%d", i))
		shard, err := cluster.ShardOf(ctx, db, string(id))
		if err != nil {
			return nil, err
		}
		if len(on[shard]) < 2 {
			on[shard] = append(on[shard], id)
		}
	}
	return slices.Concat(on[0], on[1]), nil
}

func join(list []tenants.ID) string {
	names := make([]string, len(list))
	for i, id := range list {
		names[i] = string(id)
	}
	return strings.Join(names, ", ")
}

// figures of one phase, a value a round.
type figures struct{ rates, statements, atShards []float64 }

func (l load) measure(ctx context.Context, list []tenants.ID, systems ...*system) error {
	phases := []string{"publish", "settle"}
	all := make(map[*system][]figures)
	for _, s := range systems {
		all[s] = make([]figures, len(phases))
	}
	for round := range rounds + 1 { // the first warms up
		for _, s := range systems {
			if err := l.round(ctx, list, s, round, all[s], round > 0); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	t := table.NewWriter()
	t.SetOutputMirror(os.Stdout)
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.SetTitle("%s: %d messages", l.name, l.messages*len(list))
	t.AppendHeader(table.Row{"", "", "msg/s", "of one server", "statements a message", "sent to shards"})
	for i, phase := range phases {
		for _, s := range systems {
			f, first := all[s][i], all[systems[0]][i]
			atShards := "-"
			if median(f.atShards) > 0 {
				atShards = fmt.Sprintf("%.3f", median(f.atShards))
			}
			t.AppendRow(table.Row{
				phase, s.name, fmt.Sprintf("%.0f (%.0f-%.0f)", median(f.rates), slices.Min(f.rates), slices.Max(f.rates)),
				fmt.Sprintf("%.2f", median(f.rates)/median(first.rates)), fmt.Sprintf("%.3f", median(f.statements)), atShards,
			})
		}
	}
	t.Render()
	return nil
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// round publishes and consumes once.
func (l load) round(ctx context.Context, list []tenants.ID, s *system, round int, into []figures, keep bool) (err error) {
	set, err := tenants.New(list...)
	if err != nil {
		return err
	}
	q, err := mysql.NewQueue(mysql.Params{DB: s.db, Tenants: set, Config: mysql.Config{ExternalSchema: true}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close(ctx)) }()
	for i, work := range []func() error{
		func() error { return l.publish(ctx, q, list, round) },
		func() error { return l.consume(ctx, q, len(list)) },
	} {
		before, err := s.count(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := work(); err != nil {
			return err
		}
		took := time.Since(began)
		after, err := s.count(ctx)
		if err != nil {
			return err
		}
		if n := float64(l.messages * len(list)); keep {
			into[i].rates = append(into[i].rates, n/took.Seconds())
			into[i].statements = append(into[i].statements, (after.statements-before.statements)/n)
			into[i].atShards = append(into[i].atShards, (after.atShards-before.atShards)/n)
		}
	}
	return nil
}

func (l load) publish(ctx context.Context, q backend.Queue, list []tenants.ID, round int) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, tenant := range list {
		g.Go(func() error {
			for n := 0; n < l.messages; n += l.batch {
				batch := make([]backend.Message, l.batch)
				for i := range batch {
					batch[i] = backend.Message{
						Tenant: tenant, Topic: topic, PartitionKey: fmt.Sprint("key-", (n+i)%l.partitions),
						ID: fmt.Sprint(round, "-", n+i), Payload: make([]byte, 200),
					}
				}
				if _, err := q.Publish(ctx, batch...); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (l load) consume(ctx context.Context, q backend.Queue, tenantCount int) error {
	sub, err := q.Subscribe(ctx, topic, backend.SubscriptionConfig{Group: "bench", MaxInFlight: l.maxInFlight})
	if err != nil {
		return err
	}
	var acks sync.WaitGroup
	failed := make(chan error, 1)
	for range l.messages * tenantCount {
		select {
		case d, ok := <-sub.Deliveries():
			if !ok {
				return errors.New("deliveries ended early")
			}
			acks.Go(func() {
				if err := d.Ack(ctx); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			})
		case err := <-failed:
			return err
		case <-time.After(time.Minute):
			return errors.New("no delivery for a minute")
		}
	}
	acks.Wait()
	return sub.Stop(ctx)
}
