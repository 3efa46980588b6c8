package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// database is where the services keep their messages, and their own rows beside
// them.
type database struct {
	*sql.DB
	config  *mysql.Config
	what    string // in words
	sharded bool
	// settings are what the services have to know about it: keys of the section
	// mq.
	settings string
	// server is where the database is dropped from, nil if somebody else does.
	server *sql.DB
}

// newDatabase makes a database of its own on the server of MQ_TEST_DSN.
func newDatabase(ctx context.Context) (*database, error) {
	cfg, err := configOf("MQ_TEST_DSN", "a server on which a database may be created; make demo starts one")
	if err != nil {
		return nil, err
	}
	cfg.DBName = ""
	server, err := openDB(cfg)
	if err != nil {
		return nil, err
	}
	name := "tenantmq_demo_" + strings.ToLower(rand.Text()[:10])
	if _, err := server.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, errors.Join(fmt.Errorf("create a database: %w", err), server.Close())
	}
	cfg.DBName = name
	db, err := openDB(cfg)
	d := &database{DB: db, config: cfg, what: "one database", settings: "migrate: true", server: server}
	if err != nil {
		return nil, errors.Join(err, d.remove())
	}
	return d, nil
}

// vitessKeyspace is the keyspace of MQ_TEST_VITESS, in which both the queue's
// tables and the services' are routed. It goes with its cluster.
func vitessKeyspace(context.Context) (*database, error) {
	cfg, err := configOf("MQ_TEST_VITESS", "a Vitess cluster with the tables of the services; make demo VITESS=1 starts one")
	if err != nil {
		return nil, err
	}
	cfg.InterpolateParams = true // vtgate prepares a SELECT by sending it
	db, err := openDB(cfg)
	if err != nil {
		return nil, err
	}
	return &database{DB: db, config: cfg, what: "one keyspace of Vitess", sharded: true, settings: "external_schema: true\n  server_isolation: true"}, nil
}

func (d *database) dsn() string { return d.config.FormatDSN() }

// remove closes the database and drops one that was made.
func (d *database) remove() error {
	var err error
	if d.DB != nil {
		err = d.Close()
	}
	if d.server != nil {
		_, dropErr := d.server.Exec("DROP DATABASE " + d.config.DBName) //nolint:noctx // also when the demo is interrupted
		err = errors.Join(err, dropErr, d.server.Close())
	}
	return err
}

// configOf reads the DSN in an environment variable.
func configOf(variable, want string) (*mysql.Config, error) {
	given := os.Getenv(variable)
	if given == "" {
		return nil, fmt.Errorf("%s must name %s", variable, want)
	}
	cfg, err := mysql.ParseDSN(given)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	return cfg, nil
}

func openDB(cfg *mysql.Config) (*sql.DB, error) {
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}
