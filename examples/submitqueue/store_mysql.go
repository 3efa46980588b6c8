package main

import (
	"cmp"
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

// MySQLStore keeps requests beside the queue's tables, so that a change of
// state and the message that follows from it are one transaction.
type MySQLStore struct {
	db        *sql.DB
	publisher publish.Publisher
}

func NewMySQLStore(db *sql.DB, p publish.Publisher) *MySQLStore {
	return &MySQLStore{db: db, publisher: p}
}

func (s *MySQLStore) Accept(ctx context.Context, queue, change string, out Outgoing) (Request, bool, error) {
	err := database.InTx(ctx, s.db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO submit_requests (queue, change_name, state) VALUES (?, ?, ?)", queue, change, Accepted); err != nil {
			return err
		}
		return s.enter(ctx, tx, queue, change, Accepted, "", out)
	})
	created := err == nil
	if err != nil && !database.IsError(err, database.DuplicateKey) {
		return Request{}, false, fmt.Errorf("accept request %q: %w", requestID(queue, change), err)
	}
	r, err := s.Get(ctx, queue, change)
	return r, created, err
}

func (s *MySQLStore) Advance(ctx context.Context, queue, change string, from, to State, detail string, out ...Outgoing) error {
	err := database.InTx(ctx, s.db, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, "UPDATE submit_requests SET state = ? WHERE queue = ? AND change_name = ? AND state = ?", to, queue, change, from)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, errNotThere)
		}
		return s.enter(ctx, tx, queue, change, to, detail, out...)
	})
	if errors.Is(err, errNotThere) { // in another state, or unknown
		_, err = s.Get(ctx, queue, change)
	}
	if err != nil {
		return fmt.Errorf("move request %q from %s to %s: %w", requestID(queue, change), from, to, err)
	}
	return nil
}

var errNotThere = errors.New("not in that state")

// enter writes what a new state brings with it: history and messages.
func (s *MySQLStore) enter(ctx context.Context, tx *sql.Tx, queue, change string, state State, detail string, out ...Outgoing) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO submit_history (queue, change_name, step, state, at, detail) VALUES (?, ?, ?, ?, "+database.NowMillis+", ?)",
		queue, change, state.step(), state, detail)
	if err != nil {
		return err
	}
	for _, m := range out {
		if _, err := s.publisher.PublishTx(ctx, tx, landing.Tenant(queue), m.Topic, m.Message); err != nil {
			return err
		}
	}
	return nil
}

func (s *MySQLStore) Get(ctx context.Context, queue, change string) (Request, error) {
	list, err := s.query(ctx, queue, "change_name = ?", change, 1)
	if err != nil || len(list) == 0 {
		return Request{}, cmp.Or(err, notFound(queue, change))
	}
	return list[0], nil
}

func (s *MySQLStore) List(ctx context.Context, queue, after string, limit int) ([]Request, error) {
	return s.query(ctx, queue, "change_name > ?", after, limit)
}

// query reads requests with their histories by primary key.
func (s *MySQLStore) query(ctx context.Context, queue, which, change string, limit int) ([]Request, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT r.change_name, r.state, h.state, h.at, h.detail
		FROM (SELECT queue, change_name, state FROM submit_requests WHERE queue = ? AND `+which+` ORDER BY change_name LIMIT ?) r
		JOIN submit_history h ON h.queue = r.queue AND h.change_name = r.change_name
		ORDER BY r.change_name, h.step`, queue, change, limit)
	if err != nil {
		return nil, fmt.Errorf("read requests of queue %q: %w", queue, err)
	}
	defer rows.Close()
	list := []Request{}
	for rows.Next() {
		r, e := Request{Queue: queue}, Entry{}
		if err := rows.Scan(&r.Change, &r.State, &e.State, &e.At, &e.Detail); err != nil {
			return nil, fmt.Errorf("read requests of queue %q: %w", queue, err)
		}
		if last := len(list) - 1; last < 0 || list[last].Change != r.Change {
			r.ID = requestID(queue, r.Change)
			list = append(list, r)
		}
		last := &list[len(list)-1]
		last.History = append(last.History, e)
	}
	return list, rows.Err()
}

func (s *MySQLStore) Count(ctx context.Context, queue string) (map[State]int, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT state, COUNT(*) FROM submit_requests WHERE queue = ? GROUP BY state", queue)
	if err != nil {
		return nil, fmt.Errorf("count requests of queue %q: %w", queue, err)
	}
	defer rows.Close()
	count := make(map[State]int)
	for rows.Next() {
		var state State
		var n int
		if err := rows.Scan(&state, &n); err != nil {
			return nil, fmt.Errorf("count requests of queue %q: %w", queue, err)
		}
		count[state] = n
	}
	return count, rows.Err()
}
