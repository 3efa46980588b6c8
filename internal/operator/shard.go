package operator

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// shards are those of the keyspace on Vitess, and none elsewhere. The version
// does not tell: vtgate announces whatever it was told to.
func (o *Operator) shards(ctx context.Context) ([]string, error) {
	all, err := read(ctx, o.db, newQuery(stmtShards), single[string])
	if refused, ok := errors.AsType[*mysql.MySQLError](err); ok && refused.Number == errParse {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the shards: %w", err)
	}
	database, _, err := readOne(ctx, o.db, newQuery(stmtDatabase), single[string])
	if err != nil {
		return nil, fmt.Errorf("find out the keyspace: %w", err)
	}
	keyspace, _, _ := strings.Cut(database, "@") // a type of tablets
	keyspace, _, _ = strings.Cut(keyspace, ":")  // a shard
	var own []string
	for _, shard := range all {
		if of, name, _ := strings.Cut(shard, "/"); of == keyspace {
			own = append(own, of+":"+name)
		}
	}
	if len(own) == 0 {
		return nil, fmt.Errorf("keyspace %q has none of the shards %q: correct the DSN", keyspace, all)
	}
	return own, nil
}

// eachServer has something looked at on the server, or on Vitess on those of all
// shards, which vtgate would choose one of.
func (e *examination) eachServer(ctx context.Context, look func(context.Context)) {
	defer func() { e.server, e.shard = e.db, "" }()
	e.server = e.db
	if !e.onVitess() {
		look(ctx)
		return
	}
	for _, shard := range e.keyspace {
		e.shard = shard
		if err := e.onShard(ctx, look); err != nil {
			e.blind("server", err, "see whether its primary tablet serves")
		}
	}
}

func (e *examination) onShard(ctx context.Context, look func(context.Context)) error {
	conn, err := e.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// Nobody else must get a connection that leads to one shard.
	defer func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }()
	if _, err := conn.ExecContext(ctx, stmtUse+quoteName(e.shard)); err != nil {
		return err
	}
	e.server = conn
	look(ctx)
	return nil
}

func (e *examination) onVitess() bool { return len(e.keyspace) > 0 }

// thereOnly tells where a statement has to be sent that vtgate does not pass on.
func (e *examination) thereOnly() string {
	if e.shard == "" {
		return ""
	}
	return " on the server of the shard"
}

func quoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
