package peer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	_ "github.com/mattn/go-sqlite3" // the driver of goqite's documentation
	"maragu.dev/goqite"
)

// goqiteSchema is what goqite requires to be there: its table, trigger and index
// (schema_sqlite.sql of v0.4.0), which it does not make itself.
const goqiteSchema = `
CREATE TABLE goqite (
  id       TEXT PRIMARY KEY DEFAULT ('m_' || lower(hex(randomblob(16)))),
  created  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ')),
  updated  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ')),
  queue    TEXT NOT NULL,
  body     BLOB NOT NULL,
  timeout  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ')),
  received INTEGER NOT NULL DEFAULT 0,
  priority INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TRIGGER goqite_updated_timestamp AFTER UPDATE ON goqite BEGIN
  UPDATE goqite SET updated = strftime('%Y-%m-%dT%H:%M:%fZ') WHERE id = old.id;
END;
CREATE INDEX goqite_queue_priority_created_idx ON goqite (queue, priority DESC, created);
CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL);`

// Goqite is maragu.dev/goqite on SQLite, in this process: no server to ask, one
// writer, messages received and deleted one at a time. It is for reference.
type Goqite struct {
	dir   string
	db    *sql.DB
	queue *goqite.Queue
}

// NewGoqite keeps its file in dir. It needs a C compiler at build time, else the
// error is [ErrCannot].
func NewGoqite(ctx context.Context, dir string) (*Goqite, error) {
	g := &Goqite{dir: dir}
	if err := g.Reset(ctx); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// Name implements [Peer].
func (g *Goqite) Name() string { return "goqite" }

// Reset implements [Peer]. The settings are those of goqite's README, one
// connection and a journal of its own (WAL), and every commit reaches the disk.
func (g *Goqite) Reset(ctx context.Context) error {
	if err := g.Close(); err != nil {
		return err
	}
	file := filepath.Join(g.dir, "goqite.db")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.RemoveAll(file + suffix); err != nil {
			return named(err, "goqite", "reset")
		}
	}
	db, err := sql.Open("sqlite3", "file:"+file+"?_journal=WAL&_timeout=5000&_fk=true&_sync=FULL")
	if err != nil {
		return named(err, "goqite", "reset")
	}
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	g.db = db
	if _, err := db.ExecContext(ctx, goqiteSchema); err != nil {
		if !cgo {
			err = fmt.Errorf("it %w be measured without a C compiler, which its driver is built with; install gcc: %w", ErrCannot, err)
		}
		return named(err, "goqite", "reset")
	}
	// A message is received again when its timeout has passed: not within a run.
	g.queue = goqite.New(goqite.NewOpts{DB: db, Name: "bench", Timeout: time.Hour})
	return nil
}

// Close implements [Peer].
func (g *Goqite) Close() error {
	if g.db == nil {
		return nil
	}
	err := g.db.Close()
	g.db = nil
	return named(err, "goqite", "close")
}

// Publish implements [Peer] by Send, and by SendTx for several.
func (g *Goqite) Publish(ctx context.Context, publishers int, batches [][]Message) error {
	return named(spread(ctx, publishers, batches, func(ctx context.Context, batch []Message) error {
		if len(batch) == 1 {
			return g.queue.Send(ctx, goqite.Message{Body: batch[0].Payload})
		}
		return g.send(ctx, batch, "")
	}), "goqite", "publish")
}

// PublishTx implements [Peer].
func (g *Goqite) PublishTx(ctx context.Context, publishers int, batches [][]Message) error {
	return named(spread(ctx, publishers, batches, func(ctx context.Context, batch []Message) error {
		return g.send(ctx, batch, insertOrder)
	}), "goqite", "publish in a transaction")
}

// send stores a batch after a statement of the caller's, if there is one.
func (g *Goqite) send(ctx context.Context, batch []Message, first string) error {
	tx, err := g.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing once committed
	if first != "" {
		if _, err := tx.ExecContext(ctx, first); err != nil {
			return err
		}
	}
	for _, m := range batch {
		if err := g.queue.SendTx(ctx, tx, goqite.Message{Body: m.Payload}); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Consume implements [Peer], one message at a time: SQLite has one writer.
func (g *Goqite) Consume(ctx context.Context, n int) error {
	for done := range n {
		m, err := g.queue.Receive(ctx)
		if err != nil {
			return named(err, "goqite", "consume")
		}
		if m == nil {
			return fmt.Errorf("goqite: consume: %d messages wanted, %d there", n, done)
		}
		if err := g.queue.Delete(ctx, m.ID); err != nil {
			return named(err, "goqite", "consume")
		}
	}
	return nil
}
