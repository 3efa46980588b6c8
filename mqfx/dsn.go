package mqfx

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"

	driver "github.com/go-sql-driver/mysql"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
)

// DSN is a data source name of the MySQL driver,
// user:password@tcp(host:3306)/database?param=value. However it is printed,
// logged or marshalled it shows as user@host:3306/database; string(dsn) is the
// one way to the whole.
type DSN string

// unreadable stands for a DSN that the driver cannot read.
const unreadable = "(unreadable DSN)"

// String never shows the password or the parameters. What the driver cannot
// read is not shown at all, since nobody can say which part is the password.
func (d DSN) String() string {
	if d == "" {
		return ""
	}
	path := strings.LastIndexByte(string(d), '/')
	if path < 0 {
		return unreadable
	}
	bare := string(d)
	if params := strings.IndexByte(bare[path:], '?'); params >= 0 {
		bare = bare[:path+params]
	}
	cfg, err := driver.ParseDSN(bare)
	if err != nil || strings.Contains(cfg.Net, ":") || strings.Contains(cfg.DBName, "@") {
		return unreadable // a forgotten @ or / makes parts of the password the network or the database
	}
	addr := cfg.Addr + "/" + cfg.DBName
	if cfg.User == "" {
		return addr
	}
	return cfg.User + "@" + addr
}

// Format implements [fmt.Formatter]: the wrong verb must not reveal more.
func (d DSN) Format(f fmt.State, verb rune) {
	if verb == 'q' || verb == 'v' && f.Flag('#') {
		fmt.Fprintf(f, "%q", d.String())
		return
	}
	_, _ = io.WriteString(f, d.String())
}

// MarshalText implements [encoding.TextMarshaler], for JSON, YAML and
// structured logs.
func (d DSN) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// open makes a pool; its errors name the key.
func (d DSN) open(options ...mysql.OpenOption) (*sql.DB, error) {
	if d.String() == unreadable { // nothing that was made of it can be shown
		return nil, &backend.FieldError{Field: "mq.dsn", Rule: "cannot be read; want user:password@tcp(host:port)/database, with no @ in the database, which on Vitess is the keyspace alone"}
	}
	db, err := mysql.Open(string(d), options...)
	if field, ok := errors.AsType[*backend.FieldError](err); ok {
		renamed := *field
		renamed.Field = root + "." + strings.Replace(field.Field, "CA file", "tls_ca_file", 1)
		return nil, &renamed
	}
	return db, err
}
