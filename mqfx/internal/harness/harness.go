// Package harness is how mqfxtest tells mqfx that a test is running.
package harness

import (
	"time"

	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/memory"
	"github.com/tenantmq/tenantmq/tenants"
)

// Memory, supplied to an application, puts its queue into the process and cuts
// it off from the process's surroundings: neither environment, command line nor
// working directory say anything.
type Memory struct {
	// Tenants and Logger apply where the application hands in none.
	Tenants tenants.Set
	Logger  *zap.Logger
	// Opened is told the queue when the application starts.
	Opened func(*memory.Queue)
	// Wrap is put around the queue, below what the application decorates.
	Wrap func(backend.Queue) backend.Queue
}

// PollInterval takes the place of the default one: what a process publishes
// itself is noticed without, and in a bubble every look costs time of the machine.
const PollInterval = time.Second
