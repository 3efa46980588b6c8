package mysql

import (
	"context"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
)

// Settings of a pool made by [Open]. Change them on the pool; [sql.DB] has the
// methods.
const (
	// DefaultMaxOpenConns is also the number of connections kept open idle.
	DefaultMaxOpenConns    = 32
	DefaultConnMaxLifetime = 5 * time.Minute
)

// Timeouts of a pool made by [Open], unless the DSN has others.
const (
	DefaultConnectTimeout = 10 * time.Second // timeout
	DefaultReadTimeout    = 60 * time.Second // readTimeout, above the server's innodb_lock_wait_timeout of 50 s
	DefaultWriteTimeout   = 30 * time.Second // writeTimeout
)

// OpenOption changes what [Open] does.
type OpenOption func(*openOptions)

type openOptions struct {
	serverIsolation bool
	log             *zap.Logger
	caFile          string
}

// ServerIsolation leaves the isolation level as the server sets it, for a
// server that refuses to have it set (vtgate over MariaDB). Verify checks it
// all the same.
func ServerIsolation() OpenOption {
	return func(o *openOptions) { o.serverIsolation = true }
}

// LogTo logs what the driver has to say about broken connections, whose errors
// only say that they are. Without it the driver writes to standard error.
func LogTo(log *zap.Logger) OpenOption {
	return func(o *openOptions) { o.log = log }
}

// CAFile checks the server's certificate against those in a file, PEM encoded,
// in place of the system's. The file is read once, by Open. The DSN must have
// tls=true: with anything else nothing would be checked, or something else.
func CAFile(path string) OpenOption {
	return func(o *openOptions) { o.caFile = path }
}

// Open makes a pool with the settings the queue needs, from a DSN of
// github.com/go-sql-driver/mysql with a database name. It connects to nothing.
//
// Connections ask for REPEATABLE READ when they open, speak utf8mb4 compared
// by code point, and are dropped when they lead to a read-only server. A DSN
// that says otherwise is refused with a [backend.FieldError] that names the
// key. Lock waits end after 5 s unless the DSN has an innodb_lock_wait_timeout.
// No error, neither of Open nor of the pool, shows the password; they name
// the server as user@host:port/database.
func Open(dsn string, opts ...OpenOption) (*sql.DB, error) {
	var o openOptions
	for _, opt := range opts {
		opt(&o)
	}
	cfg, err := o.driverConfig(dsn)
	if err != nil {
		return nil, err
	}
	inner, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, &backend.FieldError{Field: "dsn", Value: target(cfg), Rule: err.Error()}
	}
	db := sql.OpenDB(&connector{Connector: inner, target: target(cfg), database: cfg.DBName, isolate: !o.serverIsolation})
	db.SetMaxOpenConns(DefaultMaxOpenConns)
	db.SetMaxIdleConns(DefaultMaxOpenConns)
	db.SetConnMaxLifetime(DefaultConnMaxLifetime)
	return db, nil
}

// driverConfig is what the driver is to do for a DSN.
func (o openOptions) driverConfig(dsn string) (*mysql.Config, error) {
	given, err := dsnParams(dsn)
	if err != nil {
		return nil, err
	}
	cfg, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	cfg.InterpolateParams = true // one round trip a statement
	cfg.ClientFoundRows = true
	cfg.ParseTime = true
	cfg.RejectReadOnly = true
	cfg.Loc = time.UTC
	setDefault(&cfg.Collation, "utf8mb4_bin")
	if _, ok := given["maxAllowedPacket"]; !ok && !o.serverIsolation {
		cfg.MaxAllowedPacket = 0 // ask the server; vtgate would ask some shard, which may be away
	}
	setDefault(&cfg.Timeout, DefaultConnectTimeout)
	setDefault(&cfg.ReadTimeout, DefaultReadTimeout)
	setDefault(&cfg.WriteTimeout, DefaultWriteTimeout)
	if _, ok := given[lockWait]; !ok && !o.serverIsolation {
		if cfg.Params == nil {
			cfg.Params = make(map[string]string)
		}
		cfg.Params[lockWait] = lockWaitSeconds
	}
	if o.log != nil {
		cfg.Logger = driverLog{o.log}
	}
	if o.caFile != "" {
		if err := trust(cfg, o.caFile); err != nil {
			return nil, &backend.FieldError{Field: "CA file", Value: fmt.Sprintf("%q", o.caFile), Rule: err.Error()}
		}
	}
	return cfg, nil
}

// trust makes the certificates in a file the only ones that may vouch for the
// server.
func trust(cfg *mysql.Config, path string) error {
	if cfg.TLSConfig != "true" || cfg.AllowFallbackToPlaintext {
		return errors.New("the DSN does not have the server's certificate checked; " +
			"add tls=true to it in place of any other tls and of allowFallbackToPlaintext")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%w; want a file of PEM certificates", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return errors.New("holds no certificate; want PEM, as between -----BEGIN CERTIFICATE----- and -----END CERTIFICATE-----")
	}
	cfg.TLS.RootCAs = pool
	return nil
}

// A lock that somebody holds for longer than a fraction of a lease is waited for
// in turns, so that what is locked meanwhile is free in between.
const (
	lockWait        = "innodb_lock_wait_timeout"
	lockWaitSeconds = "5"
)

// connector makes connections of [preparing], and asks for the isolation level on
// each. The statement is the same on every server, while the variable is not:
// transaction_isolation on MySQL and MariaDB from 11.1, tx_isolation on MariaDB
// before.
type connector struct {
	driver.Connector
	target   string
	database string
	isolate  bool
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w%s", c.target, err, c.remedy(err))
	}
	if !c.isolate {
		return &preparing{driverConn: conn.(driverConn)}, nil
	}
	if _, err := conn.(driver.ExecerContext).ExecContext(ctx, stmtIsolation, nil); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("ask %s for REPEATABLE READ: %w", c.target, err)
	}
	return &preparing{driverConn: conn.(driverConn)}, nil
}

// remedy says what to do about a refusal that does not.
func (c *connector) remedy(err error) string {
	name := "`" + strings.ReplaceAll(c.database, "`", "``") + "`"
	switch {
	case hasNumber(err, errAccessDenied):
		return "; check the DSN's user and password, and that the user may come from this host: MySQL keeps an account for each 'user'@'host'"
	case hasNumber(err, errDBAccessDenied):
		return fmt.Sprintf("; create the database if it is not there, and grant the user what the queue needs: GRANT ALL ON %s.* TO ...", name)
	case hasNumber(err, errBadDB) && strings.Contains(err.Error(), "VT05003"):
		return "; on Vitess the database of the DSN is the keyspace"
	case hasNumber(err, errBadDB):
		return fmt.Sprintf("; create it: CREATE DATABASE %s CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", name)
	}
	return ""
}

// Refusals of a new connection, by their number.
const (
	errDBAccessDenied = 1044
	errAccessDenied   = 1045
	errBadDB          = 1049
)

// driverLog implements [mysql.Logger].
type driverLog struct{ log *zap.Logger }

func (l driverLog) Print(v ...any) {
	l.log.Warn("database connection", zap.String("driver", fmt.Sprint(v...)))
}

// target names a server without its password.
func target(cfg *mysql.Config) string {
	return fmt.Sprintf("%s@%s/%s", cfg.User, cfg.Addr, cfg.DBName)
}

func parseDSN(dsn string) (*mysql.Config, error) {
	if dsn == "" {
		return nil, &backend.FieldError{Field: "dsn", Rule: "must not be empty; " + wantDSN}
	}
	cfg, err := mysql.ParseDSN(dsn)
	switch {
	case err == nil && strings.Contains(cfg.DBName, "@"):
		return nil, errUnreadableDSN
	case err == nil && cfg.DBName == "":
		return nil, &backend.FieldError{Field: "dsn", Value: target(cfg), Rule: "names no database; " + wantDSN}
	case err == nil:
		return cfg, nil
	}
	text, constant := strings.CutPrefix(err.Error(), "invalid DSN: ")
	if !constant && (strings.Contains(dsnTail(dsn), "@") || strings.HasPrefix(text, "default addr for network")) {
		return nil, errUnreadableDSN
	}
	return nil, &backend.FieldError{Field: "dsn", Rule: text + "; " + wantDSN}
}

const wantDSN = "want user:password@tcp(host:port)/database"

// errUnreadableDSN answers a DSN whose last slash seems to belong to its
// password, or that has no @, so that the driver takes user and password for a
// network: nothing of it can be shown.
var errUnreadableDSN = &backend.FieldError{Field: "dsn", Rule: "cannot be read; " + wantDSN}

// dsnTail is what the driver takes for database and parameters.
func dsnTail(dsn string) string { return dsn[strings.LastIndexByte(dsn, '/')+1:] }

// dsnParams returns the parameters of a DSN as they are written, after
// refusing those that would break the queue.
func dsnParams(dsn string) (map[string]string, error) {
	given := make(map[string]string)
	_, list, _ := strings.Cut(dsnTail(dsn), "?")
	if strings.Contains(list, "@tcp(") || strings.Contains(list, "@unix(") {
		return nil, errUnreadableDSN
	}
	for pair := range strings.SplitSeq(list, "&") {
		key, value, found := strings.Cut(pair, "=")
		if !found {
			continue
		}
		if unescaped, err := url.QueryUnescape(value); err == nil {
			value = unescaped
		}
		given[key] = value
		if rule := refuseParam(key, value); rule != "" {
			return nil, &backend.FieldError{Field: "dsn parameter " + key, Value: fmt.Sprintf("%q", value), Rule: rule + "; remove it"}
		}
	}
	return given, nil
}

// refuseParam says why a DSN parameter would break the queue, "" if it would
// not.
func refuseParam(key, value string) string {
	word := strings.ToLower(strings.Trim(value, `'"`))
	off := word == "false" || word == "0" || word == "off"
	switch key {
	case "parseTime", "clientFoundRows", "interpolateParams", "rejectReadOnly", "autocommit":
		if off {
			return "the queue needs it on"
		}
	case "loc":
		if value != "UTC" {
			return "the queue keeps all times in UTC"
		}
	case "timeTruncate":
		return "nothing may cut times short"
	case "strict": // the driver panics
		return "the driver no longer knows it"
	case "charset":
		if word != "utf8mb4" {
			return "identifiers are utf8mb4"
		}
	case "collation":
		if !strings.HasPrefix(word, "utf8mb4_") {
			return "identifiers are utf8mb4"
		}
	case "transaction_isolation", "tx_isolation":
		if strings.ReplaceAll(word, " ", "-") != "repeatable-read" {
			return "the queue loses messages below REPEATABLE READ and deadlocks above"
		}
	case "sql_mode":
		if !isStrict(word) {
			return "without STRICT_TRANS_TABLES the server would cut values short instead of refusing them"
		}
	}
	return ""
}

// isStrict tells whether an sql_mode refuses values that do not fit.
func isStrict(mode string) bool {
	mode = strings.ToUpper(mode)
	return strings.Contains(mode, "STRICT_TRANS_TABLES") || strings.Contains(mode, "STRICT_ALL_TABLES") ||
		strings.Contains(mode, "TRADITIONAL")
}
