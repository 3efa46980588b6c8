// Package memory is the queue inside one process: the embedded default, and
// what tests of a service run on. It needs no server and writes no file.
//
// # What it guarantees
//
// Everything in the contract of package backend but durability: what is stored
// ends with the [Queue] (TestConformance). It delivers through the same engine
// as the MySQL backend, and differs from it in the tables alone:
//
//   - An offset is handed out and its message stored in one step, so no message
//     can turn up behind a watermark (TestNoMessageIsSkipped).
//   - Whatever publishers, subscribers, operators and crashes do, a message is
//     there for every group until it has settled it, and not again
//     (TestEveryGroupSeesEveryMessage).
//   - Subscriptions of one Queue know nothing of each other but what the tables
//     hold. Heartbeats, leases, their expiry, their epochs and the suspects of
//     an owner that vanished are those of separate processes
//     (TestStaleOwnerWritesNothing, TestVanishedOwnerLeavesSuspects).
//   - A partition that every group has finished leaves nothing behind
//     (TestDrainedPartitionLeavesNothing, TestPurgeForgetsTheDead).
//   - Payloads and metadata are copied in and out; nobody sees what another has
//     written to his (TestQueueSharesNoMemoryWithCallers).
//
// PublishTx needs a database and returns backend.ErrNotSupported.
//
// # What it costs
//
// No goroutine runs but those of subscriptions. The cost of an operation
// follows what it returns or removes, and the logarithm of what is stored, on
// one lock for the whole queue; except that DropGroup visits every partition of
// its topic, Lag those that have messages, and clean-up those that have none
// left. 100,000 partitions of one small message take about 100 MB.
//
// # Time
//
// Every time is taken from Config.Now, time.Now if nil. Inside a
// testing/synctest bubble that is the bubble's clock, so that backoffs and
// leases of hours pass at once (TestTimeIsThatOfTheBubble).
package memory
