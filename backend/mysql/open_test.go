package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/internal/testdb"
)

func TestOpenRefusesWhatWouldBreakTheQueue(t *testing.T) {
	const server = "user:s3cret@tcp(db.example:3306)/mq"
	for dsn, want := range map[string]string{
		"":                                  "dsn",
		"user:s3cret@tcp(db.example:3306)":  "missing the slash",
		"user:s3cret@tcp(db.example:3306)/": "dsn user@db.example:3306/: names no database",
		"user:s3cret@tcp(db.example:3306)/?parseTime=true":   "names no database",
		"user:s3/cret@tcp(db.example:3306)":                  "cannot be read",
		"user:s3/cret?@tcp(db.example:3306)":                 "cannot be read",
		"user:s3/cret":                                       "",
		"user:s3cret/mq":                                     "cannot be read",
		server + "?parseTime=false":                          `dsn parameter parseTime "false": the queue needs it on; remove it`,
		server + "?clientFoundRows=false":                    "clientFoundRows",
		server + "?interpolateParams=0":                      "interpolateParams",
		server + "?rejectReadOnly=false":                     "rejectReadOnly",
		server + "?autocommit=0":                             "autocommit",
		server + "?loc=Local":                                `loc "Local"`,
		server + "?loc=Europe%2FBerlin":                      `loc "Europe/Berlin"`,
		server + "?timeTruncate=1s":                          "timeTruncate",
		server + "?charset=latin1":                           "charset",
		server + "?collation=latin1_swedish_ci":              "collation",
		server + "?tx_isolation=%27READ-COMMITTED%27":        "tx_isolation",
		server + "?transaction_isolation=%22SERIALIZABLE%22": "transaction_isolation",
		server + "?sql_mode=%27%27":                          "STRICT_TRANS_TABLES",
		server + "?strict=true":                              "strict",
		server + "?parseTime=maybe":                          "invalid bool value: maybe",
		server + "?tls=unknown":                              "unknown config name",
	} {
		_, err := Open(dsn)
		if _, ok := errors.AsType[*backend.FieldError](err); (!ok || !strings.Contains(err.Error(), want)) && want != "" {
			t.Errorf("%s: got %v, want %q", dsn, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "cret")) {
			t.Errorf("%s: the error shows the password: %v", dsn, err)
		}
	}
}

func TestOpenAcceptsCommonDSNs(t *testing.T) {
	for _, params := range []string{
		"", "?parseTime=true", "?charset=utf8mb4&parseTime=True&loc=UTC", "?multiStatements=true&timeout=3s",
		"?collation=utf8mb4_general_ci", "?transaction_isolation=%27REPEATABLE-READ%27", "?sql_mode=%27TRADITIONAL%27",
	} {
		db, err := Open("user:pass@tcp(db.example:3306)/mq" + params)
		if err != nil {
			t.Errorf("%s: %v", params, err)
			continue
		}
		if got := db.Stats().MaxOpenConnections; got != DefaultMaxOpenConns {
			t.Errorf("%s: %d connections at most", params, got)
		}
		_ = db.Close()
	}
}

// Every parameter that Open sets, leaves or takes from the DSN, as a connection
// shows it. Those that it refuses are in
// TestOpenRefusesWhatWouldBreakTheQueue.
func TestConnectionsShowEveryParameter(t *testing.T) {
	dsn := testdb.DSN(t)
	mustExec(t, openDB(t, dsn), "CREATE TABLE p (id INT PRIMARY KEY, n INT) ENGINE = InnoDB")
	mustExec(t, openDB(t, dsn), "INSERT INTO p VALUES (1, 1)")
	isolation := "tx_isolation" // MariaDB before 11.1
	if s, err := readSettings(t.Context(), openDB(t, dsn)); err != nil {
		t.Fatal(err)
	} else if _, ok := s["transaction_isolation"]; ok {
		isolation = "transaction_isolation"
	}
	noon := time.Date(2024, 6, 1, 12, 0, 0, 0, time.FixedZone("east", 2*60*60))
	variable := func(name string) func(*sql.Conn) (string, error) {
		return func(conn *sql.Conn) (v string, err error) {
			return v, conn.QueryRowContext(t.Context(), "SELECT @@SESSION."+name).Scan(&v)
		}
	}
	slow := func(conn *sql.Conn) (string, error) {
		_, err := conn.ExecContext(t.Context(), "SELECT SLEEP(10)")
		return fmt.Sprint(classify(err) == classReconnect), nil
	}

	for _, c := range []struct {
		name, params string
		show         func(*sql.Conn) (string, error)
		want         string
	}{
		{"isolation", "", variable(isolation), "REPEATABLE-READ"},
		{"isolation given", isolation + "=%27repeatable-read%27", variable(isolation), "REPEATABLE-READ"},
		{"autocommit", "", variable("autocommit"), "1"},
		{"autocommit given", "autocommit=1", variable("autocommit"), "1"},
		{"sql_mode", "", func(conn *sql.Conn) (string, error) {
			mode, err := variable("sql_mode")(conn)
			return fmt.Sprint(isStrict(mode)), err
		}, "true"},
		{"sql_mode given", "sql_mode=%27STRICT_ALL_TABLES%27", variable("sql_mode"), "STRICT_ALL_TABLES"},
		{"lock wait", "", variable(lockWait), lockWaitSeconds},
		{"lock wait given", lockWait + "=7", variable(lockWait), "7"},
		{"charset", "", variable("character_set_client"), "utf8mb4"},
		{"charset given", "charset=utf8mb4", variable("character_set_client"), "utf8mb4"},
		{"charset for results", "", variable("character_set_results"), "utf8mb4"},
		{"collation", "", variable("collation_connection"), "utf8mb4_bin"},
		{"collation given", "collation=utf8mb4_general_ci", variable("collation_connection"), "utf8mb4_general_ci"},
		{"charset and collation given", "charset=utf8mb4&collation=utf8mb4_unicode_ci", variable("collation_connection"), "utf8mb4_unicode_ci"},
		{"parseTime", "", func(conn *sql.Conn) (string, error) {
			var at time.Time
			err := conn.QueryRowContext(t.Context(), "SELECT TIMESTAMP'2024-06-01 10:00:00'").Scan(&at)
			return fmt.Sprint(at.Equal(noon), at.Location()), err
		}, "true UTC"},
		{"loc", "", func(conn *sql.Conn) (text string, err error) {
			return text, conn.QueryRowContext(t.Context(), "SELECT ?", noon).Scan(&text)
		}, "2024-06-01 10:00:00"},
		{"timeTruncate", "", func(conn *sql.Conn) (text string, err error) {
			return text, conn.QueryRowContext(t.Context(), "SELECT ?", noon.Add(time.Microsecond)).Scan(&text)
		}, "2024-06-01 10:00:00.000001"},
		{"clientFoundRows", "", func(conn *sql.Conn) (string, error) {
			result, err := conn.ExecContext(t.Context(), "UPDATE p SET n = 1 WHERE id = 1")
			if err != nil {
				return "", err
			}
			rows, err := result.RowsAffected()
			return fmt.Sprint(rows), err
		}, "1"},
		{"interpolateParams", "", func(conn *sql.Conn) (string, error) {
			var got int
			if err := conn.QueryRowContext(t.Context(), "SELECT ?", 1).Scan(&got); err != nil {
				return "", err
			}
			var name, n string
			err := conn.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Com_stmt_prepare'").Scan(&name, &n)
			return n, err
		}, "0"},
		{"rejectReadOnly", "", func(conn *sql.Conn) (string, error) {
			if _, err := conn.ExecContext(t.Context(), "SET SESSION TRANSACTION READ ONLY"); err != nil {
				return "", err
			}
			_, err := conn.ExecContext(t.Context(), "UPDATE p SET n = 2")
			return fmt.Sprint(errors.Is(err, driver.ErrBadConn)), nil
		}, "true"},
		{"maxAllowedPacket", "", func(conn *sql.Conn) (string, error) {
			_, err := conn.ExecContext(t.Context(), "DO LENGTH('"+strings.Repeat("x", 2<<20)+"')")
			return fmt.Sprint(err), nil
		}, "<nil>"},
		{"maxAllowedPacket given", "maxAllowedPacket=1048576", func(conn *sql.Conn) (string, error) {
			_, err := conn.ExecContext(t.Context(), "DO LENGTH('"+strings.Repeat("x", 2<<20)+"')")
			return fmt.Sprint(errors.Is(err, mysql.ErrPktTooLarge)), nil
		}, "true"},
		{"readTimeout given", "readTimeout=50ms", slow, "true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := openDB(t, dsn+"?"+c.params).Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if got, err := c.show(conn); err != nil || got != c.want {
				t.Errorf("got %s (%v), want %s", got, err, c.want)
			}
		})
	}
}

// What no connection shows in less than a minute.
func TestTimeoutsAndPacketUnlessGiven(t *testing.T) {
	const server = "user:pass@tcp(db.example:3306)/mq"
	for params, want := range map[string][4]any{
		"": {DefaultConnectTimeout, DefaultReadTimeout, DefaultWriteTimeout, 0},
		"?timeout=1s&readTimeout=2s&writeTimeout=3s&maxAllowedPacket=4": {time.Second, 2 * time.Second, 3 * time.Second, 4},
	} {
		cfg, err := openOptions{}.driverConfig(server + params)
		if err != nil {
			t.Fatal(err)
		}
		if got := [4]any{cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout, cfg.MaxAllowedPacket}; got != want {
			t.Errorf("%q: got %v, want %v", params, got, want)
		}
	}
}

// The server's own packet size counts where the DSN has none, not the driver's
// 64 MiB.
func TestPacketSizeIsTheServers(t *testing.T) {
	server := testdb.StartServer(t, "max-allowed-packet=1M")
	conn, err := openDB(t, server.Database(t)).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "DO LENGTH('"+strings.Repeat("x", 2<<20)+"')"); !errors.Is(err, mysql.ErrPktTooLarge) {
		t.Errorf("got %v", err)
	}
}

// Every connection gets its settings when it opens, whatever the server's
// defaults: nothing is left to the first statement.
func TestConnectionsOpenWithTheQueuesSettings(t *testing.T) {
	server := testdb.StartServer(t, "transaction-isolation=READ-COMMITTED", "character-set-server=latin1")
	db := openDB(t, server.Database(t))
	var conns []*sql.Conn
	for range 3 {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		s, err := readSettings(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.check(Config{}.withDefaults()); err != nil {
			t.Error(err)
		}
	}
	for _, conn := range conns {
		conn.Close()
	}

	// Unless the server is to decide.
	left := openDB(t, server.Database(t), ServerIsolation())
	s, err := readSettings(t.Context(), left)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.check(Config{}.withDefaults()); !errors.Is(err, ErrIsolation) {
		t.Errorf("got %v", err)
	}
}

func TestConnectionErrorsNameTheServerWithoutThePassword(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := listener.Addr().String()
	listener.Close()

	cfg, err := mysql.ParseDSN(testdb.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	wrong, missing := cfg.Clone(), cfg.Clone()
	wrong.Passwd = "s3cret"
	missing.DBName = "mq_missing"
	stranger := cfg.Clone()
	stranger.User, stranger.Passwd = "mq_stranger", ""
	admin := openDB(t, cfg.FormatDSN())
	mustExec(t, admin, "CREATE USER IF NOT EXISTS mq_stranger")
	t.Cleanup(func() { _, _ = admin.ExecContext(context.Background(), "DROP USER mq_stranger") })
	for name, c := range map[string]struct{ dsn, want string }{
		"unreachable":      {"user:s3cret@tcp(" + nobody + ")/mq", "connect to user@" + nobody + "/mq: dial tcp " + nobody},
		"wrong password":   {wrong.FormatDSN(), "connect to " + cfg.User + "@" + cfg.Addr + "/" + cfg.DBName + ": Error 1045"},
		"its remedy":       {wrong.FormatDSN(), "check the DSN's user and password, and that the user may come from this host"},
		"missing database": {missing.FormatDSN(), "mq_missing"},
		"another remedy":   {missing.FormatDSN(), "create it: CREATE DATABASE `mq_missing` CHARACTER SET utf8mb4"},
		"no right to it":   {stranger.FormatDSN(), "GRANT ALL ON `" + cfg.DBName + "`.* TO"},
	} {
		t.Run(name, func(t *testing.T) {
			q := newTestQueue(t, Params{DB: openDB(t, c.dsn)})
			_, publishErr := q.Publish(t.Context(), message("a", "t", "k", 1))
			for _, err := range []error{q.Verify(t.Context()), publishErr} {
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "verify the queue's database") {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), cfg.Passwd) {
					t.Errorf("the error shows the password: %v", err)
				}
			}
		})
	}
}

func TestDriverSpeaksToTheLog(t *testing.T) {
	core, logged := observer.New(zap.WarnLevel)
	dsn := testdb.DSN(t)
	db := openDB(t, dsn, LogTo(zap.New(core)))
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	id := queryInt(t, conn, "SELECT CONNECTION_ID()")
	mustExec(t, openDB(t, dsn), fmt.Sprintf("KILL CONNECTION %d", id))
	if _, err := conn.ExecContext(t.Context(), "DO 1"); classify(err) != classReconnect {
		t.Errorf("got %v", err)
	}
	if logged.FilterMessage("database connection").Len() == 0 {
		t.Error("nothing was logged")
	}
}

func TestConnectEndsWithItsContext(t *testing.T) {
	// A server that accepts and says nothing.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := listener.Accept()
		cancel()
		if err == nil {
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 1))
		}
	}()
	q := newTestQueue(t, Params{DB: openDB(t, "u@tcp("+listener.Addr().String()+")/mq")})
	if err := q.Verify(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
