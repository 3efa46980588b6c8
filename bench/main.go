// Command bench measures the queue on a real database: how fast it is beside
// raw SQL and other queues in the same run, and what it costs by the server's
// own counters.
//
//	make bench                          all scenarios, results and plots
//	make bench SCENARIO=settle,latency  some of them
//	make bench-check                    the costs that depend on no machine
//
// The server is the one MQ_TEST_DSN names. Figures of one run compare with each
// other, not with those of another machine.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// A scenario measures one thing, in one or several variants.
type scenario struct {
	name, what string
	run        func(ctx context.Context, b *bench) ([]result, error)
	rivals     bool // others take part; where they do not, none of them is left running
}

var scenarios = []scenario{
	{"publish-single", "16 publishers, one message of 200 bytes at a time", publishSingle, true},
	{"publish-batch", "4 publishers, batches of 100 messages of 200 bytes", publishBatch, true},
	{"publish-tx", "16 publishers, a message in a transaction beside a row of the caller's own", publishTx, true},
	{"settle", "20,000 messages over 20 partitions, handled by a no-op and settled", settle, true},
	{"many-keys", "3,000 partitions of one message each, handled by a no-op and settled", manyKeys, true},
	{"groups", "8,000 messages, settled by each of 1, 2 and 4 groups", groups, false},
	{"payload", "messages of 200 bytes to 512 KiB, published and settled", payload, false},
	{"latency", "publish to handler, idle queue, from the same and from another process", latency, false},
	{"idle", "10, 1,000 and 10,000 tenants with nothing to do", idle, false},
	{"noisy-tenant", "49 tenants with one message a second, alone and beside a backlog of 100,000 of another", noisyTenant, false},
	{"discovery", "an idle subscription beside 1,000 partitions that another group has not consumed", discovery, false},
	{"partitions", "100,000 partitions held by one subscription", partitions, false},
	{"snapshot", "publishing and settling without and with a transaction of a minute that keeps its snapshot", snapshot, false},
}

// fullRounds are as many as make a median. A run of fewer is a try: it is
// shorter elsewhere as well, and writes only what it is told to.
const fullRounds = 5

// options are the command line.
type options struct {
	only    string
	rounds  int
	json    string
	plots   string
	report  string
	check   string
	update  bool
	child   string
	profile string
	verbose bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var o options
	flag.StringVar(&o.only, "scenario", "", "comma-separated `names`; default: all")
	flag.IntVar(&o.rounds, "rounds", fullRounds, "alternating rounds a scenario; fewer than 5 make a short try")
	flag.StringVar(&o.json, "json", "", "write the results to this `file`; default for a full run of all scenarios: bench/results.json")
	flag.StringVar(&o.plots, "plots", "", "write the plots to this `directory`; default likewise: docs/bench")
	flag.StringVar(&o.report, "report", "", "renew the figures of this `page`; default likewise: docs/bench.md")
	flag.StringVar(&o.check, "check", "", "measure no speed but compare costs with this `file`")
	flag.BoolVar(&o.update, "update", false, "with -check: write the file")
	flag.StringVar(&o.child, "publisher", "", "internal: publish for another process into this `database`")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a profile of this process to `file`, for go tool pprof")
	flag.BoolVar(&o.verbose, "v", false, "show the queue's log")
	flag.Parse()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context) (err error) {
	log := zap.NewNop()
	if o.verbose {
		log = zap.Must(zap.NewDevelopment())
	}
	if o.rounds < 1 {
		return fmt.Errorf("-rounds %d: want 1 or more", o.rounds)
	}
	if o.child != "" {
		return publishFromOutside(ctx, o.child, o.rounds)
	}
	chosen, err := choose(o.only)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, o.rounds, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if o.check != "" {
		return b.check(ctx, o.check, o.update)
	}
	if o.only == "" && o.rounds >= fullRounds {
		o.json = cmp.Or(o.json, "bench/results.json")
		o.plots = cmp.Or(o.plots, "docs/bench")
		o.report = cmp.Or(o.report, "docs/bench.md")
	}
	stop, err := o.startProfile()
	if err != nil {
		return err
	}
	return errors.Join(o.measure(ctx, b, chosen), stop())
}

// startProfile begins what -cpuprofile asks for.
func (o options) startProfile() (stop func() error, err error) {
	if o.profile == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(o.profile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

func choose(only string) ([]scenario, error) {
	if only == "" {
		return scenarios, nil
	}
	var chosen []scenario
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
		if i < 0 {
			var names []string
			for _, s := range scenarios {
				names = append(names, s.name)
			}
			return nil, fmt.Errorf("scenario %q: want one of %s", name, strings.Join(names, ", "))
		}
		chosen = append(chosen, scenarios[i])
	}
	return chosen, nil
}

func (o options) measure(ctx context.Context, b *bench, chosen []scenario) error {
	start := time.Now()
	m, err := b.describe(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n\n", m)
	var all []result
	for _, s := range chosen {
		began := time.Now()
		fmt.Printf("%s: %s\n", s.name, s.what)
		if !s.rivals {
			if err := b.rivals.close(); err != nil {
				return err
			}
		}
		results, err := s.run(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		for i := range results {
			results[i].scenario = s
			results[i].print(os.Stdout)
		}
		fmt.Printf("%.0f s\n\n", time.Since(began).Seconds())
		all = append(all, results...)
	}
	summarize(os.Stdout, all)
	fmt.Printf("all of it in %v\n", time.Since(start).Round(time.Second))
	return o.write(m, all)
}

// write keeps what is asked for.
func (o options) write(m machine, all []result) error {
	if o.json != "" {
		if err := writeResults(o.json, all); err != nil {
			return err
		}
	}
	if o.plots != "" {
		if err := plotAll(o.plots, m, all); err != nil {
			return err
		}
	}
	if o.report != "" {
		return renew(o.report, m, all)
	}
	return nil
}
