package operator

import (
	"context"
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// Numbers of the errors that say a privilege is missing.
const (
	errTableAccessDenied  = 1142
	errColumnAccessDenied = 1143
)

// privileges asks the server whether the user may write, by statements with a
// condition that is false. The server refuses them before it looks at the
// condition, and otherwise reads, changes and locks no row.
func (e *examination) privileges(ctx context.Context) {
	const check = "privileges"
	if e.onVitess() {
		e.ok(check, "not looked at on Vitess, which has users and access lists of its own")
		return
	}
	user, _, err := readOne(ctx, e.db, newQuery(stmtUser), single[string])
	if err != nil {
		e.blind(check, err, "see the check of the database")
		return
	}
	var missing []string
	for _, probe := range stmtWriteProbes {
		err := e.probe(ctx, probe)
		refused, ok := errors.AsType[*mysql.MySQLError](err)
		switch {
		case err == nil:
		case ok && (refused.Number == errTableAccessDenied || refused.Number == errColumnAccessDenied):
			verb, rest, _ := strings.Cut(probe, " ")
			table, _, _ := strings.Cut(rest[strings.Index(rest, "queue_"):], " ")
			missing = append(missing, verb+" on "+table)
		case ok && refused.Number == errNoSuchTable: // the check of the database says so
		default:
			e.blind(check, err, "see the checks of the database and of writes")
			return
		}
	}
	found := "may read and write all tables"
	if len(missing) > 0 {
		found = "may not " + strings.Join(missing, ", ")
	}
	e.judge(check, len(missing) == 0, Bad, "GRANT SELECT, INSERT, UPDATE, DELETE on all tables of the queue's database to this user", "user %q %s", user, found)
}

// probe is rolled back, whatever it has done.
func (e *examination) probe(ctx context.Context, statement string) error {
	tx, err := e.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	_, err = tx.ExecContext(ctx, statement)
	return err
}
