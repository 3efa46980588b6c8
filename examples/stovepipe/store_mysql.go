package main

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"

	"github.com/tenantmq/tenantmq/examples/internal/database"
	"github.com/tenantmq/tenantmq/examples/internal/landing"
	"github.com/tenantmq/tenantmq/publish"
)

//go:embed migrations/*.sql
var versions embed.FS

// MySQLStore keeps heads beside the queue's tables, so that a head and the
// message about it are one transaction.
type MySQLStore struct {
	db        *sql.DB
	publisher publish.Publisher
}

func NewMySQLStore(db *sql.DB, p publish.Publisher) *MySQLStore {
	return &MySQLStore{db: db, publisher: p}
}

func (s *MySQLStore) Add(ctx context.Context, queue, commit string, out publish.Message) (Head, bool, error) {
	err := database.InTx(ctx, s.db, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO stovepipe_heads (queue, commit_id, state, detail) VALUES (?, ?, ?, '')", queue, commit, Pending)
		if err != nil {
			return err
		}
		_, err = s.publisher.PublishTx(ctx, tx, landing.Tenant(queue), validateTopic, out)
		return err
	})
	switch {
	case database.IsError(err, database.DuplicateKey):
		h, err := s.Get(ctx, queue, commit)
		return h, false, err
	case err != nil:
		return Head{}, false, fmt.Errorf("add head %s of queue %q: %w", commit, queue, err)
	}
	return Head{Queue: queue, Commit: commit, State: Pending}, true, nil
}

func (s *MySQLStore) Decide(ctx context.Context, queue, commit string, to State, position uint64, detail string) error {
	_, err := s.db.ExecContext(ctx, "UPDATE stovepipe_heads SET state = ?, position = ?, detail = ? WHERE queue = ? AND commit_id = ? AND state = ?",
		to, position, detail, queue, commit, Pending)
	if err != nil {
		return fmt.Errorf("record head %s of queue %q as %s: %w", commit, queue, to, err)
	}
	return nil
}

func (s *MySQLStore) Get(ctx context.Context, queue, commit string) (Head, error) {
	h := Head{Queue: queue, Commit: commit}
	err := s.db.QueryRowContext(ctx, "SELECT state, detail FROM stovepipe_heads WHERE queue = ? AND commit_id = ?", queue, commit).Scan(&h.State, &h.Detail)
	if errors.Is(err, sql.ErrNoRows) {
		return Head{}, notFound(queue, commit)
	}
	return h, err
}

func (s *MySQLStore) LastGreen(ctx context.Context, queue string) (string, error) {
	var commit string
	err := s.db.QueryRowContext(ctx, "SELECT commit_id FROM stovepipe_heads WHERE queue = ? AND state = ? ORDER BY position DESC LIMIT 1", queue, Green).Scan(&commit)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return commit, err
}
