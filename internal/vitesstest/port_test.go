package vitesstest

import (
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

func TestPortsAreNeverThoseOfConnections(t *testing.T) {
	var all []int
	for range 10 {
		ports, err := freePorts(3)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ports...)
	}
	slices.Sort(all)
	if distinct := slices.Compact(slices.Clone(all)); len(distinct) != 30 {
		t.Errorf("%d different ports of 30: %d", len(distinct), all)
	}
	if all[0] < firstPort || all[29] > lastPort {
		t.Errorf("ports from %d to %d", all[0], all[29])
	}
	for kernels, want := range map[string]int{"32768\t60999\n": 32_767, "49152 65535": 32_767, "25000 60999": 24_999, "1024 65535": 32_767, "": 32_767} {
		if got := lastBelow(kernels); got != want {
			t.Errorf("last port below %q: %d, want %d", kernels, got, want)
		}
	}
}

// fakeProcess is a shell script, healthy once it is said to be.
func fakeProcess(t *testing.T) (p *Process, healthy *atomic.Bool) {
	t.Helper()
	healthy = new(atomic.Bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !healthy.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	d := &directory{path: t.TempDir()} // for no other user, who might not be let pass there
	if err := os.Mkdir(d.pids(), 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	if p, err = d.process("fake", "/bin/sh"); err != nil {
		t.Fatal(err)
	}
	p.health = server.URL
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p, healthy
}

func TestProcessGetsOtherPortsWhereOneWasTaken(t *testing.T) {
	p, healthy := fakeProcess(t)
	var got []int
	err := p.startOnPorts(t.Context(), 1, func(ports []int) {
		got = append(got, ports...)
		p.args = []string{"-c", `echo "Cannot listen: bind: address already in use"; exit 1`}
		if len(got) == 3 {
			p.args = []string{"-c", "sleep 60"}
			healthy.Store(true)
		}
	})
	if err != nil || len(got) != 3 {
		t.Errorf("ports %d: %v", got, err)
	}
}

func TestProcessThatFailsSaysWhyFirst(t *testing.T) {
	p, _ := fakeProcess(t)
	n := 0
	err := p.startOnPorts(t.Context(), 1, func([]int) {
		n++
		p.args = []string{"-c", `echo '{"level":"ERROR","msg":"no topology"}'; echo '{"level":"INFO","msg":"going"}'; exit 3`}
	})
	if err == nil || n != 1 {
		t.Fatalf("started %d times: %v", n, err)
	}
	if first, _, _ := strings.Cut(err.Error(), "\n"); first != "start fake: no topology: it ended at once: exit status 3" {
		t.Errorf("the first line is %q", first)
	}
}

func TestCauseInALog(t *testing.T) {
	for log, want := range map[string]string{
		`{"level":"ERROR","msg":"first"}` + "\n" + `{"level":"ERROR","msg":"last"}` + "\n" + `{"level":"INFO","msg":"bye"}` + "\n": "last",
		`{"level":"fatal","msg":"no listener","error":"bind: in use"}`:                                                             "no listener: bind: in use",
		"unknown flag: --x\n\n": "unknown flag: --x",
		"":                      "",
	} {
		if got := causeIn([]byte(log)); got != want {
			t.Errorf("%s: %q, want %q", log, got, want)
		}
	}
}
