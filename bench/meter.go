package main

import (
	"context"
	"runtime"
	"syscall"
	"time"
)

// counters are the server's own, of all connections.
type counters struct {
	statements, commits, rowsRead, bytes float64
}

func (c counters) minus(d counters) counters {
	return counters{c.statements - d.statements, c.commits - d.commits, c.rowsRead - d.rowsRead, c.bytes - d.bytes}
}

const readCounters = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Com_commit', 'Bytes_received', 'Bytes_sent', " +
	"'Handler_read_first', 'Handler_read_key', 'Handler_read_last', 'Handler_read_next', 'Handler_read_prev', 'Handler_read_rnd', 'Handler_read_rnd_next')"

func (b *bench) counters(ctx context.Context) (c counters, err error) {
	rows, err := b.root.QueryContext(ctx, readCounters)
	if err != nil {
		return c, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var value float64
		if err := rows.Scan(&name, &value); err != nil {
			return c, err
		}
		switch name {
		case "Questions":
			c.statements = value
		case "Com_commit":
			c.commits = value
		case "Bytes_received", "Bytes_sent":
			c.bytes += value
		default:
			c.rowsRead += value
		}
	}
	return c, rows.Err()
}

// calibrate finds what reading the counters adds to them: the server answers it
// from a table, and counts that.
func (b *bench) calibrate(ctx context.Context) (least counters, err error) {
	before, err := b.counters(ctx)
	if err != nil {
		return least, err
	}
	for i := range 5 {
		after, err := b.counters(ctx)
		if err != nil {
			return least, err
		}
		d := after.minus(before)
		if i == 0 {
			least = d
		}
		least = counters{
			min(least.statements, d.statements), min(least.commits, d.commits), min(least.rowsRead, d.rowsRead), min(least.bytes, d.bytes),
		}
		before = after
	}
	return least, nil
}

// usage is what work has taken.
type usage struct {
	took time.Duration
	counters
	clientCPU, serverCPU       time.Duration
	clientMemory, serverMemory float64 // the peak, MB
	serverKnown                bool    // the server runs here: serverCPU and serverMemory are known
	mallocs                    uint64
	goroutines                 int // the peak
}

// meter runs work and returns what it took, less what the meter itself does.
func (b *bench) meter(ctx context.Context, work func() error) (u usage, err error) {
	self := &process{pid: "self"}
	self.resetPeak()
	b.server.resetPeak()
	var before, after runtime.MemStats
	runtime.GC() // what came before is not to be paid for here
	peak := watchGoroutines()
	counted, err := b.counters(ctx)
	if err != nil {
		return u, err
	}
	serverCPU, serverKnown := b.server.cpu()
	runtime.ReadMemStats(&before)
	cpu, start := clientCPU(), time.Now()

	err = work()

	u.took = time.Since(start)
	u.clientCPU = clientCPU() - cpu
	runtime.ReadMemStats(&after)
	u.mallocs = after.Mallocs - before.Mallocs
	u.goroutines = peak()
	if err != nil {
		return u, err
	}
	end, ok := b.server.cpu()
	u.serverCPU, u.serverKnown = end-serverCPU, ok && serverKnown
	u.serverMemory, _ = b.server.peak()
	u.clientMemory, _ = self.peak()
	total, err := b.counters(ctx)
	u.counters = total.minus(counted).minus(b.reading)
	return u, err
}

// clientCPU is what this process has used, user and system.
func clientCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// watchGoroutines looks at their number again and again until the returned
// function is called, which tells the largest without the watching one.
func watchGoroutines() (peak func() int) {
	stop, most := make(chan struct{}), make(chan int)
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		n := 0
		for {
			n = max(n, runtime.NumGoroutine()-1)
			select {
			case <-tick.C:
			case <-stop:
				most <- n
				return
			}
		}
	}()
	return func() int {
		close(stop)
		return <-most
	}
}
