// Command bench measures the queue on a real database and prints what it cost,
// by the server's own counters.
//
//	make bench                          all scenarios
//	make bench SCENARIO=settle,latency  some of them
//
// The server is the one MQ_TEST_DSN names. Figures of one run compare with each
// other, not with those of another machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	"go.uber.org/zap"
)

// scenario measures one thing and says in which words it did.
type scenario struct {
	name, what string
	run        func(ctx context.Context, b *bench) error
}

var scenarios = []scenario{
	{"publish-batch", "publish in batches of 100, 4 publishers, 200-byte payloads", publishBatch},
	{"publish-single", "publish one at a time, 16 publishers", publishSingle},
	{"settle", "20,000 messages over 20 partitions of 4 tenants, consumed and acknowledged", settle},
	{"many-keys", "3,000 partitions of one message each, consumed and acknowledged", manyKeys},
	{"idle", "1,000 tenants with nothing to do, for 10 s", idle},
	{"latency-same", "publish to handler in one process, idle queue", latencySame},
	{"latency-other", "publish to handler from another process, idle queue", latencyOther},
	{"noisy-tenant", "49 tenants with one message a second, alone and beside a backlog of 100,000", noisyTenant},
	{"discovery", "an idle subscription beside 1,000 partitions that another group waits for", discovery},
	{"partitions", "100,000 partitions held by one subscription: memory and goroutines", partitions},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	only := flag.String("scenario", "", "comma-separated `names`; default: all")
	child := flag.String("publisher", "", "internal: publish for another process into this `database`")
	verbose := flag.Bool("v", false, "show the queue's log")
	flag.Parse()
	if *verbose {
		logger = zap.Must(zap.NewDevelopment())
	}
	if err := run(ctx, *only, *child); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only, child string) error {
	if child != "" {
		return publishFromOutside(ctx, child)
	}
	var names []string
	for _, sc := range scenarios {
		names = append(names, sc.name)
	}
	chosen := names
	if only != "" {
		chosen = strings.Split(only, ",")
	}
	for _, name := range chosen {
		if !slices.Contains(names, name) {
			return fmt.Errorf("scenario %q: want one of %s", name, strings.Join(names, ", "))
		}
	}
	for _, sc := range scenarios {
		if !slices.Contains(chosen, sc.name) {
			continue
		}
		b, err := newBench(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s\n", sc.name, sc.what)
		err = sc.run(ctx, b)
		if closeErr := b.close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return fmt.Errorf("%s: %w", sc.name, err)
		}
	}
	return nil
}
