package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// machine is what figures depend on.
type machine struct {
	cpu, memory, kernel, server, golang string
	fsync                               time.Duration // the median
}

func (m machine) String() string {
	return fmt.Sprintf("%s, %s of memory, %s; %s; %s; 4 KiB written and synced in %.2f ms",
		m.cpu, m.memory, m.kernel, m.server, m.golang, float64(m.fsync)/float64(time.Millisecond))
}

// lines is the same in three lines, for a plot.
func (m machine) lines() []string { return strings.SplitN(m.String(), "; ", 3) }

// describe looks at this machine, and at the server, wherever that is.
func (b *bench) describe(ctx context.Context) (machine, error) {
	m := machine{
		cpu:    fmt.Sprintf("%d cores of %s", runtime.NumCPU(), field("/proc/cpuinfo", "model name", "an unknown CPU")),
		memory: memory(),
		kernel: runtime.GOOS + "/" + runtime.GOARCH,
		golang: runtime.Version(),
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.kernel += " " + strings.TrimSpace(string(release))
	}
	var version string
	var flush, sync, pool int64
	err := b.root.QueryRowContext(ctx, "SELECT VERSION(), @@innodb_flush_log_at_trx_commit, @@sync_binlog, @@innodb_buffer_pool_size").
		Scan(&version, &flush, &sync, &pool)
	if err != nil {
		return m, err
	}
	m.server = fmt.Sprintf("%s with innodb_flush_log_at_trx_commit=%d, sync_binlog=%d, a buffer pool of %d MiB", version, flush, sync, pool>>20)
	m.fsync, err = fsyncTime()
	return m, err
}

// field is what a line of a file like /proc/cpuinfo says.
func field(file, name, otherwise string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return otherwise
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return otherwise
}

func memory() string {
	var kb int64
	if _, err := fmt.Sscan(field("/proc/meminfo", "MemTotal", ""), &kb); err != nil {
		return "an unknown amount"
	}
	return fmt.Sprintf("%.0f GiB", float64(kb)/(1<<20))
}

// fsyncTime is what a commit costs at least, where temporary files are: a
// private server has its data there.
func fsyncTime() (time.Duration, error) {
	f, err := os.CreateTemp("", "bench-fsync-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var times []float64
	for range 50 {
		start := time.Now()
		if _, err := f.Write(payloadOf(0, 4096)); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		times = append(times, float64(time.Since(start)))
	}
	_, median, _ := spread(times)
	return time.Duration(median), nil
}
