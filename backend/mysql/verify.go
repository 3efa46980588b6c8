package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"
)

// Returned by Verify and by the first Publish, PublishTx or Subscribe.
var (
	// ErrIsolation: transactions of the pool do not run in REPEATABLE READ.
	ErrIsolation = errors.New("wrong transaction isolation")
	// ErrServerSettings: the server, or the pool's connections, are set up in
	// a way that would lose or change messages.
	ErrServerSettings = errors.New("unsuitable server settings")
)

// packetOverhead is what an INSERT needs beside payload and metadata:
// identifiers of 255 characters, all of them escaped, and the statement.
const packetOverhead = 16 << 10

// tables of the schema.
var tableNames = []string{
	"queue_delivery_state", "queue_messages", "queue_offsets", "queue_partition_leases", "queue_subscriber_heartbeats",
}

// Verify checks that the database can be reached and carries the queue: its
// kind and version, isolation and other settings of the pool's connections, the
// packet size against Config.MaxPayload, and the version of the tables. Each
// error names what was found and the remedy; it wraps [ErrIsolation],
// [ErrServerSettings], [ErrSchemaMissing], [ErrSchemaOlder], [ErrSchemaNewer] or a
// [VitessError], or what the driver said. It returns [backend.ErrClosed] once
// the queue is closed.
//
// It is optional: the first Publish, PublishTx or Subscribe calls it, again and
// again until it succeeds. A service that calls it when it starts learns of a
// mistake then. It also puts aside the connections of the reserve, as far as the
// pool has them free: once others hold the whole pool it would be too late.
func (q *Queue) Verify(ctx context.Context) error {
	ctx, leave, err := q.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return q.verifyNow(ctx)
}

func (q *Queue) verifyNow(ctx context.Context) error {
	if err := q.verify(ctx); err != nil {
		return fmt.Errorf("verify the queue's database: %w", forVitess(err))
	}
	q.verified.Store(true)
	return nil
}

// ready verifies once. Concurrent callers wait for one of them to do it.
func (q *Queue) ready(ctx context.Context) error {
	if q.verified.Load() {
		return nil
	}
	select {
	case q.verifying <- struct{}{}:
		defer func() { <-q.verifying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if q.verified.Load() {
		return nil
	}
	return q.verifyNow(ctx)
}

func (q *Queue) verify(ctx context.Context) error {
	conn, err := q.db.Conn(ctx)
	if err != nil {
		return err
	}
	kept := false
	defer func() {
		if !kept {
			_ = conn.Close()
		}
	}()
	s, err := readSettings(ctx, conn)
	if err != nil {
		return fmt.Errorf("read the server's settings: %w", err)
	}
	if err := s.check(q.cfg); err != nil {
		return err
	}
	vitess, err := isVitess(ctx, conn)
	if err != nil {
		return err
	}
	q.vitess.Store(vitess)
	if vitess {
		if err := checkKeyspace(ctx, conn); err != nil {
			return err
		}
	}
	if err := q.verifySchema(ctx, conn); err != nil {
		return err
	}
	kept = q.reserve.keep(conn)
	q.reserve.fill(ctx)
	q.log.Debug("verified the queue's database", zap.String("version", s["version"]))
	return nil
}

func (q *Queue) verifySchema(ctx context.Context, db querier) error {
	if q.cfg.ExternalSchema {
		return probeTables(ctx, db)
	}
	version, err := schemaVersion(ctx, db)
	if err != nil {
		return fmt.Errorf("read the schema version: %w", err)
	}
	if err := schemaError(version); err != nil {
		return err
	}
	return checkEngines(ctx, db)
}

// isVitess asks for what only vtgate knows. The version does not tell: vtgate
// announces whatever it was told to.
func isVitess(ctx context.Context, db querier) (bool, error) {
	_, err := db.ExecContext(ctx, stmtShards)
	switch {
	case hasNumber(err, errParse): // from behind vtgate where the DSN names a shard, which statements are passed on to
		return strings.Contains(err.Error(), "vttablet"), nil
	case err != nil:
		return false, fmt.Errorf("find out whether the server is vtgate: %w", err)
	}
	return true, nil
}

// checkKeyspace refuses the target of a single shard, where vtgate would put the
// rows of every tenant, and replicas. keyspace:shard, keyspace/shard,
// keyspace[range] and keyspace@type are what vtgate reads.
func checkKeyspace(ctx context.Context, db querier) error {
	var target sql.NullString
	if err := db.QueryRowContext(ctx, stmtDatabase).Scan(&target); err != nil {
		return fmt.Errorf("read the database's name: %w", err)
	}
	name, tablets, _ := strings.Cut(target.String, "@")
	end := strings.IndexAny(name, ":/[")
	if end < 0 && (tablets == "" || strings.EqualFold(tablets, "primary")) {
		return nil
	}
	if end >= 0 {
		name = name[:end]
	}
	return &VitessError{
		Err:    fmt.Errorf("%w: the DSN's database is %q, one shard or its replicas, and not where the rows of every tenant belong", ErrServerSettings, target.String),
		Remedy: fmt.Sprintf("name the keyspace, %q", name),
	}
}

const externalRemedy = "apply what mqctl migrate sql prints, on Vitess with --vitess (in Go: mysql.Schema; VitessSchema and VSchema)"

// probeTables finds out without a version table whether the tables are there.
func probeTables(ctx context.Context, db querier) error {
	for _, probe := range stmtProbes {
		switch _, err := db.ExecContext(ctx, probe); {
		case isNoSuchTable(err):
			return fmt.Errorf("%w: %s: %w", ErrSchemaMissing, externalRemedy, err)
		case hasNumber(err, errBadField):
			return fmt.Errorf("%w: %s: %w", ErrSchemaOlder, externalRemedy, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// checkEngines refuses tables without transactions, and a database that has
// lost some of the tables.
func checkEngines(ctx context.Context, db querier) error {
	rows, err := db.QueryContext(ctx, stmtEngines)
	if err != nil {
		return err
	}
	defer rows.Close()
	var found []string
	for rows.Next() {
		var table string
		var engine sql.NullString
		if err := rows.Scan(&table, &engine); err != nil {
			return err
		}
		if !slices.Contains(tableNames, table) {
			continue
		}
		if engine.String != "InnoDB" {
			return fmt.Errorf("%w: table %s has the engine %s: ALTER TABLE %s ENGINE = InnoDB", ErrServerSettings, table, engine.String, table)
		}
		found = append(found, table)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, table := range tableNames {
		if !slices.Contains(found, table) {
			return fmt.Errorf("%w: the schema version is recorded but table %s is not there: restore it", ErrSchemaMissing, table)
		}
	}
	return nil
}

// settings of a session, by name.
type settings map[string]string

func readSettings(ctx context.Context, db querier) (settings, error) {
	rows, err := db.QueryContext(ctx, stmtSettings)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	s := make(settings)
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		s[name] = value
	}
	return s, rows.Err()
}

func (s settings) check(cfg Config) error {
	if err := s.checkVersion(); err != nil {
		return err
	}
	if err := s.checkIsolation(); err != nil {
		return err
	}
	if s["autocommit"] != "ON" && s["autocommit"] != "1" { // vtgate says 1
		return fmt.Errorf("%w: autocommit is %s on the pool's connections: SET autocommit = 1 or open the pool with mysql.Open",
			ErrServerSettings, s["autocommit"])
	}
	for _, name := range []string{"character_set_client", "character_set_connection", "character_set_results"} {
		if s[name] != "utf8mb4" {
			return fmt.Errorf("%w: %s is %s and would change identifiers: add charset=utf8mb4 to the DSN or open the pool with mysql.Open",
				ErrServerSettings, name, s[name])
		}
	}
	if !isStrict(s["sql_mode"]) {
		return fmt.Errorf("%w: sql_mode %q cuts values short that do not fit: add STRICT_TRANS_TABLES",
			ErrServerSettings, s["sql_mode"])
	}
	return s.checkPacket(cfg)
}

func (s settings) checkIsolation() error {
	level, ok := s["transaction_isolation"]
	if !ok {
		level = s["tx_isolation"] // MariaDB before 11.1
	}
	if level == "REPEATABLE-READ" {
		return nil
	}
	return fmt.Errorf("%w: the pool's connections run in %s, and the queue loses messages below REPEATABLE READ and deadlocks above: "+
		"open the pool with mysql.Open, or set transaction_isolation (tx_isolation on MariaDB before 11.1) to REPEATABLE-READ in its DSN or on the server",
		ErrIsolation, level)
}

// checkVersion refuses servers without NOWAIT. Version strings it cannot read
// pass.
func (s settings) checkVersion() error {
	version := s["version"]
	kind, major, minor := "MySQL", 8, 0
	if strings.Contains(version, "MariaDB") {
		kind, major, minor = "MariaDB", 10, 6
		version = strings.TrimPrefix(version, "5.5.5-") // a prefix for old clients
	}
	numbers := strings.SplitN(version, ".", 3)
	if len(numbers) < 2 {
		return nil
	}
	gotMajor, err1 := strconv.Atoi(numbers[0])
	gotMinor, err2 := strconv.Atoi(numbers[1])
	if err1 != nil || err2 != nil || gotMajor > major || gotMajor == major && gotMinor >= minor {
		return nil
	}
	return fmt.Errorf("%w: the server is %s %s: %s %d.%d or later is needed", ErrServerSettings, kind, version, kind, major, minor)
}

func (s settings) checkPacket(cfg Config) error {
	packet, err := strconv.Atoi(s["max_allowed_packet"])
	if err != nil {
		return nil // a server that does not say
	}
	if needed := 2*(cfg.MaxPayload+cfg.MaxMetadata) + packetOverhead; packet < needed {
		return fmt.Errorf("%w: max_allowed_packet is %d bytes, and a max payload of %d with a max metadata of %d can need %d: "+
			"raise the former on the server or lower the latter", ErrServerSettings, packet, cfg.MaxPayload, cfg.MaxMetadata, needed)
	}
	if packet < cfg.MaxBatchBytes {
		return fmt.Errorf("%w: max_allowed_packet is %d bytes and max batch bytes %d: raise the former on the server or lower the latter",
			ErrServerSettings, packet, cfg.MaxBatchBytes)
	}
	return nil
}
