// Package memory is the queue inside one process: the embedded default, and
// what tests of a service run on. It needs no server and writes no file.
//
// # What it guarantees
//
// Everything in the contract of package backend but durability: what is stored
// ends with the [Queue]. It delivers through the same engine as the MySQL
// backend, and differs from it in the tables alone:
//
//   - An offset is handed out and its message stored in one step, so no message
//     can turn up behind a watermark (TestNoMessageIsSkipped).
//   - Subscriptions of one Queue know nothing of each other but what the tables
//     hold. Heartbeats, leases, their expiry, their epochs and the suspects of
//     an owner that vanished are those of separate processes
//     (TestStaleOwnerWritesNothing, TestVanishedOwnerLeavesSuspects).
//   - A partition that every group has finished leaves nothing behind
//     (TestDrainedPartitionLeavesNothing, TestPurgeForgetsTheDead).
//   - No goroutine runs but those of subscriptions. The cost of every operation
//     follows what it returns or removes, and the logarithm of what is stored;
//     except DropGroup, which visits every partition of its topic, and Purge,
//     which visits those without messages.
//
// PublishTx needs a database and returns backend.ErrNotSupported.
//
// # Time
//
// Every time is taken from Config.Now, time.Now if nil. Inside a
// testing/synctest bubble that is the bubble's clock; nothing has to be set.
package memory
