package vitesstest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
)

// errPortTaken: a process ended since somebody else had one of its ports.
var errPortTaken = errors.New("a port was taken")

const (
	firstPort = 20_000
	lastPort  = 32_767 // the last below the ports that Linux gives to outgoing connections
	// portAttempts is how often a process is started before its ports are to blame.
	portAttempts = 5
)

// handedOut are the ports that freePorts has returned.
var handedOut = struct {
	sync.Mutex
	ports map[int]bool
}{ports: make(map[int]bool)}

// freePorts returns loopback ports that are free now, and that this process has not got before. No outgoing connection takes
// them before their listener does: they are below those that the kernel gives to connections.
func freePorts(n int) ([]int, error) {
	last := lastPort
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil { // not on other systems
		last = lastBelow(string(text))
	}
	handedOut.Lock()
	defer handedOut.Unlock()
	var ports []int
	for _, i := range rand.Perm(last - firstPort + 1) {
		port := firstPort + i
		if handedOut.ports[port] || !isFree(port) {
			continue
		}
		handedOut.ports[port] = true
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("find %d free ports for Vitess: there are %d from %d to %d", n, len(ports), firstPort, last)
}

// lastBelow is the last port to take below a range of the kernel's. Where that leaves few, it is that of an ordinary range:
// a process that finds its port taken is given another.
func lastBelow(kernels string) int {
	const few = 1_000
	if fields := strings.Fields(kernels); len(fields) > 0 {
		if first, err := strconv.Atoi(fields[0]); err == nil && first >= firstPort+few {
			return min(lastPort, first-1)
		}
	}
	return lastPort
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	return err == nil && l.Close() == nil
}

// startOnPorts starts a process on n ports of its own, and on others where somebody has taken one meanwhile. configure
// tells the process its ports.
func (p *Process) startOnPorts(ctx context.Context, n int, configure func(ports []int)) error {
	for attempt := 1; ; attempt++ {
		ports, err := freePorts(n)
		if err != nil {
			return err
		}
		configure(ports)
		if err = p.Start(ctx); !errors.Is(err, errPortTaken) || attempt == portAttempts {
			return err
		}
	}
}

// causeIn is the last error that a process has logged, or its last words.
func causeIn(log []byte) string {
	var last, cause string
	for line := range bytes.Lines(log) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		last = string(line)
		// Vitess's and etcd's loggers.
		var entry struct{ Level, Msg, Error string }
		if json.Unmarshal(line, &entry) != nil {
			continue
		}
		switch strings.ToLower(entry.Level) {
		case "error", "fatal", "panic":
			if cause = entry.Msg; entry.Error != "" {
				cause += ": " + entry.Error
			}
		}
	}
	if cause == "" {
		return last
	}
	return cause
}

// takenIn tells whether a log says that somebody else has the port.
func takenIn(log []byte) bool { return bytes.Contains(log, []byte("address already in use")) }
