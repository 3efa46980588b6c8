// Package mysql keeps the queue in five tables of a MySQL-compatible database:
// MySQL 8, MariaDB 10.6 and later, or Vitess over either.
//
// # Basics
//
// [Open] makes a pool with the right settings, [Migrate] makes the tables, and
// [NewQueue] makes a [Queue], which implements [backend.Queue],
// [backend.Admin] and [backend.HealthReporter]. [Queue.Verify] checks all of it; a queue that nobody has
// verified does so before its first use. A pool that the application has opened
// by itself serves as well, as long as Verify accepts it.
//
// # Guarantees
//
// Beside those of package backend, for publishing:
//
//   - A message whose publish has returned nil is delivered to every group,
//     whatever order transactions commit in: fence.go tells how.
//     [TestFenceLosesNoMessage, TestFenceOffLosesMessages]
//   - A receipt tells the truth after deadlocks, lost connections and lost
//     answers: a row that a publish has stored in an earlier run of its
//     transaction is no duplicate.
//     [TestKilledConnectionsKeepPublishesExactlyOnce,
//     TestRepeatAfterALostAnswerRecognisesItsOwnRows]
//   - Publish is all or nothing per tenant, and no call can fail another one
//     that shares its transaction.
//     [TestPublishIsAllOrNothingPerTenant,
//     TestOneCallCannotFailTheOthersOfItsTransaction]
//   - PublishTx needs no connection that its callers could hold.
//     [TestPublishTxIsNotBlockedByCallersWhoHoldThePool]
//   - What passes [backend.Message.Validate] is stored byte for byte, and two
//     messages are one to the database only if their identities are equal in Go.
//     [TestWhatPassesValidationIsStoredByteForByte, TestIdentityIsEqualityInGo]
//   - Nothing is stored through a pool, server or schema that would lose or
//     change messages. [TestUnsuitableHandlesAreRefused, TestSchemaIsVerified]
//   - No error shows a password or a payload.
//     [TestConnectionErrorsNameTheServerWithoutThePassword,
//     TestPublishRefusesBadMessagesBeforeStoringAny]
//
// And for delivering:
//
//   - No watermark passes a message that its group has not settled, whoever
//     commits late. [TestSettlingWhilePublishersRunLosesNothing,
//     TestWatermarkWithoutItsLockLosesMessages,
//     TestWatermarkNeverPassesWhatIsNotSettled]
//   - An owner whose lease somebody else has taken over changes nothing any
//     more; epochs do not repeat. [TestStaleOwnerCannotTouchAnything,
//     TestEpochNeverRepeatsAfterTheRowWasDeleted]
//   - A lease is kept while handlers hold all of the pool.
//     [TestExhaustedPoolKeepsLeases, TestReserveIsReplenished,
//     TestReserveWorksAfterTheServerRestarted]
//   - What a vanished owner may have handed over stays suspect until it is
//     settled. [TestClaimsOfVanishedOwnersAreSuspect]
//   - A message is deleted once every registered group has passed it, and not
//     before. [TestMessageWaitsForEveryRegisteredGroup,
//     TestGroupThatJoinsLateHoldsMessagesBack,
//     TestConcurrentSettlementsOfTwoGroups]
//   - A drained partition leaves no row. [TestDrainedPartitionLeavesNoRow,
//     TestPurgeRemovesWhatTheDeadLeftBehind]
//   - The same failure is one dead letter, those of several groups stand beside
//     each other, and a redriven message goes to the group that failed it alone.
//     [TestSameDeadLetterTwiceIsOne,
//     TestDeadLettersOfTwoGroupsStandBesideEachOther,
//     TestRedriveGoesToTheGroupThatFailedOnly]
//   - A settlement waits for nobody in another partition.
//     [TestSettlementsTouchNoNeighbour,
//     TestPublisherInsideTheRunStallsOnlyItsPartition]
//   - Looking for work costs at most three key reads a partition, whatever the
//     backlog, and no statement scans. [TestDiscoverReadsThreeKeysAPartition,
//     TestEveryStatementUsesItsIndex]
//   - Lag is exact up to its bound, a lower bound beyond, and reads no more than
//     it counts. [TestLagIsExactUpToItsBound, TestLagIsALowerBoundBeyond,
//     TestLagReadsWhatItCounts]
//   - Health tells a server that is away from one that is there, in the time it
//     is given. [TestHealthWhenTheServerStops, TestHealthEndsWithItsContext]
//
// # Caveats
//
//   - A repeated publish is recognised for as long as the first one's row is
//     stored. A publish whose answer was lost, and that all groups have settled
//     before it was repeated, is delivered a second time.
//   - While a caller of PublishTx keeps his transaction open, the watermarks of
//     the partitions he wrote stand still, and a publish of the same ids waits.
//   - On Vitess apply [VitessSchema] and [VSchema], set
//     Config.ExternalSchema, and open the pool with [ServerIsolation] where
//     vtgate refuses to set the isolation level: docs/vitess.md.
//
// # Files
//
//	queue.go subscribe.go config.go   the Queue, its life and its settings
//	open.go verify.go schema.go       before the first message
//	publish.go lane.go batch.go       Publish: group commit, rows, receipts
//	prepared.go                       the INSERT of many rows
//	fence.go                          why no message is skipped
//	publishtx.go                      Publish inside the caller's transaction
//	reserve.go                        connections for what must not wait
//	store*.go                         the delivery engine's store
//	admin.go redrive.go               what operators do
//	tx.go errors.go metrics.go        running transactions, and again
//	statements.go query.go            all SQL, and how lists are put in
//
// Locks in the process are leaves: none is held over a statement but the places
// of reserve.go. Locks in the database are taken in the order of the primary
// key, by one tenant's transaction at a time.
package mysql
