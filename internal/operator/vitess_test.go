//go:build vitess

package operator

import (
	"database/sql"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/internal/vitesstest"
	"github.com/tenantmq/tenantmq/tenants"
)

// suite are the tests that run on Vitess. With the tag, all of the package's do: these are those that should pass.
var suite = []func(*testing.T){
	TestRedriveIntoNothingIsRefused,
	TestCheckRedriveTellsWhereItGoes,
	TestDoctorFindsNothingWrongWhereNothingIs,
	TestDoctorFindsStuckWork,
	TestDoctorBoundsWhatItSays,
	TestDoctorNamesWhoHasATransactionOpen,
	TestEstimateIsWhatWouldBeDone,
	TestDoctorFindsPartitionsThatFail,
	TestDoctorFindsHandlersThatHang,
	TestDoctorBoundsThePartitionsItLooksAt,
	TestDoctorFindsWhatWaitsInVain,
	TestHostileIdentifiersAreTakenExactly,
	TestTopicsCountWhatIsStored,
	TestCountsAreExactUpToTheirBound,
	TestGroupsShowWhoIsBehind,
	TestLagIsThatOfTheQueue,
	TestOffsetsShowWhatIsPendingAndWhoHasIt,
	TestLeasesShowTheirStates,
	TestSubscribersShowWhoIsAlive,
	TestDeadLettersAreFoundByTheirRows,
	TestPagesAreTheWholeListing,
	TestSubscribersShowTheLeasesOfOwnersWithoutAHeartbeat,
	TestMessageShowsWhereEveryGroupStands,
	TestMessageShowsWhoMayBeAtIt,
	TestDeleteMessageLeavesNothingOfIt,
	TestDeletedMessageIsSettledUnderALease,
	TestPresenceTellsWhatThereIs,
	TestPurgeLeavesNoRow,
	TestPurgeOfOnePartition,
	TestPurgeKeepsWhatComesInMeanwhile,
	TestPurgeCanBeInterrupted,
	TestPurgeBesidePublishersAndASubscriber,
	TestPurgeWaitsForNoPublisher,
	TestPurgeWaitsForSettlementsBeforeItLooks,
	TestPurgeKeepsOthersOutUntilItCommits,
	TestListsDeleteWhatTheyName,
	TestQuote,
	TestQuotedNamesPassAShell,
	TestCommandsLeaveOutWhatIsNotNamed,
	TestRedriveManyGoesByAge,
	TestRedriveManyOfOneGroup,
	TestRedriveManyCanBeInterrupted,
	TestRedriveManyKeepsItsPace,
	TestRedriveManyEndsThoughMessagesFailAgain,
	TestRedriveManyRefusesBadOptions,
	TestReleasedLeaseFencesItsOwner,
	TestReleasedLeaseLeavesWhatWasClaimedSuspect,
	TestReleaseOfWhatNobodyHolds,
	TestReleaseStaleSparesTheOthers,
	TestReleaseStaleSparesWhatWasRenewed,
	TestReleaseStaleSaysHowFarItCame,
	TestConflictsAreToldFromOtherErrors,
}

// elsewhere are the tests that cannot hold on Vitess, with the reason.
var elsewhere = map[string]string{
	"TestListingsReadWithinTheirBounds":            "reads the counters of one session of a server, which vtgate has none of",
	"TestNothingIsWrittenToTablesOfAnotherVersion": "a sharded keyspace records no version",
	"TestDoctorSaysWhatCuresTheSchema":             "is about Migrate and the version table, which a sharded keyspace has none of",
	"TestDoctorOfWhatDoesNotWork":                  "starts a read-only server with other settings",
	"TestDoctorFindsAUserWhoMayNotWrite":           "makes a user of the server, and vtgate has its own",
	"TestProbesOfPrivilegesLockNothing":            "Doctor sends none through vtgate",
}

// sent has heard what operators and their queues send.
var sent vitesstest.Sent

// newDatabase is the cluster, with empty tables, and has the shard of the tenant first.
func newDatabase(t testing.TB, home tenants.ID) database {
	t.Helper()
	d := database{dsn: os.Getenv(vitesstest.EnvDSN), config: mysql.Config{ExternalSchema: true}}
	if d.dsn == "" {
		t.Fatalf("%s names no cluster; make test-vitess starts one", vitesstest.EnvDSN)
	}
	cfg, err := driver.ParseDSN(d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	// As by mysql.Open.
	cfg.InterpolateParams, cfg.ClientFoundRows, cfg.ParseTime, cfg.Collation = true, true, true, "utf8mb4_bin"
	connector, err := driver.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d.pool = openPool(t, func() (*sql.DB, error) { return sql.OpenDB(sent.Connector(connector)), nil })
	gate := openPool(t, func() (*sql.DB, error) { return mysql.Open(d.dsn, mysql.ServerIsolation()) })
	for _, table := range []string{"queue_messages", "queue_delivery_state", "queue_offsets", "queue_partition_leases", "queue_subscriber_heartbeats"} {
		if _, err := gate.ExecContext(t.Context(), "TRUNCATE TABLE "+table); err != nil {
			t.Fatal(err)
		}
	}
	const probe = "queue_subscriber_heartbeats WHERE tenant = ? AND consumer_group = 'probe'"
	if _, err := gate.ExecContext(t.Context(), "INSERT INTO queue_subscriber_heartbeats VALUES (?, 'probe', '', '', 0, 0, 0)", string(home)); err != nil {
		t.Fatal(err)
	}
	shards, err := read(t.Context(), gate, newQuery("SHOW VITESS_SHARDS"), single[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, shard := range shards {
		cfg.DBName = strings.Replace(shard, "/", ":", 1)
		direct := openPool(t, func() (*sql.DB, error) { return mysql.Open(cfg.FormatDSN(), mysql.ServerIsolation()) })
		found, _, err := readOne(t.Context(), direct, newQuery("SELECT COUNT(*) FROM "+probe, string(home)), single[int])
		if err != nil {
			t.Fatal(err)
		}
		d.tables = slices.Insert(d.tables, len(d.tables)*(1-found), direct)
	}
	if _, err := gate.ExecContext(t.Context(), "DELETE FROM "+probe, string(home)); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestVitess(t *testing.T) {
	listed := make(map[string]bool)
	for _, test := range suite {
		_, name, _ := strings.Cut(filepath.Ext(runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()), ".")
		listed[name] = true
		t.Run(strings.TrimPrefix(name, "Test"), test)
	}
	t.Run("EveryTestIsListed", func(t *testing.T) { checkListed(t, listed) })
	t.Run("EveryStatementGoesToItsShards", checkRoutes)
}

// checkListed fails unless every test of the package runs here or has a reason not to.
func checkListed(t *testing.T, listed map[string]bool) {
	paths, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "Test") || f.Name.Name == "TestMain" || strings.HasPrefix(f.Name.Name, "TestVitess") {
				continue
			}
			n++
			if name := f.Name.Name; listed[name] == (elsewhere[name] != "") {
				t.Errorf("%s: in the suite %v, and the reason not to be %q", name, listed[name], elsewhere[name])
			}
		}
	}
	if n != len(suite)+len(elsewhere) {
		t.Errorf("%d tests, of which %d are in the suite and %d are not", n, len(suite), len(elsewhere))
	}
}

// checkRoutes looks at what the suite has sent. What lists rows is no constant.
func checkRoutes(t *testing.T) {
	statements := vitesstest.Statements(t, "statements.go")
	for _, list := range []rowList{messageList, stateList, markList, takenList, leaseList} {
		text := list.remove(false, []rowKey{{"k", 1}}).text.String()
		statements[text], _, _ = strings.Cut(text, ") LIMIT")
	}
	sent.Check(t, openPool(t, func() (*sql.DB, error) {
		return mysql.Open(os.Getenv(vitesstest.EnvDSN), mysql.ServerIsolation())
	}), vitesstest.Expected{
		Statements: statements,
		Never: map[string]string{
			"stmtUser":         "no privileges are looked at",
			"stmtHistoryMySQL": "for a server that does not answer stmtHistory",
			"stmtReplicaOld":   "for a server that does not know stmtReplica",
		},
		// Those of the server go to one shard after the other.
		Anywhere: []string{
			"SHOW ", "USE ", "EXPLAIN ", "SAVEPOINT ", "ROLLBACK ", "RELEASE ", stmtDatabase, stmtTransactions, stmtSizes,
			"SELECT MAX(version_id) FROM mq_schema_version", // which is not there
		},
	})
}

// vtgate alone would choose one of the servers.
func TestVitessDoctorLooksAtEveryShard(t *testing.T) {
	f := newFixture(t)
	f.load(acme, orders, 50, 2_000)
	findings := f.Doctor(f.ctx, []tenants.ID{acme})
	shards := must[[]string](f)(f.shards(f.ctx))
	f.want("shards", len(f.tables), len(shards))
	for _, check := range []string{"server", "isolation", "sql_mode", "packet", "writes", "clock", "replication", "history", "tables", "plans"} {
		for _, shard := range shards {
			if !slices.ContainsFunc(by(findings, check), func(finding Finding) bool { return strings.HasPrefix(finding.Found, "shard "+shard+": ") }) {
				t.Errorf("%s says nothing of %s: %+v", check, shard, by(findings, check))
			}
		}
	}
	// Connections that led to one shard are gone from the pool.
	for range 20 {
		conn, err := f.db.Conn(f.ctx)
		f.check(err)
		defer conn.Close()
		database, _, err := readOne(f.ctx, conn, newQuery(stmtDatabase), single[string])
		f.check(err)
		f.want("database", vitesstest.Keyspace, database)
	}
}
