package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"
)

// process is one of this machine, seen through /proc. A nil process, and any
// where there is no /proc, knows nothing.
type process struct{ pid string }

// findServer returns the database server's process, or nil if that runs
// elsewhere or cannot be seen.
func (b *bench) findServer(ctx context.Context) (*process, error) {
	cfg, err := driver.ParseDSN(b.rivals.dsn)
	if err != nil {
		return nil, err
	}
	if host, _, err := net.SplitHostPort(cfg.Addr); cfg.Net != "unix" && (err != nil || !net.ParseIP(host).IsLoopback() && host != "localhost") {
		return nil, nil
	}
	var file, data string
	if err := b.root.QueryRowContext(ctx, "SELECT @@pid_file, @@datadir").Scan(&file, &data); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(data, file)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, nil
	}
	p := &process{pid: strings.TrimSpace(string(content))}
	name, err := os.ReadFile(p.file("comm"))
	if err != nil || !bytes.HasPrefix(name, []byte("mariadbd")) && !bytes.HasPrefix(name, []byte("mysqld")) {
		return nil, nil // in a container, where numbers are others
	}
	return p, nil
}

func (p *process) file(name string) string { return filepath.Join("/proc", p.pid, name) }

// userHZ is the unit of times in /proc, the same on every machine.
const userHZ = 100

// cpu is what the process has used, user and system; fields 14 and 15 of
// proc_pid_stat(5), counted from behind the name, which may hold anything.
func (p *process) cpu() (time.Duration, bool) {
	if p == nil {
		return 0, false
	}
	text, err := os.ReadFile(p.file("stat"))
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, false
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, false
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / userHZ, true
}

// resetPeak makes peak begin anew: 5 is for that, see proc_pid_clear_refs(5).
// Without the right to, the peak is that of the process's whole life.
func (p *process) resetPeak() {
	if p != nil {
		_ = os.WriteFile(p.file("clear_refs"), []byte("5"), 0)
	}
}

// peak is the most memory that the process had resident, in MB.
func (p *process) peak() (float64, bool) {
	if p == nil {
		return 0, false
	}
	text, err := os.ReadFile(p.file("status"))
	if err != nil {
		return 0, false
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kb, err := strconv.ParseFloat(strings.Fields(rest + " -")[0], 64)
	return kb / 1024, err == nil
}
