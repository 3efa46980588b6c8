// Package backendtest is the suite that every backend passes: it holds the
// guarantees of package backend, one case each.
//
// A backend's own test calls it with a [Factory]:
//
//	func TestConformance(t *testing.T) { backendtest.Run(t, newStorage) }
//
// and checks for leaked goroutines in its TestMain. Cases run in parallel as
// far as the test binary's -parallel allows. A case that fails prints the
// history of its deliveries.
package backendtest

import (
	"context"
	"database/sql"
	"slices"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// Run runs the suite.
func Run(t *testing.T, f Factory) {
	for _, c := range slices.Concat(
		publishCases, transactionCases, identifierCases, orderCases, retryCases, postponeCases, deadLetterCases,
		redriveCases, groupCases, visibilityCases, crashCases, rebalanceCases, stopCases, closeCases, pauseCases,
		tenantCases, pollCases, drainCases, damageCases, lagCases,
		healthCases,
	) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(newStage(t, f))
		})
	}
}

// testCase is one guarantee.
type testCase struct {
	name string
	run  func(*stage)
}

// Queue is what passes the suite.
type Queue interface {
	backend.Queue
	backend.Admin
	backend.HealthReporter

	// Lag tells how far a group is behind, or ErrNotFound.
	Lag(ctx context.Context, tenant tenants.ID, topic, group string) (backend.Lag, error)
}

// Factory makes the storage of one case. No two cases of a [Run] share a
// tenant, so that a factory may give all of them the same database.
type Factory func(t *testing.T) Storage

// Storage is where the queues of several processes meet. Its methods are safe
// for concurrent use. Whatever it opens that a queue does not close, it closes
// by t.Cleanup.
type Storage interface {
	// Open makes a queue as a process of its own would have it: nothing but
	// the storage is shared with other queues, not even connections. The suite
	// closes it. The set may be the zero Set: a process that only publishes.
	Open(t *testing.T, set tenants.Set) Queue

	// Cut severs a queue from the storage in the middle of whatever it does:
	// transactions under way are rolled back, and until mend is called every
	// access fails at once. To the others the process has crashed: its leases
	// and heartbeats stay behind until they expire. A queue that is never
	// mended can still be closed, within the context given to Close.
	Cut(t *testing.T, q Queue) (mend func())

	// DB reaches the storage for transactions of the application's own, with
	// connections of their own. It is nil on a backend without SQL, whose
	// PublishTx then has to return ErrNotSupported.
	DB() *sql.DB

	// Limits are the configured caps in bytes of a payload and of a message's
	// metadata. A payload of more than 4 MiB would make the suite slow.
	Limits() (payload, metadata int)

	// Delete removes one stored message behind the queue's back, named by its
	// tenant, topic, partition key and id, and nothing else of it.
	Delete(t *testing.T, m backend.Message)

	// Rows counts everything stored of the given tenants, by table or kind.
	// The registrations of groups are left out: they stay until a group is
	// dropped. The heartbeats of live subscribers are counted under
	// [Heartbeats].
	Rows(t *testing.T, list ...tenants.ID) map[string]int
}

// Heartbeats is the key in [Storage.Rows] of what live subscribers keep in an
// otherwise drained storage.
const Heartbeats = "heartbeats"
