// Package operator is what the operator's tool does to a queue's tables on
// MySQL, MariaDB or Vitess: it shows what is stuck, for which tenant and why, and
// repairs it without SQL.
//
// # What it promises
//
//   - What a listing reads is bounded by what it shows and counts, not by what is
//     stored beside it, and it goes by an index.
//     [TestListingsReadWithinTheirBounds]
//   - A lease taken away fences its owner, leaves what he had claimed suspect,
//     and is free at once. [TestReleasedLeaseFencesItsOwner]
//   - A message deleted is settled to every group, also while a subscriber works
//     on it. [TestDeletedMessageIsSettledUnderALease]
//   - A purge leaves no row behind but the registrations, and loses nothing that
//     is published in other partitions, or afterwards.
//     [TestPurgeBesidePublishersAndASubscriber,
//     TestPurgeWaitsForSettlementsBeforeItLooks, TestPurgeWaitsForNoPublisher]
//   - Nothing is written to tables of another version.
//     [TestNothingIsWrittenToTablesOfAnotherVersion]
//   - Dead letters do not go where no group takes them, unless that is forced.
//     [TestRedriveIntoNothingIsRefused]
//   - Doctor finds partitions that do not get on though their subscribers are
//     alive. [TestDoctorFindsPartitionsThatFail,
//     TestDoctorFindsHandlersThatHang]
//   - Whatever is done in steps can be interrupted: what was done stays so, and
//     the error says how much. [TestRedriveManyCanBeInterrupted,
//     TestPurgeCanBeInterrupted]
//   - On Vitess every statement on the tables goes to the shard of its tenant, and
//     Doctor looks at the server of every shard. [TestVitess,
//     TestVitessDoctorLooksAtEveryShard]
//   - Identifiers are taken and shown byte for byte.
//     [TestHostileIdentifiersAreTakenExactly]
package operator
