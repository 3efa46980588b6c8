package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is how long a service may take to stop gracefully.
const stopTimeout = 20 * time.Second

// fleet runs the services as processes of this machine.
type fleet struct {
	dir   string // of configuration and logs
	root  string // of the repository's working tree, where services find their base configuration
	env   []string
	fail  context.CancelCauseFunc // ends the demo
	crash string                  // why a service is killed that kill has not killed

	services []*service
}

// service is one process, started again whenever it is killed.
type service struct {
	fleet   *fleet
	name    string // unique
	program string
	address string
	log     string

	done chan struct{} // closed once the process is gone for good

	mu       sync.Mutex
	process  *os.Process
	stopping bool
	killed   int    // times it was killed from outside
	told     bool   // kill has done it
	why      string // of the last time
	exit     error
}

// add starts a service with a configuration over its base one.
func (f *fleet) add(name, program, address, overlay string) (*service, error) {
	s := &service{
		fleet: f, name: name, program: program, address: address,
		log: filepath.Join(f.dir, name+".log"), done: make(chan struct{}),
	}
	if err := os.WriteFile(s.config(), []byte(overlay), 0o600); err != nil {
		return nil, err
	}
	cmd, err := s.start()
	if err != nil {
		return nil, err
	}
	f.services = append(f.services, s)
	go s.supervise(cmd)
	return s, nil
}

func (s *service) config() string { return filepath.Join(s.fleet.dir, s.name+".yaml") }

func (s *service) start() (*exec.Cmd, error) {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(s.fleet.dir, "bin", s.program))
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.fleet.root, log, log
	cmd.Env = append(append(os.Environ(), s.fleet.env...), "MQ_CONFIG="+s.config())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, errStopping
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.process = cmd.Process
	return cmd, nil
}

var errStopping = errors.New("stopping")

// supervise waits for the process, and starts another when it was killed.
func (s *service) supervise(cmd *exec.Cmd) {
	defer close(s.done)
	for {
		err := cmd.Wait()
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		s.mu.Lock()
		stopping, wasKilled := s.stopping, status.Signal() == syscall.SIGKILL
		if wasKilled && !stopping {
			s.killed++
			s.why = s.fleet.crash
			if s.told {
				s.why, s.told = "as told", false
			}
		}
		why := s.why
		s.mu.Unlock()
		if stopping || !wasKilled {
			s.exit = err
			if !stopping {
				s.fleet.fail(fmt.Errorf("%s ended by itself: %w; its log is %s", s.name, orExitZero(err), s.log))
			}
			return
		}
		say("%s was killed, %s; starting it again", s.name, why)
		if cmd, err = s.start(); err != nil {
			if !errors.Is(err, errStopping) {
				s.fleet.fail(fmt.Errorf("start %s again: %w", s.name, err))
			}
			return
		}
	}
}

func orExitZero(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// kill ends the process as a crash would. One that is just being replaced is
// waited for.
func (s *service) kill(ctx context.Context) error {
	for {
		s.mu.Lock()
		err := s.process.Kill()
		s.told = s.told || err == nil
		s.mu.Unlock()
		if !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// healthy waits until the service answers.
func (s *service) healthy(ctx context.Context) error {
	for {
		response, err := get(ctx, "http://"+s.address+"/readyz")
		if err == nil && response.status == http.StatusOK {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("wait for %s, whose log is %s: %w", s.name, s.log, err)
		}
	}
}

// killed counts the processes that were killed so far.
func (f *fleet) killed() int {
	n := 0
	for _, s := range f.services {
		s.mu.Lock()
		n += s.killed
		s.mu.Unlock()
	}
	return n
}

// stop asks every service to end and waits for all. The error names those that
// did not end in time or not with exit code 0. Stopping again does nothing.
func (f *fleet) stop() error {
	for _, s := range f.services {
		s.mu.Lock()
		s.stopping = true
		_ = s.process.Signal(syscall.SIGTERM) // it has ended already
		s.mu.Unlock()
	}
	var errs []error
	timeout := time.After(stopTimeout)
	for _, s := range f.services {
		select {
		case <-s.done:
		case <-timeout:
			errs = append(errs, fmt.Errorf("%s did not stop within %v; its log is %s", s.name, stopTimeout, s.log))
			_ = s.process.Kill() // it has ended just now
			<-s.done
			continue
		}
		if s.exit != nil {
			errs = append(errs, fmt.Errorf("%s stopped with %w; its log is %s", s.name, s.exit, s.log))
		}
	}
	f.services = nil
	return errors.Join(errs...)
}

// freeAddresses returns n loopback addresses that nobody listens on.
func freeAddresses(n int) ([]string, error) {
	var list []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end, so that they differ
		list = append(list, l.Addr().String())
	}
	return list, nil
}
