// Package mqfx makes the queue a part of an Uber Fx application. A whole
// service is
//
//	func main() {
//		fx.New(mqfx.Module, mqfx.Handle(NewLandHandler)).Run()
//	}
//
// where NewLandHandler takes what the handler depends on, from the application's
// graph, and returns a [consume.Handler]. Whoever publishes takes a
// [publish.Publisher] the same way.
//
// # Configuration
//
// The section mq of YAML files, described by [Config]: config/base.yaml if there
// is one, then the files of -config a.yaml,b.yaml on the command line or else of
// MQ_CONFIG; later files win key by key. MQ_TENANTS lists the tenants the
// process consumes for, and MQ_DSN overrides mq.dsn. A process with handlers
// needs at least one tenant, one that only publishes needs none.
//
// Everything that is wrong is refused at start, with file, key, value and remedy
// (TestBadInputRefusesTheStart): unknown keys, a misspelt section, a section or
// key without a value, durations of zero and those without a unit. A file
// without a section mq is fine beside one that has it. Values are taken as they
// are written, $ included (TestDollarInPasswordStays). The password shows
// nowhere (TestPasswordIsNeverPrinted).
//
// For a subscription, what the handler's code says wins over mq.topics, and that
// over mq.subscription.
//
// docs/configuration.md has every key; [PrintConfig] shows what is in effect.
//
// # Life
//
//   - Constructors open nothing (TestFailedConstructionLeavesNothing). Until the
//     start has come to the module the queue returns [ErrNotStarted]; it comes
//     before the hooks of everything that takes the publisher or the queue
//     (TestQueueIsUsedFromTheStartOn).
//   - Start migrates if mq.migrate says so, verifies the database, and then
//     subscribes all handlers or none, after everything they depend on has
//     started (TestHandlersStartAfterWhatTheyTake). A start that fails or runs out
//     of time leaves nothing behind (TestStartEndsWithItsContext,
//     TestStartThatTimesOutStopsWhatItStarted).
//   - Stop ends deliveries and lets handlers finish (TestStopWaitsForHandlers)
//     for mq.drain_timeout, or less where the application's own stop timeout
//     would leave no time for the hooks behind it
//     (TestStopLeavesTimeForTheHooksBehindIt). Then their contexts end, Stop
//     counts them in its error, and another process takes their messages over
//     with no attempt spent. Then the queue closes, and the connection pool
//     unless it was handed in (TestDatabaseDoesNotCollideAndStaysOpen).
//
// # Health and faults
//
// [Health] tells liveness and readiness (TestHealthTellsWhatIsWrong,
// TestHealthFollowsTheDatabase). A database that is away is waited for. Tables
// that were dropped, or changed by another version, while the application runs
// end it through fx.Shutdowner, with [ExitFault] as its exit code
// (TestFaultShutsTheApplicationDown).
//
// # Caveats
//
//   - Fx takes a start for failed when its timeout has passed, and then runs no
//     stop hooks at all. The module undoes its own part; a process should exit.
//   - The Invokes of a module run before those of the application around it. A
//     handler that relies on something takes it as a parameter of its
//     constructor.
//   - -config is read from the command line without being claimed: an
//     application that parses flags declares one of that name for its own help,
//     or names its files by [WithConfigFiles].
package mqfx
